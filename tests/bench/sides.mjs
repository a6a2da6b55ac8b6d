// The servers that are measured: the ledger as it ships, the floor and the bound, each on its own workerd, on one disk.

import { copyFile, mkdir, mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { build } from "esbuild";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { workerFolder } from "../../scripts/setup/worker.mjs";
import { startWorkerd } from "../../scripts/setup/workerd.mjs";

/** The ledger's limits are set high, because its work is measured, not its limits. */
export const VARS = { SEMEL_OPEN: "true", SEMEL_RECORDS_MAX: "10000000", SEMEL_TOMBSTONES_MAX: "10000000" };
const LEDGER = { SEMEL: "SemelObject", REGISTRY: "SemelRegistry" };

/** Servers in a new folder below `disk`, until `end` is called. */
export class Sides {
  #folder;
  #started = [];

  static async on(disk) {
    const sides = new Sides();
    sides.#folder = await mkdtemp(join(disk, "semel-bench-"));
    return sides;
  }

  /** Resolves to a folder that exists until `end`. */
  async folder(name) {
    const folder = join(this.#folder, name);
    await mkdir(folder, { recursive: true });
    return folder;
  }

  /** Starts the floor, with the state of this name. `bound` and `ledger` do the same for theirs. */
  async floor({ state = "floor-state", ...more } = {}) {
    const folder = await this.folder("floor");
    await copyFile(join(ROOT, "tests/bench/floor.js"), join(folder, "index.js"));
    return this.serve(folder, state, { FLOOR: "Floor" }, more);
  }

  /** Starts the bound of deposits. */
  async bound({ state = "bound-state", ...more } = {}) {
    const folder = await this.folder("bound");
    const entryPoints = { index: join(ROOT, "tests/bench/bound-deposits.js") };
    await build({ entryPoints, outdir: folder, bundle: true, format: "esm", external: ["cloudflare:workers"], logLevel: "silent" });
    return this.serve(folder, state, { BOUND: "Bound" }, more);
  }

  /** Starts the ledger. */
  ledger({ state = "ledger-state", ...more } = {}) {
    return this.serve(workerFolder("ledger"), state, LEDGER, more);
  }

  /** Starts the worker in that folder with those objects. `more`: further options of `startWorkerd`. */
  async serve(folder, state, objects, more) {
    const path = await this.folder(state);
    const server = { ...(await startWorkerd({ folder, state: path, objects, vars: VARS, ...more })), state: path };
    this.#started.push(server);
    return server;
  }

  async end() {
    await Promise.all(this.#started.map((server) => server.kill()));
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** Resolves to the ms of CPU that all threads of a server have used. */
export async function cpuOf({ pid }) {
  let ns = 0;
  for (const thread of await readdir(`/proc/${pid}/task`)) {
    // A thread that has just ended had next to nothing to do.
    const text = await readFile(`/proc/${pid}/task/${thread}/schedstat`, "utf8").catch(() => "0");
    ns += Number(text.split(" ")[0]);
  }
  return ns / 1e6;
}
