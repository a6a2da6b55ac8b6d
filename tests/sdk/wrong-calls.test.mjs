// Tests calls that make no sense: wrong values of `ordered`, salts, forms and streams. No error says something wrong, and nothing wrong is sent.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Semel } from "../../sdk/npm/node.js";
import { Stub, URL_OF_STUB, deposit, outbox, rejection } from "./stub.mjs";

test("open refuses a wrong ordered or salt with a TypeError", async () => {
  for (const wrong of [{ ordered: "no" }, { ordered: null }, { ordered: 1 }, { salt: {} }, { salt: null }, { salt: Symbol("s") }]) {
    const semel = Semel.open({ url: URL_OF_STUB, fetch: new Stub().fetch, durability: "memory", ...wrong });
    const name = Object.keys(wrong)[0];
    assert.ok((await rejection(semel.then(async (open) => open.close()))) instanceof TypeError, name);
  }
});

test("a call with a wrong ordered is a TypeError, not a damaged store", async (t) => {
  const { semel } = await outbox(t);
  for (const wrong of [{ ordered: "no" }, { ordered: 1 }]) {
    assert.ok((await rejection(deposit(semel, "a", wrong))) instanceof TypeError, JSON.stringify(wrong));
  }
});

test("two calls whose salt is a promise are never merged into one request", async (t) => {
  const { semel, server } = await outbox(t, { ids: "hash" });
  let n = 0;
  const made = await Promise.allSettled([0, 1].map(() => deposit(semel, "a", { salt: async () => (n += 1) })));
  const ids = new Set(server.attempts.map((call) => call.id));
  assert.ok(ids.size === 2 || made.every(({ status, reason }) => status === "rejected" && reason instanceof TypeError), "two orders became one");
});

test("with hashes as ids a FormData without an id is a TypeError, because its boundary is random", async (t) => {
  const { semel, server } = await outbox(t, { ids: "hash" });
  const body = new FormData();
  body.append("amount", "5");
  assert.ok((await rejection(deposit(semel, "a", { body }))) instanceof TypeError);
  assert.equal(server.calls.length, 0);
  assert.equal((await deposit(semel, "a", { body, id: "own" })).status, 200);
});

test("a stream of anything but Uint8Arrays is a TypeError, and nothing is sent", async (t) => {
  const { semel, server } = await outbox(t);
  for (const part of ["text", 7, new ArrayBuffer(4)]) {
    const body = new ReadableStream({
      start(controller) {
        controller.enqueue(part);
        controller.close();
      },
    });
    assert.ok((await rejection(deposit(semel, "a", { body }))) instanceof TypeError, typeof part);
  }
  assert.equal(server.attempts.length, 0);
});
