// Tests the bodies of requests: streams, the limit of 1 MiB, and that every attempt sends exactly the bytes that are stored.

import assert from "node:assert/strict";
import { test } from "node:test";
import { runInNewContext } from "node:vm";
import { Rows, deposit, lost, outbox, rejection, within } from "./stub.mjs";

const LIMIT = 1 << 20;
const streamOf = (...parts) => new ReadableStream({ start: (controller) => (parts.forEach((part) => controller.enqueue(part)), controller.close()) });
const bytes = (text) => new TextEncoder().encode(text);

test("a stream is read once and sent as its bytes, on every attempt", async (t) => {
  const { semel, server } = await outbox(t);
  server.each = (call, serve) => (call.kind === "change" && call.n < 3 ? lost() : serve());
  await deposit(semel, "a", { body: streamOf(bytes("one "), bytes("two")), headers: { "content-type": "text/x" } });
  assert.deepEqual(server.attempts.map((call) => [call.body, call.headers.get("content-type")]), Array(3).fill(["one two", "text/x"]));
});

test("a Uint8Array of another realm, as under jsdom, is accepted in a stream, and nothing else is", async (t) => {
  const { semel, server } = await outbox(t);
  const [whole, words] = ["new Uint8Array([111, 110, 101])", "new Uint16Array([1])"].map((code) => runInNewContext(code));
  assert.ok(!(whole instanceof Uint8Array));
  await deposit(semel, "a", { body: streamOf(whole, bytes(" two")) });
  assert.deepEqual(server.attempts.map(({ body }) => body), ["one two"]);
  for (const part of [words, "text", null]) assert.match((await rejection(deposit(semel, "a", { body: streamOf(part) }))).message, /a stream is of Uint8Arrays/);
});

test("a form's boundary is the same on every attempt", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  server.each = (call, serve) => (call.kind === "change" && call.n < 3 ? lost() : serve());
  const form = new FormData();
  form.append("file", new Blob(["\0ÿ"]), "name");
  await deposit(semel, "a", { body: form });
  const [first, ...others] = server.attempts.map((call) => [call.body, call.headers.get("content-type")]);
  assert.match(first[1], /^multipart\/form-data; boundary=/);
  assert.ok(first[0].includes(first[1].split("boundary=")[1]));
  assert.deepEqual(others, [first, first]);
});

test("a body of 1 MiB is sent, and one byte more is a RangeError before anything is stored or sent", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  assert.equal((await deposit(semel, "a", { body: new Uint8Array(LIMIT) })).status, 200);
  const [sent, stored] = [server.calls.length, store.log.length];
  const half = new Uint8Array(LIMIT / 2);
  for (const body of [new Uint8Array(LIMIT + 1), new Blob([half, half, "x"]), streamOf(half, half, new Uint8Array(1))]) {
    const error = await rejection(deposit(semel, "b", { body }));
    assert.ok(error instanceof RangeError && /1048576/.test(error.message), String(error));
  }
  assert.deepEqual([server.calls.length, store.log.filter(([what]) => what === "change").length], [sent, stored - 1]);
});

test("an endless stream is a RangeError, and is cancelled near the limit", async (t) => {
  const { semel } = await outbox(t);
  let cancelled = false;
  let pulled = 0;
  const endless = new ReadableStream({
    pull(controller) {
      pulled += 1;
      controller.enqueue(new Uint8Array(1 << 20));
    },
    cancel: () => void (cancelled = true),
  });
  assert.ok((await rejection(deposit(semel, "a", { body: endless }))) instanceof RangeError);
  assert.ok(cancelled && pulled < 5, `${pulled}`);
});

test("a stream that is being read is cancelled when its call is aborted", async (t) => {
  const { semel } = await outbox(t);
  const stop = new AbortController();
  const cancelled = new Promise((resolve) => {
    const body = new ReadableStream({ cancel: resolve });
    rejection(deposit(semel, "a", { body, duplex: "half", signal: stop.signal })).catch(() => {});
  });
  stop.abort();
  await within(cancelled, "the stream is told", 5_000);
});

test("a stream that was partly read is a TypeError, and nothing is stored or sent", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  for (const parts of [["one"], ["one", "two"]]) {
    const stream = streamOf(...parts.map(bytes));
    const reader = stream.getReader();
    await reader.read();
    reader.releaseLock();
    assert.ok((await rejection(deposit(semel, "a", { body: stream }))) instanceof TypeError);
  }
  assert.deepEqual([server.attempts.length, store.log.filter(([what]) => what === "change").length], [0, 0]);
});

test("if a Request shows no body, as in Firefox, every kind of body is sent whole and limited", async (t) => {
  const { body } = Object.getOwnPropertyDescriptors(Request.prototype);
  Object.defineProperty(Request.prototype, "body", { value: undefined, configurable: true });
  t.after(() => Object.defineProperty(Request.prototype, "body", body));
  const { semel, server } = await outbox(t);
  for (const one of ["text", streamOf(bytes("stre"), bytes("am")), bytes("bytes"), undefined]) await deposit(semel, "a", { body: one });
  assert.deepEqual(server.attempts.map((call) => call.body), ["text", "stream", "bytes", ""]);
  assert.ok((await rejection(deposit(semel, "b", { body: new Uint8Array(LIMIT + 1) }))) instanceof RangeError);
});

test("an unordered call does not wait for an earlier call whose body takes long", async (t) => {
  const { semel, server } = await outbox(t);
  let end;
  const slow = new ReadableStream({ start: (controller) => (end = () => controller.close()) });
  const calls = [deposit(semel, "a", { body: slow }), deposit(semel, "a", { body: "free", ordered: false })];
  assert.equal((await calls[1]).status, 200);
  end();
  await calls[0];
  assert.deepEqual(server.attempts.map((call) => call.body), ["free", ""]);
});

test("a read with a stream as its body passes through", async (t) => {
  const seen = [];
  const fetch = async (request) => {
    seen.push(await request.text());
    return new Response("ok");
  };
  const { semel } = await outbox(t, { fetch });
  assert.equal((await semel.fetch("/search", { method: "QUERY", body: streamOf(bytes("what")), duplex: "half" })).status, 200);
  assert.deepEqual(seen, ["what"]);
});
