// A deployment in front of another Worker, over a service binding: Semel records the start, asks the Worker by HTTP or by a method call, and records
// its answer.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { until } from "./lossy.mjs";
import { serve } from "./server.mjs";

const services = { UPSTREAM: fileURLToPath(new URL("bound-side.mjs", import.meta.url)) };
const ORDERS = fileURLToPath(new URL("../../examples/binding/orders.js", import.meta.url));
const example = await serve(after, "upstream", { SEMEL_UPSTREAM_METHOD: "order" }, { services: { UPSTREAM: ORDERS } });
const byHttp = await serve(after, "upstream", {}, { services });
const byCall = await serve(after, "upstream", { SEMEL_UPSTREAM_METHOD: "order" }, { services });

for (const [by, server] of Object.entries({ fetch: byHttp, call: byCall })) {
  test(`by ${by}: the service is asked once for a change that is sent twice, and its answer is the outcome`, async () => {
    const id = randomUUID();
    const send = () => server.send("POST", "/orders/1", { id, as: "alice", body: "one" });
    const [first, again] = [await send(), await send()];
    assert.deepEqual([first.status, first.semel, first.json], [201, "executed", { made: 1 }]);
    assert.deepEqual([again.status, again.semel, again.text], [201, "replayed", first.text]);
    const { asked } = (await server.send("GET", "/orders")).json;
    assert.equal(asked.length, 1);
    const { path, body, key, principal } = asked[0];
    assert.deepEqual({ by: asked[0].by, path, body }, { by, path: "/orders/1", body: "one" });
    if (by === "call") assert.deepEqual({ id: asked[0].id, key, principal }, { id, key: '"orders/1"', principal: '"alice"' });
    else assert.equal(asked[0].id, id);
  });
}

test("a change for which the service answers 500 or throws is in doubt, and the service is not asked again", async () => {
  for (const [server, path] of [[byHttp, "/orders/fails"], [byCall, "/orders/throws"]]) {
    const id = randomUUID();
    const send = () => server.send("POST", path, { id, body: "two" });
    const answers = [await send(), await send()];
    for (const answer of answers) assert.deepEqual([answer.status, answer.json.code, answer.json.executed], [409, "outcome-unknown", "unknown"]);
    const { asked } = (await server.send("GET", "/orders")).json;
    assert.equal(asked.filter((each) => each.path === path).length, 1);
  }
});

/** Asks the service by a method call for the answer called `name`, twice under one id. */
async function given(name) {
  const id = randomUUID();
  const send = () => byCall.send("POST", `/orders/gives/${name}`, { id });
  const [first, again] = [await send(), await send()];
  const { asked } = (await byCall.send("GET", "/orders")).json;
  return { id, first, again, times: asked.filter((each) => each.id === id).length };
}

test("the answer of a method call is recorded whole, in every form that a service can return", async () => {
  const all = {
    response: [201, '{"made":1}', "application/json"],
    headers: [201, "a,b", "text/csv"],
    pairs: [201, "bytes", "text/csv"],
    buffer: [201, "bytes", null],
    stream: [201, "bytes", null],
    empty: [204, "", null],
    // The runtime has already decoded what the service fetched, and it must not be decoded again. What the service itself has encoded must be
    // decoded.
    gzip: [201, "fetched", "text/plain;charset=UTF-8"],
    br: [201, "fetched", "text/plain;charset=UTF-8"],
    zipped: [201, "bytes", null],
    brotli: [201, '{"made":"brotli"}', "application/json; charset=utf-8"],
    untyped: [201, '{"made":"brotli"}', null],
    // A body of these types may be any bytes. So bytes that are no UTF-8 do not show that it is still encoded.
    picture: [201, "\u{fffd}P", "image/png"],
    latin: [201, "\u{fffd}P", "text/plain; charset=iso-8859-1"],
  };
  for (const [name, expected] of Object.entries(all)) {
    const { first, again, times } = await given(name);
    assert.deepEqual([first.status, first.text, first.headers.get("content-type")], expected, name);
    assert.deepEqual([first.semel, again.semel, again.text, times], ["executed", "replayed", first.text, 1], name);
    if (name === "response") assert.equal(again.headers.get("x-mine"), "kept");
  }
});

test("a method that returns no valid answer leaves the change in doubt, and is not called again", async () => {
  for (const name of ["text", "bigint", "yes", "no-status", "nothing", "beyond", "object", "array", "number", "large", "injected"]) {
    const { id, first, again, times } = await given(name);
    assert.deepEqual([first.semel, first.json.executed, again.semel, times], ["outcome-unknown", "unknown", "outcome-unknown", 1], name);
    if (["no-status", "nothing"].includes(name)) assert.match(await byCall.lineOf(id), /the service gave a status that is no number, or a body that is no text or bytes/, name);
  }
});

test("an answer that never comes or never ends is given up after the timeout: in doubt, asked once, and the next runs", { timeout: 60_000 }, async () => {
  for (const vars of [{}, { SEMEL_UPSTREAM_METHOD: "order" }]) {
    const server = await serve(after, "upstream", { SEMEL_UPSTREAM_TIMEOUT_SECONDS: "1", ...vars }, { services });
    for (const what of ["never", "half"]) {
      const [id, key] = [randomUUID(), `"${what}"`];
      const send = (path, id) => server.send("POST", path, { id, key, body: "x" });
      const [lost, twin, next] = await Promise.all([send(`/orders/gives/${what}`, id), send(`/orders/gives/${what}`, id), send("/orders/1", randomUUID())]);
      for (const { status, semel } of [lost, twin]) assert.deepEqual([status, semel], [409, "outcome-unknown"], what);
      assert.deepEqual([next.status, next.semel], [201, "executed"], what);
      const { asked } = (await server.send("GET", "/orders")).json;
      assert.equal(asked.filter((each) => each.path.endsWith(what)).length, 1, what);
    }
    await until(async () => (await server.send("GET", "/orders")).json.ended === 1, "the service hears that its answer is not read on");
    await server.kill();
  }
});

test("if the service lacks the method, a change is upstream-unreachable, not sent, and runs under its id later", async () => {
  for (const name of ["odrer", "field", "fetch", "toString"]) {
    const server = await serve(after, "upstream", { SEMEL_UPSTREAM_METHOD: name }, { services });
    const id = randomUUID();
    const send = () => server.send("POST", "/orders/1", { id, body: "one" });
    for (const answer of [await send(), await send()]) assert.deepEqual([answer.status, answer.semel, answer.json.executed, answer.json.retry], [502, "upstream-unreachable", "no", "same-id"], name);
    assert.match(await server.lineOf(id, 2), /unreachable: .*SEMEL_UPSTREAM_METHOD/);
    await server.restart({ vars: { ...server.vars, SEMEL_UPSTREAM_METHOD: "order" } });
    assert.deepEqual([(await send()).semel, (await server.send("GET", "/orders")).json.asked.length], ["executed", 1], name);
    await server.kill();
  }
});

test("if the service loses its method, the call that finds out is in doubt, and the next is upstream-unreachable", async () => {
  const server = await serve(after, "upstream", { SEMEL_UPSTREAM_METHOD: "order" }, { services });
  const told = [];
  for (const path of ["/orders/renamed", "/orders/1", "/orders/1"]) told.push(await server.send("POST", path, { id: randomUUID(), body: "x" }));
  assert.deepEqual(told.map(({ semel, json }) => [semel, json.executed]), [["executed", undefined], ["outcome-unknown", "unknown"], ["upstream-unreachable", "no"]]);
});

test("the example: an order that is sent twice is made once, and the refusal of an invalid order is an outcome", async () => {
  const id = randomUUID();
  const send = () => example.send("POST", "/orders", { id, as: "alice", body: JSON.stringify({ item: "tea" }) });
  const [one, other] = await Promise.all([send(), send()]);
  assert.deepEqual([one.status, one.json], [201, { number: 1, item: "tea", by: '"alice"' }]);
  assert.deepEqual([other.status, other.text], [201, one.text]);
  assert.deepEqual((await example.send("GET", "/orders")).json, [one.json]);
  const wrong = await example.send("POST", "/orders", { id: randomUUID(), body: "{}" });
  assert.deepEqual([wrong.status, wrong.semel, wrong.json], [400, "executed", { error: "no-item" }]);
});
