// Tests promises that README.md and index.d.ts of the package make in passing, and that no other test file checks.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { brotliCompressSync } from "node:zlib";
import { Semel } from "../../sdk/npm/node.js";
import { Made } from "../../sdk/npm/late.js";
import { sessions } from "../../sdk/npm/session.js";
import entry from "../../sdk/npm/semel.js";
import * as keyed from "./session-stub.mjs";
import { gathering, many, made, turns } from "./gathering.mjs";
import { clock, deposit, hang, lost, outbox, rejection, Rows, Stub, until, URL_OF_STUB, within } from "./stub.mjs";

/** A stream that ends when `end()` is called. */
function slow(text) {
  let end;
  const ending = new Promise((resolve) => (end = resolve));
  const body = new ReadableStream({
    async pull(into) {
      await ending;
      into.enqueue(new TextEncoder().encode(text));
      into.close();
    },
  });
  return { body, end };
}

test("giveUpAfterMs counts from when the bodies of the call and of earlier calls at its key are read", async (t) => {
  const { semel, server } = await outbox(t, { giveUpAfterMs: 60_000 });
  const later = clock(t);
  const { body, end } = slow("slow");
  const calls = [deposit(semel, "a", { body }), deposit(semel, "a", { body: "behind it" })];
  await turns();
  later(100_000);
  // Another request makes the SDK look at everything that is due.
  await deposit(semel, "b");
  end();
  assert.deepEqual((await within(Promise.all(calls), "both are answered")).map(({ status }) => status), [200, 200]);
  server.each = (call, serve) => (call.kind === "change" ? lost() : serve());
  const given = rejection(deposit(semel, "a"));
  await until(() => server.attempts.length > 4, "it is sent again");
  later(60_000);
  assert.equal((await given).code, "gave-up");
});

test("ordered of a call wins over the outbox's option, both ways", async (t) => {
  for (const [ordered, own, underWay] of [[true, false, 2], [false, true, 1], [true, undefined, 1], [false, undefined, 2]]) {
    const { semel, server } = await outbox(t, { ordered });
    await deposit(semel);
    server.each = (call, serve) => (call.kind === "change" ? hang() : serve());
    const calls = [1, 2].map(() => rejection(deposit(semel, "a", own === undefined ? {} : { ordered: own })));
    await until(() => server.attempts.length >= 1 + underWay, "they are under way");
    await turns();
    assert.equal(server.attempts.length, 1 + underWay, `ordered: ${ordered}, and ${own} of the call`);
    await semel.close();
    await Promise.all(calls);
  }
});

test("salt of a call wins over the outbox's option, and a salt function is asked for each call", async (t) => {
  let asked = 0;
  const { semel, server } = await outbox(t, { ids: "hash", salt: () => `${(asked += 1)}`, ordered: false });
  await Promise.all([deposit(semel), deposit(semel)]);
  assert.deepEqual([asked, server.runs.size], [2, 2], "each has a salt of its own, so they are two");
  // The first is answered only once the other has its id too, however long hashing takes.
  const hashed = t.mock.method(crypto.subtle, "digest").mock;
  server.each = async (call, serve) => {
    await until(() => hashed.callCount() === 2, "both are hashed");
    await Promise.all(hashed.calls.map(({ result }) => result));
    await turns();
    return serve();
  };
  await Promise.all([deposit(semel, "a", { salt: "s" }), deposit(semel, "a", { salt: () => "s" })]);
  assert.deepEqual([asked, server.runs.size], [2, 3], "they have one, so they are one");
});

test("a change drops fetch's other options and reaches the fetch option as URL and init, and a read as a Request", async (t) => {
  const [server, given] = [new Stub(), []];
  const fetch = (...all) => {
    given.push(all);
    return server.fetch(...all);
  };
  const { semel } = await outbox(t, { fetch });
  const others = { cache: "no-store", credentials: "include", integrity: "sha256-x", keepalive: true, mode: "same-origin", priority: "high", redirect: "follow", referrer: "about:client", referrerPolicy: "origin" };
  await deposit(semel, "a", others);
  const [url, init] = given.find(([, { method }]) => method === "POST");
  assert.equal(url, "https://worker.test/accounts/a/deposit");
  assert.deepEqual([Object.keys(init).sort(), init.redirect], [["body", "headers", "method", "redirect", "signal"], "manual"]);
  given.length = 0;
  await semel.fetch("/accounts/a", { credentials: "omit", cache: "reload" });
  const [[read]] = given;
  assert.deepEqual([read instanceof Request, read.url, read.credentials, read.cache], [true, "https://worker.test/accounts/a", "omit", "reload"]);
});

test("a call without a key is never in a batch, even if an answer has told its key", async (t) => {
  const { semel, server } = await gathering(t);
  await deposit(semel);
  server.calls.length = 0;
  await Promise.all(many(20, () => deposit(semel, "a", { ordered: false })));
  assert.deepEqual(made(server).filter((kind) => kind !== "change"), []);
  assert.equal(server.attempts.length, 20);
});

test("a sessions module of another build is reported before anything is stored or sent", async (t) => {
  const server = new Stub();
  const read = (name) => readFile(new URL(`../../sdk/npm/${name}`, import.meta.url));
  const mixed = sessions(() => read("semel.wasm"), Made);
  const semel = await entry(() => read("semel.wasm"), async () => ({ default: mixed })).open({ url: URL_OF_STUB, durability: "memory", fetch: server.fetch });
  t.after(() => semel.close());
  const store = new Rows();
  const error = await rejection(semel.session("accounts/a", "s", { store }));
  assert.deepEqual([error.name, error.message], ["TypeError", "semel: reload: it is newer"]);
  assert.deepEqual([store.log, server.calls], [[], []]);
});

test("a call under an id that another outbox has used for another request pauses, and giveUp ends it", async (t) => {
  const server = new Stub();
  const { semel: other } = await outbox(t, { server });
  await deposit(other, "a", { id: "order-1", body: "another's" });
  const paused = [];
  const { semel } = await outbox(t, { server, onpaused: (one) => paused.push(one) });
  const answer = rejection(deposit(semel, "a", { id: "order-1", body: "its own" }));
  const [{ requestId, error, giveUp }] = await until(() => paused.length && paused, "it pauses");
  assert.deepEqual([requestId, error.code, error.executed], ["order-1", "fingerprint-mismatch", "unknown"]);
  giveUp();
  assert.equal((await answer).requestId, "order-1");
  await until(async () => !(await semel.pending()).length, "nothing is left");
  assert.equal(server.runs.get("order-1"), 1);
});

test("a cancellation that gets no answer emits lost with the id cancel- and the request id", async (t) => {
  const { semel, server } = await outbox(t);
  const ids = [];
  semel.addEventListener("lost", ({ detail }) => ids.push(detail.requestId));
  let isOut = true;
  server.each = (call, serve) => (isOut && call.kind !== "health" ? lost() : serve());
  const stop = new AbortController();
  const answer = rejection(deposit(semel, "a", { id: "order-1", key: "accounts/a", signal: stop.signal }));
  await until(() => ids.includes("order-1"), "it is sent");
  stop.abort();
  await until(() => ids.includes("cancel-order-1"), "it is asked to cancel");
  isOut = false;
  assert.equal((await answer).executed, "no");
});

test("outcome(id) is told gave-up together with the call that it waits for", async (t) => {
  const { semel, server } = await outbox(t, { giveUpAfterMs: 60_000 });
  const later = clock(t);
  server.each = (call, serve) => (call.kind === "change" ? lost() : serve());
  const waiting = [rejection(deposit(semel, "a", { id: "order-1" }))];
  await until(() => server.attempts.length > 1, "it is sent again");
  waiting.push(rejection(semel.outcome("order-1")));
  await turns();
  later(60_000);
  assert.deepEqual((await Promise.all(waiting)).map(({ code, requestId }) => [code, requestId]), Array(2).fill(["gave-up", "order-1"]));
});

test("outcome(id) of a call whose body is not read yet is outcome-lost, and the call goes on", async (t) => {
  const { semel } = await outbox(t);
  const answer = deposit(semel, "a", { id: "order-1" });
  assert.equal((await rejection(semel.outcome("order-1"))).code, "outcome-lost");
  assert.equal((await answer).status, 200);
});

test("outcome(id) is told cancelled together with the aborted call that it waits for", async (t) => {
  const { semel, server } = await outbox(t);
  server.each = (call, serve) => (call.kind === "change" ? lost() : serve());
  const stop = new AbortController();
  const waiting = [rejection(deposit(semel, "a", { id: "order-1", key: "accounts/a", signal: stop.signal }))];
  await until(() => server.attempts.length > 1, "it is sent again");
  waiting.push(rejection(semel.outcome("order-1")));
  await turns();
  stop.abort();
  assert.deepEqual((await Promise.all(waiting)).map(({ code, executed }) => [code, executed]), Array(2).fill(["cancelled", "no"]));
});

test("a call that gave up and then could not be stored comes to onrecovered as store-failed and unknown", async (t) => {
  const store = new Rows();
  const recovered = [];
  const { semel } = await outbox(t, { store, giveUpAfterMs: 20, onrecovered: ({ error }) => void recovered.push(error) });
  let fail;
  store.before = () => new Promise((_, reject) => (fail = reject));
  assert.equal((await rejection(deposit(semel))).code, "gave-up");
  fail(new Error("there is no space"));
  const [{ code, executed, cause }] = await until(() => recovered.length && recovered, "it is told");
  assert.deepEqual([code, executed, cause.message], ["store-failed", "unknown", "there is no space"]);
});

test("pending() tells how often this tab has sent each request", async (t) => {
  const { semel, server } = await outbox(t);
  let attempts = 0;
  server.each = (call, serve) => (call.kind !== "change" ? serve() : (attempts += 1) < 3 ? lost() : hang());
  rejection(deposit(semel));
  await until(() => attempts === 3, "it is sent for the third time");
  assert.deepEqual((await semel.pending()).map(({ attempts, state }) => [attempts, state]), [[3, "sending"]]);
});

test("an earlier page's request counts in the snapshot, and goes on under its id and key with the new options", async (t) => {
  const [store, server] = [new Rows(), new Stub()];
  const options = { store, server, ids: "hash", salt: "before" };
  const { semel } = await outbox(t, { ...options, headers: { "x-page": "before" } });
  server.each = (call, serve) => (call.kind === "change" ? lost() : serve());
  rejection(deposit(semel, "a", { key: "accounts/a", headers: { "x-own": "of the call" } }));
  await until(() => server.attempts.length > 1, "it is sent");
  await semel.close();
  const [before] = server.attempts;
  server.calls.length = 0;
  let isHeld = true;
  server.each = (call, serve) => (isHeld && call.kind === "change" ? lost() : serve());
  const recovered = [];
  const { semel: next } = await outbox(t, { ...options, salt: "after", headers: { "x-page": "after" }, onrecovered: ({ requestId }) => void recovered.push(requestId) });
  assert.deepEqual(next.getSnapshot(), { pending: 1, paused: 0, online: true });
  isHeld = false;
  await until(() => recovered.length, "it is answered");
  const { id, body, headers } = server.attempts.at(-1);
  assert.deepEqual([id, body, headers.get("semel-key"), headers.get("x-own"), headers.get("x-page")], [before.id, before.body, '"accounts/a"', "of the call", "after"]);
  assert.deepEqual(recovered, [before.id]);
});

test("an answer has its url, and a clone of it has none", async (t) => {
  const { semel } = await outbox(t);
  const response = await deposit(semel);
  assert.deepEqual([response.url, response.clone().url], ["https://worker.test/accounts/a/deposit", ""]);
  const { semel: other } = await keyed.outbox(t);
  const late = await keyed.deposit(await other.session("accounts/a", "s"), "x");
  assert.deepEqual([late.url, late.clone().url], ["https://worker.test/accounts/a/deposit", ""]);
});

test("maxPending counts for each session by itself, and a session has its key and name as they were given", async (t) => {
  const { semel, server } = await keyed.outbox(t, { maxPending: 1 });
  const [one, two] = [await semel.session("a b/\u00fc", "s"), await semel.session("accounts/a", "s")];
  assert.deepEqual([one.key, one.name], ["a b/\u00fc", "s"]);
  server.each = hang;
  const held = [deposit(semel), keyed.deposit(one, "x"), keyed.deposit(two, "x")].map(rejection);
  await until(() => semel.getSnapshot().pending === 3, "each has one");
  for (const full of [deposit(semel), keyed.deposit(one, "y"), keyed.deposit(two, "y")]) assert.equal((await rejection(full)).code, "outbox-full");
  await semel.close();
  assert.deepEqual((await Promise.all(held)).map(({ code }) => code), Array(3).fill("closed"));
});

test("close of a session rejects all its calls as closed and unknown, stored or not", async (t) => {
  const { semel, server } = await keyed.outbox(t);
  const session = await semel.session("accounts/a", "s");
  server.each = hang;
  const { body } = slow("never");
  const waiting = [keyed.deposit(session, "x"), keyed.deposit(session, body)].map(rejection);
  await until(() => server.frames.length === 1, "one has left");
  await session.close();
  waiting.push(rejection(keyed.deposit(session, "later")));
  assert.deepEqual((await Promise.all(waiting)).map(({ code, executed }) => [code, executed]), Array(3).fill(["closed", "unknown"]));
});

test("a renewed token counts from a socket's next connection, and a call that no batch takes goes by HTTP", async (t) => {
  const { WebSocket } = globalThis;
  t.after(() => (globalThis.WebSocket = WebSocket));
  const connections = [];
  let token = 1;
  const { semel, server } = await keyed.outbox(t, { headers: () => ({ authorization: `Bearer ${token}` }) });
  globalThis.WebSocket = class {
    constructor() {
      connections.push(this);
      queueMicrotask(() => this.onopen());
    }
    send(text) {
      const { frame, requests, ...first } = JSON.parse(text);
      if (!frame) this.first = first;
      else queueMicrotask(() => this.onmessage({ data: JSON.stringify({ frame, answers: JSON.parse(server.batch(requests)) }) }));
    }
    close() {}
  };
  const session = await semel.session("accounts/a", "s", { transport: "socket" });
  await keyed.deposit(session, "a");
  token = 2;
  await keyed.deposit(session, "b");
  assert.deepEqual(connections.map(({ first }) => first.authorization), ["Bearer 1"]);
  connections[0].onclose({ code: 1006, reason: "" });
  await keyed.deposit(session, "c");
  assert.deepEqual(connections.map(({ first }) => first.authorization), ["Bearer 1", "Bearer 2"]);
  assert.equal(server.frames.length, 0);
  await keyed.deposit(session, "d", { headers: { "cf-turnstile-response": "a token" } });
  assert.deepEqual(server.frames.map(({ path, headers }) => [path, headers.get("cf-turnstile-response")]), [["/accounts/a/deposit", "a token"]]);
  assert.deepEqual(server.effects, ["a", "b", "c", "d"]);
});

test("semel/inline is about a fifth larger, compressed, than the module and the script that it is made of", async () => {
  const sizes = await Promise.all(["semel.wasm", "semel.js", "inline/wasm.js"].map(async (name) => brotliCompressSync(await readFile(new URL(`../../sdk/npm/${name}`, import.meta.url))).length));
  const [module, script, inlined] = sizes;
  const more = (inlined + script) / (module + script) - 1;
  assert.ok(more > 0.15 && more < 0.25, `${more}`);
});
