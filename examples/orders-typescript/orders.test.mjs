// Tests of the handler on the runtime to which it is deployed. wrangler starts it, with a database that is gone afterwards.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Semel } from "semel";
import { unstable_startWorker } from "wrangler";

const plain = (value) => ({ type: "plain_text", value });
const worker = await unstable_startWorker({
  config: fileURLToPath(new URL("wrangler.toml", import.meta.url)),
  // Serve everybody, whatever keys for tokens `wrangler.toml` and `.dev.vars` set.
  bindings: { SEMEL_OPEN: plain("true"), SEMEL_JWT_KEYS: plain(""), SEMEL_JWKS_URL: plain("") },
  // "log" instead of "none" shows the log of the Worker, which has the reason of each `rolled-back`.
  dev: { persist: false, inspector: false, logLevel: "none", server: { hostname: "127.0.0.1", port: 0 } },
});
after(() => worker.dispose());
const { origin } = await worker.url;

/** Sends a change with an id. Each test uses its own shop, and so its own key. */
async function send(id, path, body) {
  const answer = await fetch(origin + path, { method: "POST", headers: { "idempotency-key": id }, body: JSON.stringify(body) });
  return { status: answer.status, semel: answer.headers.get("semel-status"), text: await answer.text() };
}

const stockOf = async (shop) => (await (await fetch(`${origin}/shops/${shop}/stock/apple`)).json()).quantity;

test("an order that is sent twice is made once, and its outcome is replayed", async () => {
  await send("delivery", "/shops/one/deliveries", { item: "apple", quantity: 5 });
  const [first, again] = [await send("order", "/shops/one/orders", { item: "apple", quantity: 2 }), await send("order", "/shops/one/orders", { item: "apple", quantity: 2 })];
  assert.deepEqual(first, { status: 201, semel: "executed", text: '{"order":1,"left":3}' });
  assert.deepEqual(again, { ...first, semel: "replayed" });
  assert.equal(await stockOf("one"), 3);
});

test("an order beyond the stock gets 409, and a body that is no order gets 400", async () => {
  assert.equal((await send("too-many", "/shops/two/orders", { item: "apple", quantity: 1 })).status, 409);
  // If the handler threw instead, the answer would be 500 `rolled-back`, and the SDK would send the request again and again.
  for (const [id, wrong] of ["", null, {}, { item: "apple", quantity: "1" }].entries()) assert.equal((await send(`wrong-${id}`, "/shops/two/orders", wrong)).status, 400);
});

test("the SDK makes every order once through a network that loses the first answer to each request", async () => {
  await send("delivery", "/shops/three/deliveries", { item: "apple", quantity: 10 });
  const answered = new Set();
  const lossy = async (input, init) => {
    const answer = await fetch(input, init);
    const id = init.headers.get("idempotency-key");
    if (answered.has(id)) return answer;
    answered.add(id);
    throw new TypeError("the answer is lost");
  };
  const semel = await Semel.open({ url: origin, durability: "memory", retryIntervalMs: 10, fetch: lossy });
  const order = { method: "POST", body: JSON.stringify({ item: "apple", quantity: 2 }) };
  const answers = await Promise.all([1, 2, 3].map(() => semel.fetch("/shops/three/orders", order)));
  await semel.close();
  assert.deepEqual(answers.map(({ status }) => status), [201, 201, 201]);
  assert.equal(await stockOf("three"), 4);
});
