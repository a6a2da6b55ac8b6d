// What is measured: the ledger as it ships, and the floor beside it, each on a workerd of its own, on one disk.

import { copyFile, mkdir, mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { build } from "esbuild";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { workerFolder } from "../../scripts/setup/worker.mjs";
import { startWorkerd } from "../../scripts/setup/workerd.mjs";

/** The ledger's limits are out of the way: it is the work that is measured. */
export const VARS = { SEMEL_OPEN: "true", SEMEL_RECORDS_MAX: "10000000", SEMEL_TOMBSTONES_MAX: "10000000" };
const LEDGER = { SEMEL: "SemelObject", REGISTRY: "SemelRegistry" };

/** Servers in a folder of their own below `disk`, until it is `end`ed. */
export class Sides {
  #folder;
  #started = [];

  static async on(disk) {
    const sides = new Sides();
    sides.#folder = await mkdtemp(join(disk, "semel-bench-"));
    return sides;
  }

  /** A folder that lives as long. */
  async folder(name) {
    const folder = join(this.#folder, name);
    await mkdir(folder, { recursive: true });
    return folder;
  }

  /** On the state of that name; so are the others. */
  async floor({ state = "floor-state", ...more } = {}) {
    const folder = await this.folder("floor");
    await copyFile(join(ROOT, "tests/bench/floor.js"), join(folder, "index.js"));
    return this.serve(folder, state, { FLOOR: "Floor" }, more);
  }

  /** The bound of deposits. */
  async bound({ state = "bound-state", ...more } = {}) {
    const folder = await this.folder("bound");
    const entryPoints = { index: join(ROOT, "tests/bench/bound-deposits.js") };
    await build({ entryPoints, outdir: folder, bundle: true, format: "esm", external: ["cloudflare:workers"], logLevel: "silent" });
    return this.serve(folder, state, { BOUND: "Bound" }, more);
  }

  /** The ledger. */
  ledger({ state = "ledger-state", ...more } = {}) {
    return this.serve(workerFolder("ledger"), state, LEDGER, more);
  }

  /** Starts a worker of that folder and of those objects. `more`: of `startWorkerd`'s options. */
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

/** The ms of CPU that a server has used, of all its threads. */
export async function cpuOf({ pid }) {
  let ns = 0;
  for (const thread of await readdir(`/proc/${pid}/task`)) {
    // One that ends just now had next to nothing to do.
    const text = await readFile(`/proc/${pid}/task/${thread}/schedstat`, "utf8").catch(() => "0");
    ns += Number(text.split(" ")[0]);
  }
  return ns / 1e6;
}
