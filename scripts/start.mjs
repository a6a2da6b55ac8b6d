// `npm start`: sets up all it needs, then serves the ledger on workerd, with its state in SQLite files.
//
// Settings: SEMEL_PORT (8787), SEMEL_STATE (the folder of the state, .semel/state), SEMEL_ADMIN_TOKEN (a new one each time).
// Only Node's built-ins are imported before the packages are installed.

import { randomUUID } from "node:crypto";
import { createServer } from "node:net";
import { join, resolve } from "node:path";
import { ROOT } from "./setup/paths.mjs";
import { installPackages } from "./setup/packages.mjs";
import { StepError, main, run, step } from "./setup/step.mjs";
import { buildWorker, workerFolder } from "./setup/worker.mjs";

const HOST = "127.0.0.1";

await main(async () => {
  const port = portOf(process.env.SEMEL_PORT ?? "8787");
  const adminToken = process.env.SEMEL_ADMIN_TOKEN ?? randomUUID();
  const state = resolve(process.env.SEMEL_STATE ?? join(ROOT, ".semel/state"));
  console.log("Semel: setting up");
  await step("this machine", checkMachine);
  await step(`port ${port}`, () => checkPort(port));
  await step("npm packages", installPackages);
  await buildWorker("ledger");
  const { WWW_FOLDER, buildWww } = await import("./setup/www.mjs");
  await buildWww();
  const { supervise } = await import("./setup/supervise.mjs");
  const server = await supervise({
    folder: workerFolder("ledger"),
    state,
    address: `${HOST}:${port}`,
    objects: { SEMEL: "SemelObject", NAIVE: "NaiveObject", REGISTRY: "SemelRegistry" },
    vars: { SEMEL_OPEN: "true", SEMEL_ADMIN_TOKEN: adminToken },
    assets: WWW_FOLDER,
    onLog: (text) => process.stderr.write(text),
  });
  console.log(`Semel: serving on ${server.url}\n       state in ${state}; Ctrl-C ends it\n       inspector on ${server.url}/inspector, its token is ${adminToken}`);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.once(signal, () => server.end());
  await server.ended;
});

function portOf(text) {
  const port = Number(text);
  if (!/^\d+$/.test(text) || port > 65535) throw new StepError(`SEMEL_PORT is ${JSON.stringify(text)}; it must be a port number.`);
  return port;
}

/** Fails before the long steps if the port is taken: another port would be a surprise. */
function checkPort(port) {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once("error", (error) => {
      const why = error.code === "EADDRINUSE" ? "is taken" : `can't be used: ${error.message}`;
      reject(new StepError(`Port ${port} ${why}.`, "End what listens there, or choose another with SEMEL_PORT=PORT npm start."));
    });
    probe.listen(port, HOST, () => probe.close(() => resolve("free")));
  });
}

async function checkMachine() {
  const [major] = process.versions.node.split(".").map(Number);
  if (major < 20) throw new StepError(`Node is ${process.versions.node}; 20 or newer is needed.`, "Install a newer Node from https://nodejs.org.");
  await run("cc", ["--version"], { advice: "Install a C compiler: `apt-get install gcc`, or `xcode-select --install`." });
  return `Node ${process.versions.node}`;
}
