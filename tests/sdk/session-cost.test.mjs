// Tests what a call of a session costs, by counting (objects, timers, memory) instead of by a clock.

import assert from "node:assert/strict";
import { test } from "node:test";
import { plain } from "../../sdk/js/plain.js";
import { bodyOf, normalised, storable } from "../../sdk/js/requests.js";
import { LateResponse } from "../../sdk/npm/late.js";
import { deposit, outbox } from "./session-stub.mjs";
import { URL_OF_STUB, within } from "./stub.mjs";

/** Calls that `plain` accepts. */
const PLAIN = [
  ["/a", { method: "POST", body: "x" }],
  ["a/../b?c=d e#f", { method: "DELETE", body: "" }],
  ["https://worker.test/h\u00e9", { method: "PUT", body: "h\u00e9 \ud83d\ude00 \ud800" }],
  ["/a", { method: "PATCH", body: "{}", headers: {} }],
  ["/a", { method: "POST", body: "{}", headers: { "content-type": "application/json" } }],
  ["/a", { method: "POST", body: "{}", headers: { "Content-Type": "text/x; a=\"b c\"" } }],
];
/** Calls that it leaves to `Request`, whatever that makes of them. */
const NOT_PLAIN = [
  [new URL("/a", URL_OF_STUB), { method: "POST", body: "x" }],
  [new Request("https://worker.test/a", { method: "POST", body: "x" }), {}],
  ["/a", { method: "post", body: "x" }],
  ["/a", { method: "GET" }],
  ["/a", {}],
  ["/a", { method: "POST" }],
  ["/a", { method: "POST", body: new Uint8Array(1) }],
  ["/a", { method: "POST", body: new URLSearchParams("a=b") }],
  ["/a", { method: "POST", body: "x", keepalive: true }],
  ["/a", { method: "POST", body: "x", headers: null }],
  ["/a", { method: "POST", body: "x", headers: { "x-a": "b" } }],
  ["/a", { method: "POST", body: "x", headers: { authorization: "b" } }],
  ["/a", { method: "POST", body: "x", headers: { "content-type": " a" } }],
  ["/a", { method: "POST", body: "x", headers: { "content-type": "a\nb" } }],
  ["/a", { method: "POST", body: "x", headers: { "content-type": "a", "Content-Type": "b" } }],
  ["/a", { method: "POST", body: "x", headers: [["content-type", "a"]] }],
  ["/a", { method: "POST", body: "x", headers: new Headers({ "content-type": "a" }) }],
  ["https://elsewhere.test/a", { method: "POST", body: "x" }],
  ["https://user@worker.test/a", { method: "POST", body: "x" }],
  ["https://:password@worker.test/a", { method: "POST", body: "x" }],
  ["/a", { method: "POST", body: "x".repeat((1 << 18) + 1) }],
];

test("plain() makes of a plain call what a Request makes of it, byte for byte, and leaves the rest to a Request", async () => {
  for (const [input, init] of PLAIN) {
    const [method, target, lines, body] = plain(URL_OF_STUB, input, init) ?? assert.fail(`${input} is plain`);
    const { request, pathname, search } = normalised(URL_OF_STUB, input, init);
    const given = [request.method, pathname + search, storable(request.headers), await bodyOf(request)];
    assert.deepEqual([method, target, lines, new TextEncoder().encode(body)], given);
  }
  for (const [input, init] of NOT_PLAIN) assert.equal(plain(URL_OF_STUB, input, init), undefined, `${input} ${JSON.stringify(init)}`);
});

test("plain calls and others of a session take effect in the order of the calls", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const bodies = Array.from({ length: 40 }, (_, index) => `${index}`);
  const calls = bodies.map((body, index) => deposit(session, index % 3 === 0 ? new TextEncoder().encode(body) : body));
  await within(Promise.all(calls), "all are answered");
  assert.deepEqual(server.effects, bodies);
});

test("300 plain calls of a session make no Request and fewer than 150 timers, and their answers can be read", async (t) => {
  const { semel } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  let [requests, timers] = [0, 0];
  const { Request, setTimeout } = globalThis;
  t.after(() => Object.assign(globalThis, { Request, setTimeout }));
  globalThis.Request = class extends Request {
    constructor(...given) {
      super(...given);
      requests += 1;
    }
  };
  globalThis.setTimeout = (...given) => {
    timers += 1;
    return setTimeout(...given);
  };
  const answers = await within(Promise.all(Array.from({ length: 300 }, (_, index) => deposit(session, `${index}`))), "all are answered");
  assert.equal(requests, 0);
  assert.ok(timers < 150, `${timers} timers for 300 calls: some for each frame`);
  assert.ok(answers.every((answer) => answer instanceof LateResponse && answer instanceof Response));
  assert.deepEqual(await answers[299].json(), { ran: "299" });
});

test("a LateResponse behaves like a Response", async () => {
  const of = (Made, body = "h\u00e9") => new Made(new TextEncoder().encode(body), { status: 201, headers: [["content-type", "text/plain"], ["x-a", "1"], ["x-a", "2"]] });
  for (const read of [
    (response) => response.text(),
    async (response) => [...new Uint8Array(await response.arrayBuffer())],
    async (response) => [(await response.blob()).type, response.bodyUsed],
    async (response) => [await response.clone().text(), response.bodyUsed, await response.text(), response.bodyUsed],
    async (response) => [response.bodyUsed, (await response.body.getReader().read()).value.length, response.bodyUsed],
    async (response) => (await response.text(), response.text().catch(({ name }) => name)),
    (response) => response.json().catch(({ name }) => name),
    (response) => response.formData().catch(({ name }) => name),
    (response) => new Response(response.body, response).text(),
    (response) => [response.status, response.ok, response.type, response.redirected, response.statusText, [...response.headers], response.body instanceof ReadableStream],
    (response) => "bytes" in response,
  ]) assert.deepEqual(await read(of(LateResponse)), await read(of(Response)), `${read}`);
  for (const status of [200, 299, 300, 404, 500]) assert.equal(new LateResponse(null, { status }).ok, status < 300, `${status}`);
  assert.equal(new LateResponse(null, { status: 204 }).body, null);
  assert.equal(await new LateResponse(null, { status: 204 }).text(), "");
});

test("a session's module grows by less than 1 MiB over 3,000 calls", async (t) => {
  const memories = [];
  t.mock.method(WebAssembly, "Instance", class extends WebAssembly.Instance {
    constructor(...given) {
      super(...given);
      memories.push(this.exports.memory);
    }
  });
  const { semel } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const { length } = memories;
  assert.equal(length, 2);
  const round = () => Promise.all(Array.from({ length: 50 }, (_, index) => deposit(session, "x".repeat(index * 50))));
  const size = () => memories[1].buffer.byteLength;
  for (let n = 0; n < 5; n += 1) await within(round(), "all are answered");
  const before = size();
  for (let n = 0; n < 60; n += 1) await within(round(), "all are answered");
  // All these calls have 4 MB in total, and the module copies each of them several times.
  assert.ok(size() - before < 1 << 20, `it has grown from ${before} to ${size()} bytes`);
});
