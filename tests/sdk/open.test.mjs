// Tests opening and closing an outbox: wrong options are refused, and no caller waits for ever.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { promisify } from "node:util";
import { OutcomeUnknownError, Semel, StoreError } from "../../sdk/npm/node.js";
import entry from "../../sdk/npm/semel.js";
import { SessionStub } from "./session-stub.mjs";
import { Rows, Stub, URL_OF_STUB, deposit, hang, lost, minutes, outbox, rejection, until, within } from "./stub.mjs";

/** Checks the class of an error by its name, from whichever module it comes. */
const is = (error, ...names) => assert.ok(names.includes(error?.name), `${names.join(" or ")} was expected, and it is ${error}`);

test("open refuses a url that is not an http or https origin", async () => {
  for (const url of [undefined, null, "", "worker.test", "/", "ftp://worker.test", "file:///worker", "blob:https://worker.test/1", "https://worker.test/api", "https://worker.test/?a=1", {}, 5]) {
    const store = new Rows();
    const server = new Stub();
    is(await rejection(Semel.open({ url, store, fetch: server.fetch })), "TypeError");
    assert.deepEqual([store.log, store.closed, server.calls], [[], 0, []]);
  }
});

test("open takes an origin in each of its forms, and sends to it", async (t) => {
  for (const [url, origin] of [
    ["https://worker.test", "https://worker.test"],
    ["https://worker.test/", "https://worker.test"],
    [new URL("https://worker.test"), "https://worker.test"],
    ["HTTPS://Worker.Test:443", "https://worker.test"],
    ["http://127.0.0.1:8787", "http://127.0.0.1:8787"],
  ]) {
    const { semel, server } = await outbox(t, { url });
    assert.equal((await deposit(semel)).url, `${origin}/accounts/a/deposit`);
    assert.deepEqual(new Set(server.calls.map((call) => call.origin)), new Set([origin]));
  }
});

test("a module of another build is reported before anything is stored or sent", async () => {
  const [store, server] = [new Rows(), new Stub()];
  const Mixed = entry(() => readFile(new URL("../../sdk/npm/session.wasm", import.meta.url)));
  const error = await rejection(Mixed.open({ url: URL_OF_STUB, store, fetch: server.fetch }));
  is(error, "TypeError");
  assert.equal(error.message, "semel: reload: it is newer");
  assert.deepEqual([store.log, store.closed, server.calls], [[], 0, []]);
});

test("a module that failed to load is fetched again at the next open, and only until it is loaded", async (t) => {
  const module = t.mock.fn(() => readFile(new URL("../../sdk/npm/semel.wasm", import.meta.url)));
  module.mock.mockImplementationOnce(() => Promise.reject(new Error("no network")));
  const Late = entry(module);
  const open = () => Late.open({ url: URL_OF_STUB, durability: "memory", fetch: new Stub().fetch });
  assert.equal((await rejection(open())).message, "no network");
  for (let n = 0; n < 2; n += 1) await (await open()).close();
  assert.equal(module.mock.callCount(), 2);
});

const WRONG = {
  identity: [5, null, {}, ["alice"], "ä", "a\nb", "x".repeat(256)],
  headers: ["x", 5, [["a"]], { "not a name": "x" }, { x: "a\nb" }, { then() {} }],
  retryIntervalMs: [0, 9, -1, NaN, Infinity, "1000", {}],
  attemptTimeoutMs: [0, 99, 100_001, NaN, Infinity, "1000"],
  giveUpAfterMs: [-1, NaN, "1000", {}, -Infinity],
  maxPending: [0, 1_001, NaN, Infinity, "1"],
  maxAttempts: [0, 1_001, NaN, Infinity, "1"],
  salt: [null, {}, Symbol("salt"), true],
  fetch: [5, "fetch", {}, null],
  store: [5, null, {}, new Map(), { load() {}, change() {} }, { load() {}, remove() {} }, { load() {}, change: 1, remove() {} }],
  durability: ["", "Strict", "none", null, 5, {}],
  onrecovered: [5, "handler", {}],
  onpaused: [5, "handler", {}],
  retryInterval: [1000],
  Headers: [{}],
  onRecovered: [() => {}],
  timeout: [undefined],
};

for (const [name, values] of Object.entries(WRONG)) {
  test(`open refuses a wrong ${name} before it touches the store or the network`, async () => {
    for (const value of values) {
      const store = new Rows();
      const server = new Stub();
      const error = await rejection(
        Semel.open({ url: URL_OF_STUB, store, fetch: server.fetch, [name]: value }).then(async (semel) => {
          await semel.close();
          assert.fail(`${name} ${String(value)} was accepted`);
        }),
      );
      is(error, "TypeError", "RangeError");
      // An error of the runtime about headers can't name the option.
      if (name !== "headers") assert.match(error.message, new RegExp(name === "identity" ? "identity|principal" : name, "i"));
      assert.deepEqual([store.log, store.closed, server.calls], [[], 0, []]);
    }
  });
}

test("open accepts options at their limits", async (t) => {
  for (const options of [
    { retryIntervalMs: 10, attemptTimeoutMs: 100, giveUpAfterMs: 60_000 },
    { retryIntervalMs: 60_000, attemptTimeoutMs: 100_000, giveUpAfterMs: Infinity },
    { retryIntervalMs: undefined, attemptTimeoutMs: undefined, giveUpAfterMs: undefined, onrecovered: undefined, onpaused: undefined, store: undefined },
    { identity: "x".repeat(255), onrecovered: null, onpaused: null, headers: undefined },
    { durability: "memory", maxPending: 1, maxAttempts: 1 },
    { maxPending: 1_000, maxAttempts: 1_000 },
  ]) {
    const { semel } = await outbox(t, options);
    assert.equal((await deposit(semel)).status, 200);
  }
});

test("in a browser, open and session() name the missing module's address, and the next try may load it", async (t) => {
  const isThere = new Set();
  const bytesOf = (url) => readFile(new URL(url));
  t.mock.method(globalThis, "fetch", async (url) => {
    const name = new URL(url).pathname.split("/").at(-1);
    const response = isThere.has(name) ? new Response(await bytesOf(url)) : new Response("<h1>404</h1>", { status: 404 });
    return Object.defineProperty(response, "url", { value: `https://page.test/${name}` });
  });
  const { Semel } = await import("../../sdk/npm/index.js");
  const server = new SessionStub();
  const open = () => Semel.open({ url: URL_OF_STUB, fetch: server.fetch, durability: "memory" });
  assert.equal((await rejection(open())).message, "semel: https://page.test/semel.wasm answers 404");
  isThere.add("semel.wasm");
  const semel = await open();
  t.after(() => semel.close());
  assert.equal((await rejection(semel.session("accounts/a", "s"))).message, "semel: https://page.test/session.wasm answers 404");
  isThere.add("session.wasm");
  assert.equal((await semel.session("accounts/a", "s")).epoch, 1);
});

test("open without options, or without a valid url, is a TypeError", async () => {
  for (const nothing of [undefined, null, {}]) is(await rejection(Semel.open(nothing)), "TypeError");
  assert.equal((await rejection(Semel.open({}))).message, "semel: url is an http or https origin", "what is missing is told");
  assert.equal((await rejection(Semel.open({ url: "api.example.com" }))).message, "semel: url is an http or https origin", "so is what lacks its https://");
});

test("without IndexedDB open on the default, strict or relaxed durability is store-unavailable, and sends nothing", async () => {
  assert.equal(globalThis.indexedDB, undefined);
  for (const durability of [undefined, "strict", "relaxed"]) {
    const server = new Stub();
    const error = await within(rejection(Semel.open({ url: URL_OF_STUB, fetch: server.fetch, durability })), "open");
    assert.ok(error instanceof StoreError && error.code === "store-unavailable" && /IndexedDB/.test(error.message), String(error));
    assert.deepEqual(server.calls, []);
  }
});

test("open on an IndexedDB that answers leaves no timer behind", async (t) => {
  t.after(() => delete globalThis.indexedDB);
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
  const before = timers();
  globalThis.indexedDB = {
    open: () => {
      const request = { error: new DOMException("it is newer", "VersionError") };
      queueMicrotask(() => request.onerror());
      return request;
    },
  };
  const error = await within(rejection(Semel.open({ url: URL_OF_STUB, fetch: new Stub().fetch })), "open");
  assert.deepEqual([error.code, timers()], ["store-newer", before]);
});

test("open sends nothing if nothing was left, and rejects with the error of its store, which it closes", async (t) => {
  const minute = minutes(t);
  const { server } = await outbox(t, { store: new Rows() });
  await minute();
  assert.deepEqual(server.calls, []);
  const thrown = new Error("no disk");
  for (const load of [() => Promise.reject(thrown), () => {
    throw thrown;
  }]) {
    const store = Object.assign(new Rows(), { load });
    assert.equal(await rejection(Semel.open({ url: URL_OF_STUB, fetch: server.fetch, store })), thrown);
    assert.equal(store.closed, 1, "the store is closed");
  }
});

test("open on a store whose rows it can't read is store-damaged, sends nothing and changes nothing", async () => {
  const strange = [
    [["id", new Uint8Array([99, 0, 0])]],
    [["id", new Uint8Array()]],
    [["id", "text"]],
    [["id", undefined]],
    [[5, new Uint8Array([1])]],
    [undefined],
    undefined,
    {},
  ];
  for (const loaded of strange) {
    const store = Object.assign(new Rows(), { load: async () => loaded });
    const server = new Stub();
    const error = await within(rejection(Semel.open({ url: URL_OF_STUB, fetch: server.fetch, store })), "open");
    assert.deepEqual([error.name, error.code], ["StoreError", "store-damaged"]);
    assert.deepEqual([store.log, server.calls], [[], []]);
  }
});

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
    const { code, executed, retry } = error;
    assert.deepEqual({ code, executed, retry }, { code: "closed", executed: "unknown", retry: "same-id" });
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

test("many calls at once cause no warning of the runtime", async (t) => {
  const warned = [];
  const listener = (warning) => warned.push(warning.message);
  process.on("warning", listener);
  t.after(() => process.off("warning", listener));
  const { semel } = await outbox(t);
  await Promise.all(Array.from({ length: 60 }, (_, n) => (n % 2 ? deposit(semel) : semel.fetch("/accounts/a"))));
  await new Promise((resolve) => setTimeout(resolve, 10));
  assert.deepEqual(warned, []);
});

test("a thousand requests may be pending, and one more is outbox-full and never ran", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  server.each = (call, serve) => (call.kind === "change" ? hang() : serve());
  // CPU time, so that other work of a busy machine doesn't count.
  const before = process.cpuUsage();
  const waiting = Array.from({ length: 1_000 }, () => rejection(deposit(semel)));
  const error = await rejection(deposit(semel));
  const { user, system } = process.cpuUsage(before);
  const tookMs = (user + system) / 1000;
  const { name, code, executed, retry } = error;
  assert.deepEqual({ name, code, executed, retry }, { name: "OutboxFullError", code: "outbox-full", executed: "no", retry: "never" });
  await until(() => store.rows.size === 1_000 && server.attempts.length > 0, "all are stored, and some sent");
  assert.equal((await semel.pending()).length, 1_000);
  await semel.close();
  assert.equal(store.rows.size, 1_000);
  assert.ok(server.attempts.every(({ id }) => store.rows.has(id)));
  assert.equal((await Promise.all(waiting)).filter((each) => each.code === "closed").length, 1_000);
  assert.ok(tookMs < 3_000, `${Math.round(tookMs)} ms, in which a page would stand still`);
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
