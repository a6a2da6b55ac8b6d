// `npm start`: sets up everything that is needed, then serves the ledger on workerd, with its state in SQLite files.
//
// Settings, and their defaults if they are not set or empty: SEMEL_PORT (8787), SEMEL_STATE (the folder of the state, .semel/state), SEMEL_ADMIN_TOKEN
// (a new one at each start). Until the packages are installed, only Node's built-ins are imported.
//
// Invariant: only one server at a time uses a state, whether this process still supervises it or not. Each of two would keep in memory what the other
// changes on disk, and execute again what the other has executed.

import { randomUUID } from "node:crypto";
import { createServer } from "node:net";
import { join, resolve } from "node:path";
import { hold } from "./setup/hold.mjs";
import { checkMachine } from "./setup/machine.mjs";
import { ROOT } from "./setup/paths.mjs";
import { installPackages } from "./setup/packages.mjs";
import { StepError, main, step } from "./setup/step.mjs";
import { buildWorker, workerFolder } from "./setup/worker.mjs";

const HOST = "127.0.0.1";
/** The worker's own minimum. */
const ADMIN_TOKEN_CHARS_MIN = 16;
/** If two processes look for each other at the same moment, they look this often before they give up. By then, one of them is first. */
const LOOKS_MAX = 4;

await main(async () => {
  const port = portOf(process.env.SEMEL_PORT || "8787");
  const adminToken = tokenOf(process.env.SEMEL_ADMIN_TOKEN || randomUUID());
  const state = resolve(process.env.SEMEL_STATE || join(ROOT, ".semel/state"));
  console.log("Semel: setting up");
  await step("this machine", checkMachine);
  await step(`port ${port}`, () => checkPort(port));
  const held = await holdState(state);
  try {
    await step("npm packages", installPackages);
    await buildWorker("ledger");
    const { WWW_FOLDER, buildWww } = await import("./setup/www.mjs");
    await buildWww();
    const { supervise } = await import("./setup/supervise.mjs");
    const ending = new AbortController();
    // Set up before there is a server that could be left behind. Not `once`: npm passes on a signal that the whole group has got already, and a second
    // signal that nobody handles would end this process where it is.
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => ending.abort());
    // If nobody reads any more, as after quitting a pager, writing would end this process and leave the server. What a full disk does not take is lost.
    for (const stream of [process.stdout, process.stderr]) stream.on("error", ({ code }) => code === "EPIPE" && ending.abort());
    const server = await supervise({
      folder: workerFolder("ledger"),
      state,
      address: `${HOST}:${port}`,
      objects: { SEMEL: "SemelObject", NAIVE: "NaiveObject", REGISTRY: "SemelRegistry" },
      vars: { SEMEL_OPEN: "true", SEMEL_ADMIN_TOKEN: adminToken },
      assets: WWW_FOLDER,
      onLog: (text) => process.stderr.write(text),
      // The server outlives this process if that is killed, so it holds the state, too.
      onSpawn: (pid) => held.add(pid),
      ending,
    });
    if (server.url) console.log(`Semel: serving on ${server.url}\n       state in ${state}; Ctrl-C ends it\n       inspector on ${server.url}/inspector, its token is ${adminToken}`);
    // Ctrl-C reaches the server, too, which may end before this process has handled the signal.
    await server.ended;
  } finally {
    held.release();
  }
});

function portOf(text) {
  const port = Number(text);
  if (!/^\d+$/.test(text) || port > 65535) throw new StepError(`SEMEL_PORT is ${JSON.stringify(text)}; it must be a port number.`);
  return port;
}

function tokenOf(token) {
  const advice = "Choose another, or leave it out: then each start makes a new one.";
  if (token.length < ADMIN_TOKEN_CHARS_MIN) throw new StepError(`SEMEL_ADMIN_TOKEN is too short: it has at least ${ADMIN_TOKEN_CHARS_MIN} characters.`, advice);
  if (!/^[!-~]+$/.test(token)) throw new StepError("SEMEL_ADMIN_TOKEN has characters that no header can hold: use printable ASCII without spaces.", advice);
  return token;
}

/** Takes a state. Throws if a server has it: the process that supervises one, or the server itself. */
async function holdState(state) {
  const holders = join(state, "holders");
  const refuse = (others, looks) => {
    if (looks + 1 < LOOKS_MAX) return;
    throw new StepError(`A server is running on the state in ${state}: process ${others.join(" or ")}.`, `End that, or choose another state with SEMEL_STATE=FOLDER npm start. If it is no server of Semel's, delete ${holders}.`);
  };
  return hold(holders, refuse).catch((error) => {
    if (error instanceof StepError) throw error;
    throw new StepError(`The folder of the state, ${state}, can't be used: ${error.message}.`, "Choose another with SEMEL_STATE=FOLDER npm start.");
  });
}

/** Throws before the long steps if the port is taken. Another port would be a surprise. */
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
