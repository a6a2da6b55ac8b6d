// A worker whose clock a test can set forward, so that what takes hours at the server takes no time.
//
// Invariant: the worker is the given one, by default the ledger as it ships. Only `Date.now` of its isolate differs.

import { copyFile, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { workerFolder } from "../../../scripts/setup/worker.mjs";

const PATH = "/set-clock-forward/";

/** Replaces the worker's entry. It passes everything on to the worker, except what sets the clock. */
const ENTRY = `
import worker from "./worker.js";
export * from "./worker.js";
const now = Date.now;
let aheadMs = 0;
Date.now = () => now() + aheadMs;
export default {
  fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (!pathname.startsWith("${PATH}")) return worker.fetch(request, env);
    aheadMs += Number(pathname.slice(${PATH.length}));
    return new Response(String(aheadMs));
  },
};
`;

/** Resolves to the folder of such a worker, which exists until the test file has ended. */
export async function clockedLedger(after, built = workerFolder("ledger")) {
  const folder = await mkdtemp(join(tmpdir(), "semel-clocked-"));
  after(() => rm(folder, { recursive: true, force: true }));
  for (const name of await readdir(built)) await copyFile(join(built, name), join(folder, name === "index.js" ? "worker.js" : name));
  await writeFile(join(folder, "index.js"), ENTRY);
  return folder;
}

/** Sets the clock of a server forward, for good. */
export async function forward(server, ms) {
  const answer = await fetch(`${server.url}${PATH}${ms}`);
  if (!answer.ok) throw new Error(`the clock was not set: ${answer.status}`);
}
