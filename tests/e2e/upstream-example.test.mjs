// examples/upstream in front of json-server, a published REST server that knows no request ids. Every order is sent twice, and a third of all answers
// is lost on either side of Semel. Each order must still be one row.
//
// Invariant: the settings are those of the example, except for the address.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { RUNTIMES } from "../../scripts/setup/packages.mjs";
import { startLossy } from "./lossy.mjs";
import { serve } from "./server.mjs";

const ORDERS = 500;
/** How many orders are on their way at a time, each to a key of its own. */
const AT_A_TIME = 16;
const LOST = { loseAnswers: 1 / 3 };

const jsonServer = createRequire(join(RUNTIMES, "package.json"))("json-server");

/** json-server without orders. It can be asked for an order by its `ref`. */
async function orders() {
  const router = jsonServer.router({ orders: [] });
  const app = jsonServer.create();
  app.get("/orders/by-ref/:ref", ({ params }, response) => {
    const found = router.db.get("orders").find(params).value();
    response.status(found ? 200 : 404).json(found ?? {});
  });
  app.use(jsonServer.bodyParser);
  app.use(router);
  const server = app.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  after(() => new Promise((resolve) => server.close(resolve) && server.closeAllConnections()));
  return { url: `http://127.0.0.1:${server.address().port}`, rows: () => router.db.get("orders").value() };
}

async function exampleRoutes() {
  const text = await readFile(join(ROOT, "examples/upstream/wrangler.toml"), "utf8");
  return /SEMEL_UPSTREAM_ROUTES = '''([^']*)'''/.exec(text)[1];
}

test(`${ORDERS} double-sent orders, a third of all answers lost: ${ORDERS} rows, and each caller gets its own`, { timeout: 180_000 }, async () => {
  const api = await orders();
  const behind = await startLossy({ target: () => api.url, seed: 1, ...LOST });
  after(() => behind.close());
  const server = await serve(after, "upstream", { SEMEL_UPSTREAM: behind.url, SEMEL_UPSTREAM_ROUTES: await exampleRoutes() }, { reachesLocal: true });
  const before = await startLossy({ target: () => server.url, seed: 2, ...LOST });
  after(() => before.close());

  /** Sends one attempt. Resolves to undefined if no answer came back. */
  async function attempt(n) {
    const headers = { "content-type": "application/json", "semel-key": `"orders-${n % AT_A_TIME}"` };
    try {
      const answer = await fetch(`${before.url}/orders`, { method: "POST", headers, body: JSON.stringify({ ref: `order-${n}`, n }), redirect: "manual" });
      return { semel: answer.headers.get("semel-status"), order: await answer.json() };
    } catch {
      return undefined;
    }
  }

  /** Does what a client does that knows no ids: sends the same again until it has an answer. */
  async function settled(n) {
    for (;;) {
      const answer = await attempt(n);
      if (["executed", "replayed"].includes(answer?.semel)) return answer.order;
      assert.ok([undefined, "in-flight", "unavailable", "locked"].includes(answer?.semel), JSON.stringify(answer));
    }
  }

  const left = Array.from({ length: ORDERS }, (_, n) => n);
  const send = async () => {
    for (let n = left.shift(); n !== undefined; n = left.shift()) {
      const [one, other] = await Promise.all([settled(n), settled(n)]);
      assert.deepEqual([one.ref, other], [`order-${n}`, one]);
    }
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, send));
  const refs = api.rows().map(({ ref }) => ref);
  assert.equal(refs.length, ORDERS);
  assert.equal(new Set(refs).size, ORDERS);
  for (const side of [before, behind]) assert.ok(side.counts.lostAnswers > ORDERS / 5, JSON.stringify(side.counts));
});
