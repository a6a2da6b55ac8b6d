// Tests opening an outbox: wrong options are refused before anything is stored or sent, and a store or a module that can't be used is reported.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { Semel, StoreError } from "../../sdk/npm/node.js";
import entry from "../../sdk/npm/semel.js";
import { SessionStub } from "./session-stub.mjs";
import { Rows, Stub, URL_OF_STUB, deposit, is, minutes, outbox, rejection, within } from "./stub.mjs";

test("open refuses a url that is not an http or https origin", async () => {
  for (const url of [undefined, null, "", "worker.test", "/", "ftp://worker.test", "file:///worker", "blob:https://worker.test/1", "https://worker.test/api", "https://worker.test/?a=1", {}, 5]) {
    const store = new Rows();
    const server = new Stub();
    is(await rejection(Semel.open({ url, store, fetch: server.fetch })), "TypeError");
    assert.deepEqual([store.log, store.closed, server.calls], [[], 0, []]);
  }
});

test("open without options says that the url is missing", async () => {
  const error = await rejection(Semel.open());
  is(error, "TypeError");
  assert.match(error.message, /^semel: url /);
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
