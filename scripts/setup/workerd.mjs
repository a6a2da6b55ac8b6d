// Runs a built worker on workerd, the runtime of Cloudflare Workers, with Durable Objects in SQLite files.
//
// Invariants:
// - The runtime chooses the port and reports where it listens: there is nothing to guess, and no race.
// - It stays in the caller's process group, and is ended by SIGKILL: SIGTERM would wait for hung requests, and whatever was acknowledged is on disk.

import { spawn } from "node:child_process";
import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join, relative, resolve } from "node:path";
import { StepError } from "./step.mjs";

/** The day whose behaviour the runtime has, and the flags that change it, as in `wrangler.toml`. */
export const COMPATIBILITY_DATE = "2026-05-01";
export const COMPATIBILITY_FLAGS = ["no_web_socket_compression"];
const LISTEN_TIMEOUT_MS = 20_000;

/**
 * Starts the built worker in `folder` on `address`, with its state in the folder `state`. Resolves once it listens.
 *
 * - `objects`: the class of each namespace, by binding. `vars`: the worker's settings.
 * - `assets`: a folder of static files, bound as ASSETS. `lab`: the address of a server for the worker's own use, bound as LAB.
 * - `services`: by binding, the file of another Worker, which is one module. `reachesLocal`: whether the worker may fetch from this machine.
 * - `deadLetters`: the address of a server that gets what is sent to the queue DEAD_LETTERS. The worker is then bound as SELF, too, so that it can be
 *   given messages.
 * - `inspected`: whether debuggers may connect, at the `inspector` of the result.
 * - `compatibilityFlags`, `v8Flags`: further flags of the runtime. `onSpawn`: called with the process's number before anything else can happen.
 * - `signal`: aborting it kills the process, even while it starts, or keeps it from starting.
 */
export async function startWorkerd({ folder, state, address = "127.0.0.1:0", objects, vars = {}, assets, lab, services: others = {}, reachesLocal, deadLetters, inspected, compatibilityFlags = [], v8Flags = [], onLog, onSpawn, signal: ending }) {
  await mkdir(state, { recursive: true });
  const config = join(state, "config.capnp");
  // Removed first, so that the new file gets its mode: it contains settings, the administrator's token among them.
  await rm(config, { force: true });
  await writeFile(config, await configOf({ folder, address, objects, vars, assets, lab, others, reachesLocal, deadLetters, inspected, compatibilityFlags, v8Flags, state }), { mode: 0o600 });
  const { default: binary } = createRequire(import.meta.url)("workerd");
  const inspector = inspected ? ["--inspector-addr=127.0.0.1:0"] : [];
  ending?.throwIfAborted();
  const child = spawn(binary, ["serve", "--experimental", "--control-fd=3", ...inspector, config], {
    stdio: ["ignore", "pipe", "pipe", "pipe"],
    env: { ...process.env, CLOUDFLARE_CF_FETCH_ENABLED: "false" },
  });
  const kill = () => child.kill("SIGKILL");
  ending?.addEventListener("abort", kill);
  let log = "";
  const keep = (chunk) => {
    log = (log + chunk).slice(-20_000);
    onLog?.(chunk);
  };
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", keep);
  const exited = new Promise((resolve) => {
    child.on("exit", (code, signal) => resolve({ code, signal }));
    child.on("error", (error) => resolve({ error }));
  });
  exited.then(() => ending?.removeEventListener("abort", kill));
  try {
    // If there is no number there is no process, and `exited` says why.
    if (child.pid !== undefined) onSpawn?.(child.pid);
  } catch (error) {
    kill();
    await exited;
    throw error;
  }
  const ports = await listening(child, exited, () => log, inspected ? ["listen", "listen-inspector"] : ["listen"]);
  return {
    url: `http://${address.replace(/:\d+$/, "")}:${ports.listen}`,
    inspector: inspected && `http://127.0.0.1:${ports["listen-inspector"]}`,
    pid: child.pid,
    exited,
    log: () => log,
    async kill() {
      kill();
      await exited;
    },
  };
}

/** Resolves to the port of each event once all of them came. */
function listening(child, exited, log, events) {
  return new Promise((resolve, reject) => {
    const fail = (why) => {
      clearTimeout(timer);
      child.kill("SIGKILL");
      // Waits for the exit, because the caller may use the state for something else.
      exited.then(() => reject(new StepError(`workerd did not start: ${why}\n${log()}`)));
    };
    const timer = setTimeout(() => fail("it did not listen in time"), LISTEN_TIMEOUT_MS);
    exited.then(({ code, signal, error }) => fail(error ? error.message : `it ended with ${code ?? signal}`));
    let told = "";
    const ports = {};
    child.stdio[3].on("data", (chunk) => {
      told += chunk;
      for (const line of told.split("\n").slice(0, -1)) {
        const event = JSON.parse(line);
        ports[event.event] = event.port;
      }
      if (events.every((event) => event in ports)) {
        clearTimeout(timer);
        resolve(ports);
      }
    });
  });
}

async function configOf({ folder, address, objects, vars, assets, lab, others, reachesLocal, deadLetters, inspected, compatibilityFlags, v8Flags, state }) {
  const text = JSON.stringify;
  const modules = [];
  // The entry comes first. Paths are relative, because one that begins with / would be looked up in the schema's search path.
  for (const name of ["index.js", ...(await readdir(folder)).filter((name) => name !== "index.js")]) {
    const kind = name.endsWith(".wasm") ? "wasm" : "esModule";
    modules.push(`(name = ${text(name)}, ${kind} = embed ${text(relative(state, join(folder, name)))})`);
  }
  const namespaces = Object.values(objects).map((name) => `(className = ${text(name)}, uniqueKey = ${text(`semel-${name}`)}, enableSql = true)`);
  const bindings = [
    ...Object.entries(objects).map(([binding, name]) => `(name = ${text(binding)}, durableObjectNamespace = ${text(name)})`),
    // Handed over as wrangler does: a value that is no text stays what it is.
    ...Object.entries(vars).map(([name, value]) => `(name = ${text(name)}, ${typeof value === "string" ? `text = ${text(value)}` : `json = ${text(text(value))}`})`),
  ];
  const objectsFolder = join(state, "objects");
  await mkdir(objectsFolder, { recursive: true });
  const services = [`(name = "main", worker = .main)`, `(name = "state", disk = (path = ${text(objectsFolder)}, writable = true))`];
  if (assets !== undefined) {
    // The runtime's own service, as on Cloudflare: content types, ETags, names without `.html`, no listings.
    services.push(`(name = "assets", assets = (path = ${text(resolve(assets))}, compatibilityDate = ${text(COMPATIBILITY_DATE)}))`);
    bindings.push(`(name = "ASSETS", service = (name = "assets", entrypoint = "AssetWorker"))`);
  }
  if (lab !== undefined) {
    services.push(`(name = "lab", external = (address = ${text(lab)}, http = ()))`);
    bindings.push(`(name = "LAB", service = "lab")`);
  }
  for (const [binding, file] of Object.entries(others)) {
    const module = `(name = "index.js", esModule = embed ${text(relative(state, file))})`;
    services.push(`(name = ${text(binding)}, worker = (modules = [ ${module} ], compatibilityDate = ${text(COMPATIBILITY_DATE)}))`);
    bindings.push(`(name = ${text(binding)}, service = ${text(binding)})`);
  }
  if (deadLetters !== undefined) {
    services.push(`(name = "dead-letters", external = (address = ${text(deadLetters)}, http = ()))`);
    bindings.push(`(name = "DEAD_LETTERS", queue = "dead-letters")`, `(name = "SELF", service = "main")`);
  }
  if (reachesLocal) services.push(`(name = "internet", network = (allow = ["public", "private"]))`);
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    ${services.join(",\n    ")}
  ],
  sockets = [ (name = "http", address = ${text(address)}, http = (), service = "main") ],
  v8Flags = ${text([...v8Flags, ...(inspected ? ["--expose-gc"] : [])])},
);
const main :Workerd.Worker = (
  modules = [
    ${modules.join(",\n    ")}
  ],
  compatibilityDate = ${text(COMPATIBILITY_DATE)},
  compatibilityFlags = ${text([...COMPATIBILITY_FLAGS, ...compatibilityFlags, ...(deadLetters === undefined ? [] : ["service_binding_extra_handlers"])])},
  durableObjectNamespaces = [ ${namespaces.join(", ")} ],
  durableObjectStorage = (localDisk = "state"),
  bindings = [ ${bindings.join(", ")} ],
);
`;
}
