// A ledger that tells from inside what its requests have waited for: pages of the sweep that ran between a request's arrival at its object
// and its answer, how long each page took, and how many ran with no turn of anybody else in between.
//
// From outside that can't be told: where a busy machine keeps the client from reading an answer, the server sweeps on meanwhile.
//
// Invariant: the worker is the ledger as it ships; it is looked at, and nothing of it is another.

import { cp, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { workerFolder } from "../../scripts/setup/worker.mjs";

const PATH = "/watched";

/** In place of the worker's entry. */
const ENTRY = `
import ledger, { SemelObject as Semel } from "./ledger.js";
import { glue } from "./module.js";
export { NaiveObject, SemelRegistry } from "./ledger.js";

let pages = [];
let waited = [];
let inRow = 0;
let mostInRow = 0;
const { sweep_page } = glue.SemelEngine.prototype;
glue.SemelEngine.prototype.sweep_page = function (nowMs) {
  const begunMs = performance.now();
  const isMore = sweep_page.call(this, nowMs);
  pages.push(performance.now() - begunMs);
  // One that finds little, or nothing, is the last.
  if (isMore) inRow += 1;
  mostInRow = Math.max(mostInRow, inRow);
  setTimeout(() => (inRow = 0), 0);
  return isMore;
};

/** Looks at a call of its router's. */
async function looked(call) {
  const before = pages.length;
  const answer = await call();
  waited.push(pages.slice(before));
  return answer;
}

export class SemelObject extends Semel {
  ask(...request) {
    return looked(() => super.ask(...request));
  }

  askAll(calls) {
    return looked(() => super.askAll(calls));
  }
}

export default {
  fetch(request, env, ctx) {
    if (new URL(request.url).pathname !== "${PATH}") return ledger.fetch(request, env, ctx);
    const answer = Response.json({ pages, waited, mostInRow });
    pages = [];
    waited = [];
    mostInRow = 0;
    return answer;
  },
};
`;

/** The folder of such a worker, until the test file has ended. */
export async function watchedLedger(after) {
  const folder = await mkdtemp(join(tmpdir(), "semel-watched-"));
  after(() => rm(folder, { recursive: true, force: true }));
  await cp(workerFolder("ledger"), folder, { recursive: true });
  await rename(join(folder, "index.js"), join(folder, "ledger.js"));
  await writeFile(join(folder, "index.js"), ENTRY);
  return folder;
}

/** Since it was asked last: `pages`, how long each took in ms; `waited`, of each request, the pages that ran meanwhile; `mostInRow`. */
export async function watched(server) {
  return (await server.send("GET", PATH)).json;
}
