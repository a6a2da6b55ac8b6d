// A ledger whose memory can be weighed to the byte: what JavaScript keeps once its garbage is collected, and the module's memory.
//
// The resident memory of the process tells less: it includes garbage, and what the allocator has not given back.
//
// Invariant: the worker is the ledger as it ships, with one path added.

import { cp, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { workerFolder } from "../../scripts/setup/worker.mjs";
import { open } from "./websocket.mjs";

const PATH = "/weighed";

/**
 * Replaces the worker's entry. It collects twice, because the second collection frees what the first has released. The Worker releases what it holds
 * once it sees that there was a collection, after 125 requests at the latest.
 */
const ENTRY = `
import ledger from "./ledger.js";
import { collect } from "./garbage.js";
import { glue } from "./module.js";
export * from "./ledger.js";

const kept = [];
export default {
  fetch(request, env, ctx) {
    const { pathname } = new URL(request.url);
    if (pathname === "${PATH}/keep") kept.push(String(request.headers.get("idempotency-key")) + kept.length);
    if (pathname !== "${PATH}") return ledger.fetch(request, env, ctx);
    gc();
    for (let asked = 0; asked < 125; asked += 1) collect();
    gc();
    gc();
    return Response.json(glue.initSync().memory.buffer.byteLength);
  },
};
`;

/** Resolves to the folder of such a worker, which exists until the test file has ended. `serve` it with `inspected`. */
export async function weighedLedger(after) {
  const folder = await mkdtemp(join(tmpdir(), "semel-weighed-"));
  after(() => rm(folder, { recursive: true, force: true }));
  await cp(workerFolder("ledger"), folder, { recursive: true });
  await rename(join(folder, "index.js"), join(folder, "ledger.js"));
  await writeFile(join(folder, "index.js"), ENTRY);
  return folder;
}

/** A path at which each request leaves its id behind for good, so that a test can check that weighing finds it. */
export const LEAKING_PATH = `${PATH}/keep`;

/** Resolves to what the worker keeps, in bytes: `{ heap, module }`. */
export async function weigh(server) {
  const { json: module } = await server.send("GET", PATH);
  const { socket } = await open(server.inspector, "/main");
  socket.send(JSON.stringify({ id: 1, method: "Runtime.getHeapUsage" }));
  const { usedSize, embedderHeapUsedSize, backingStorageSize } = JSON.parse(await socket.next()).result;
  socket.destroy();
  return { heap: usedSize + embedderHeapUsedSize + backingStorageSize, module };
}
