// Tests closing an outbox: every caller that waits is told, nothing is sent afterwards, what is left can be opened again, and the process can end.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";
import { OutcomeUnknownError, Semel } from "../../sdk/npm/node.js";
import { Rows, Stub, URL_OF_STUB, deposit, hang, is, lost, minutes, outbox, rejection, until, within } from "./stub.mjs";

test("close settles every waiting call as unknown, and its request stays stored", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store, onpaused: () => {} });
  // The request is stored, and waits for the health check to answer.
  server.each = hang;
  const withoutClock = rejection(deposit(semel, "a"));
  await until(() => server.calls.length === 1, "health is asked");
  await closes(semel, [withoutClock], store, 1);

  const { semel: other } = await outbox(t, { store: new Rows(), server, onpaused: () => {} });
  server.each = (call, serve) => {
    if (call.key === "accounts/hangs") return hang();
    if (call.key === "accounts/pauses") return server.problem(call.key, 403, "forbidden", { executed: "no", retry: "after-fix" });
    return call.key === "accounts/waits" ? lost() : serve();
  };
  const waiting = ["hangs", "pauses", "waits"].map((account) => rejection(deposit(other, account)));
  await until(() => server.attempts.length > 4, "all were sent");
  const hanging = server.attempts.find(({ key }) => key === "accounts/hangs");
  await closes(other, waiting);
  assert.ok(hanging.init.signal.aborted, "what is under way is aborted");
});

async function closes(semel, waiting, store, rows) {
  await within(semel.close(), "close");
  for (const error of await within(Promise.all(waiting), "who waits")) {
    assert.ok(error instanceof OutcomeUnknownError);
    const { code, executed, retry, message } = error;
    assert.deepEqual({ code, executed, retry }, { code: "closed", executed: "unknown", retry: "same-id" });
    assert.doesNotMatch(message, /\bit goes on\b/, "in memory it does not");
  }
  if (store) assert.deepEqual([store.rows.size, store.closed], [rows, 1]);
}

test("close settles a call and a pending() that wait for the store", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  store.before = hang;
  store.load = hang;
  const stored = rejection(deposit(semel));
  const pending = rejection(semel.pending());
  await new Promise((resolve) => setTimeout(resolve, 10));
  await within(semel.close(), "close");
  assert.equal((await within(stored, "fetch")).code, "closed");
  is(await within(pending, "pending"), "TypeError");
  assert.deepEqual(server.calls, []);
});

test("close settles a call that waits for its body", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  const body = new ReadableStream({ pull: hang });
  const upload = rejection(semel.fetch("/things", { method: "POST", body, duplex: "half" }));
  await new Promise((resolve) => setTimeout(resolve, 10));
  await semel.close();
  is(await within(upload, "fetch"), "TypeError");
  assert.deepEqual([store.log, server.calls], [[["load"]], []]);
});

test("close at any moment after the body was read settles the call", async (t) => {
  const { cancel } = ReadableStreamDefaultReader.prototype;
  for (let turns = 0; turns < 12; turns += 1) {
    const { semel } = await outbox(t);
    const closeLater = async () => {
      for (let turn = 0; turn < turns; turn += 1) await undefined;
      await semel.close();
    };
    // The SDK calls this once it has read a body.
    const read = t.mock.method(ReadableStreamDefaultReader.prototype, "cancel", function () {
      closeLater();
      return cancel.call(this);
    });
    const error = await within(rejection(deposit(semel, "a", { body: "body" })), `close ${turns} turns after the body was read`, 5_000);
    read.mock.restore();
    is(error, "TypeError", "ClosedError");
  }
});

test("close settles a read that is under way, whose fetch ignores its signal, or that waits for headers", async (t) => {
  const server = new Stub();
  server.each = hang;
  const { semel: one } = await outbox(t, { server });
  const { semel: deaf } = await outbox(t, { fetch: hang });
  const { semel: waits } = await outbox(t, { server, headers: hang });
  const reads = Object.entries({ one, deaf, waits }).map(([name, semel]) => [name, semel, rejection(semel.fetch("/accounts/a"))]);
  await until(() => server.calls.length === 1, "one was sent");
  for (const [name, semel, read] of reads) {
    await semel.close();
    is(await within(read, name, 5_000), "TypeError", "AbortError");
  }
  assert.equal(server.calls.length, 1);
});

test("after close every call rejects or does nothing, and nothing is sent", async (t) => {
  const minute = minutes(t);
  const store = new Rows();
  const headers = t.mock.fn(() => ({}));
  const { semel, server } = await outbox(t, { store, headers });
  await semel.close();
  await semel.close();
  assert.equal(store.closed, 1, "once");
  is(await rejection(deposit(semel)), "TypeError");
  is(await rejection(semel.fetch("/accounts/a")), "TypeError");
  is(await rejection(semel.pending()), "TypeError");
  semel.resume();
  semel.onrecovered = () => {};
  semel.onpaused = () => {};
  await minute();
  assert.deepEqual([server.calls, store.log, headers.mock.callCount()], [[], [["load"]], 0]);
});

test("after close nothing is sent, even if a headers function answers only then", async (t) => {
  const minute = minutes(t);
  const server = new Stub();
  let answer;
  const headers = () => new Promise((resolve) => (answer = resolve));
  const deaf = (url, init) => server.fetch(url, { ...init, signal: undefined });
  const { semel } = await outbox(t, { server, headers, fetch: deaf });
  const waiting = rejection(deposit(semel));
  await until(() => answer, "headers are asked for");
  await semel.close();
  answer({});
  assert.equal((await waiting).code, "closed");
  await minute();
  assert.deepEqual(server.calls, []);
});

test("after close resume and giveUp of a pause, and the call's signal, do nothing", async (t) => {
  const minute = minutes(t);
  const told = [];
  const { semel, server } = await outbox(t, { onpaused: (paused) => told.push(paused) });
  server.each = (call, serve) => (call.kind === "change" ? server.problem(call.key, 403, "forbidden", { executed: "no", retry: "after-fix" }) : serve());
  const giveUp = new AbortController();
  const waiting = rejection(deposit(semel, "a", { signal: giveUp.signal }));
  const [paused] = await until(() => told.length > 0 && told, "it pauses");
  await semel.close();
  assert.equal((await waiting).code, "closed");
  paused.resume();
  paused.giveUp();
  giveUp.abort();
  await minute();
  assert.deepEqual([server.attempts.length, server.of("cancel").length], [1, 0]);
});

/** A store with 40 requests of a closed outbox, more than are sent at the same time. */
async function manyLeft(t) {
  const [store, server] = [new Rows(), new Stub()];
  const { semel } = await outbox(t, { store, server });
  server.each = (call, serve) => (call.kind === "change" ? hang() : serve());
  const left = Array.from({ length: 40 }, (_, n) => rejection(deposit(semel, `a${n}`)));
  await until(() => store.rows.size === 40, "all are stored");
  await semel.close();
  await Promise.all(left);
  return { store, server };
}

test("an onrecovered that closes the outbox is not called again, and nothing is stored or sent after that", async (t) => {
  const { store, server } = await manyLeft(t);
  const opened = {};
  server.each = async (call, serve) => {
    await until(() => opened.semel, "it is open");
    return serve();
  };
  let called = 0;
  const onrecovered = () => {
    called += 1;
    return opened.semel.close();
  };
  let late = 0;
  const change = store.change;
  store.change = function (...of) {
    late += this.closed - 1;
    return change.apply(this, of);
  };
  opened.semel = (await outbox(t, { store, server, onrecovered })).semel;
  await until(() => called > 0, "one is recovered");
  const sent = server.calls.length;
  await new Promise((resolve) => setTimeout(resolve, 40));
  assert.deepEqual({ called, late, sent: server.calls.length - sent }, { called: 1, late: 0, sent: 0 });
});

test("an onrecovered that closes the outbox does not get the other kept answers, and the next open recovers them", async (t) => {
  const { store, server } = await manyLeft(t);
  server.each = (_call, serve) => serve();
  const { semel } = await outbox(t, { store, server });
  await until(async () => (await semel.pending()).every(({ state }) => state === "answered"), "all are answered");
  const first = [];
  semel.onrecovered = ({ requestId }) => {
    first.push(requestId);
    return semel.close();
  };
  // An answer that the handler got after that would be recovered twice, because a closed outbox can't tell the store.
  assert.equal(first.length, 1);
  const again = [];
  await outbox(t, { store, server, onrecovered: ({ requestId }) => void again.push(requestId) });
  await until(() => again.length >= 39, "the others are recovered");
});

test("a store can be opened again after close, several times", async (t) => {
  const store = new Rows();
  const server = new Stub();
  for (let n = 0; n < 3; n += 1) {
    const { semel } = await outbox(t, { store, server });
    assert.equal((await deposit(semel)).status, 200);
    await until(async () => (await semel.pending()).length === 0, "it is settled");
    await semel.close();
  }
  assert.deepEqual([store.closed, server.runs.size], [3, 3]);
});

test("a process ends by itself once its outbox is closed or has nothing to do", async () => {
  const script = (end) => `
    // What would hold it up is the time in which an acknowledgement looks for a ride: a timer that rings. To start takes as long as it takes, and so does all else.
    const { setTimeout: set } = globalThis;
    globalThis.setTimeout = (act, ms, ...more) => set(() => (ms >= 4_000 && console.error("after", ms, "ms"), act(...more)), ms);
    const { Stub, URL_OF_STUB } = await import(${JSON.stringify(new URL("./stub.mjs", import.meta.url).href)});
    const { Semel } = await import(${JSON.stringify(new URL("../../sdk/npm/node.js", import.meta.url).href)});
    const server = new Stub();
    const semel = await Semel.open({ url: URL_OF_STUB, fetch: server.fetch, durability: "memory" });
    ${end}
  `;
  const closed = `
    await semel.fetch("/accounts/a/deposit", { method: "POST" });
    server.each = () => new Promise(() => {});
    semel.fetch("/accounts/a/deposit", { method: "POST" }).catch(() => {});
    setTimeout(() => semel.close(), 20);
  `;
  for (const end of [closed, "await semel.fetch('/accounts/a');"]) {
    const { stdout, stderr } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script(end)], { timeout: 30_000 });
    assert.deepEqual({ stdout, stderr }, { stdout: "", stderr: "" });
  }
});

test("close leaves no timer behind", async () => {
  const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
  const server = new Stub();
  const before = timers();
  const semel = await Semel.open({ url: URL_OF_STUB, fetch: server.fetch, durability: "memory" });
  await deposit(semel);
  await semel.close();
  assert.equal(timers(), before);
});
