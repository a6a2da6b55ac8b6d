// A ledger that reports from inside what its requests waited for: the pages of a sweep that ran between a request's arrival at its object and its
// answer,
// how long each page took, and how many ran in a row without anybody else's turn.
//
// This can't be measured from outside: on a busy machine, the server may sweep on before the client reads an answer.
//
// Invariant: the worker is the ledger as it ships. It is only observed; nothing in it differs.

import { cp, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { workerFolder } from "../../scripts/setup/worker.mjs";

const PATH = "/watched";

/** Replaces the worker's entry. */
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

/** Resolves to the folder of such a worker, which exists until the test file has ended. */
export async function watchedLedger(after) {
  const folder = await mkdtemp(join(tmpdir(), "semel-watched-"));
  after(() => rm(folder, { recursive: true, force: true }));
  await cp(workerFolder("ledger"), folder, { recursive: true });
  await rename(join(folder, "index.js"), join(folder, "ledger.js"));
  await writeFile(join(folder, "index.js"), ENTRY);
  return folder;
}

/** Since the last call: `pages`, how many ms each took; `waited`, for each request the pages that ran meanwhile; and `mostInRow`. */
export async function watched(server) {
  return (await server.send("GET", PATH)).json;
}
