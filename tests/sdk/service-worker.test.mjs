// Tests what `semel/service-worker` does at an event of a service worker, for which a stub stands in.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { leavePage, page } from "./page-stub.mjs";
import { Rows, Stub, URL_OF_STUB, clock, deposit, hang, lost, outbox, problem, rejection, until, within } from "./stub.mjs";

const PACKAGE = new URL("../../sdk/npm/", import.meta.url);

/**
 * A service worker whose outbox has a request that a page left unsent, or that the page still has (`stays`). `say` gives it a message or a sync
 * event, and returns the promise that the event waits for.
 */
async function woken(t, { stays = false, ...more } = {}) {
  const [store, server, heard, owners] = [new Rows(), new Stub(), new Map(), new Set()];
  store.presence = (owner) => (owners.add(owner), { alive: async () => [...owners], leave: () => void owners.delete(owner) });
  const { semel } = await outbox(t, { store, server });
  server.each = () => lost();
  rejection(deposit(semel)).catch(() => {});
  await until(() => semel.pending().then(({ length }) => length === 1), "it is stored");
  if (!stays) {
    await semel.close();
    server.each = (_call, serve) => serve();
  }
  t.mock.method(globalThis, "fetch", async () => new Response(await readFile(new URL("semel.wasm", PACKAGE))));
  globalThis.addEventListener = (type, act) => heard.set(type, act);
  t.after(() => delete globalThis.addEventListener);
  const { sendInBackground } = await import(new URL("service-worker.js", PACKAGE));
  sendInBackground(() => ({ url: URL_OF_STUB, fetch: server.fetch, store, retryIntervalMs: 10, ...more }));
  const say = (type, what) => {
    let waitsFor;
    heard.get(type)({ ...what, waitUntil: (promise) => (waitsFor = promise) });
    return waitsFor;
  };
  return { say, server, store };
}

test("an event waits for its own onrecovered, and no other outbox recovers that answer", async (t) => {
  let taken = 0;
  const onrecovered = async () => {
    await new Promise((resolve) => setTimeout(resolve, 600));
    taken += 1;
  };
  const { say, server, store } = await woken(t, { onrecovered });
  await within(say("sync", { tag: "semel" }), "the event");
  assert.equal(taken, 1);
  const { semel } = await outbox(t, { store, server, onrecovered: () => void (taken += 1) });
  assert.deepEqual([await semel.pending(), taken], [[], 1]);
});

test("an event waits for onpaused, which may fetch what is missing and resume", async (t) => {
  let taken = 0;
  const onpaused = async ({ resume }) => {
    await new Promise((go) => setTimeout(go, 600));
    server.each = (_call, serve) => serve();
    resume();
  };
  const { say, server } = await woken(t, { onpaused, onrecovered: () => void (taken += 1) });
  server.each = (call, serve) => (call.kind === "change" ? problem(401, "unauthorized", { executed: "no", retry: "after-fix" }) : serve());
  await within(say("sync", { tag: "semel" }), "the event");
  assert.equal(taken, 1);
});

test("a sync event rejects while a tab still has a request, so that the browser tries again", async (t) => {
  const later = clock(t);
  const { say } = await woken(t, { stays: true });
  const sending = rejection(say("sync", { tag: "semel" }));
  later(10_001);
  assert.match((await sending).message, /not all is answered/);
});

test("a page's message is handled like a sync event, which ends as soon as a page is there", async (t) => {
  const { say, server } = await woken(t);
  server.each = (call, serve) => (call.kind === "change" ? hang() : serve());
  const sending = rejection(say("message", { data: "semel" }));
  await until(() => server.attempts.some(({ endedMs }) => endedMs === undefined), "it is under way");
  assert.equal(say("message", { data: "another's" }), undefined);
  say("message", { data: "semel here" });
  assert.match((await sending).message, /not all is answered/);
});

test("a sync event during another joins it, and one after it starts anew", async (t) => {
  const { say, server } = await woken(t);
  server.each = (call, serve) => (call.kind === "change" ? hang() : serve());
  const [first, second] = [{ tag: "semel" }, { tag: "semel" }].map((event) => say("sync", event));
  assert.equal(first, second);
  const ended = rejection(first);
  say("message", { data: "semel here" });
  await ended;
  server.each = (_call, serve) => serve();
  await within(say("sync", { tag: "semel" }), "the next event");
  assert.equal(server.runs.size, 1);
});

test("an event that comes while another finds the store empty ends only once the new request is sent", async (t) => {
  const { say, server, store } = await woken(t, { onrecovered: () => {} });
  let finish;
  server.each = (call, serve) => (call.kind === "change" ? new Promise((resolve) => (finish = () => resolve(serve()))) : serve());
  const first = say("sync", { tag: "semel" });
  await until(() => finish, "it is under way");
  const { load } = store;
  let goOn;
  store.load = async function () {
    const rows = await load.call(this);
    // The stored body leaves the store with the answer.
    if (!store.holds("amount")) await new Promise((resolve) => (goOn = resolve));
    return rows;
  };
  finish();
  await until(() => goOn, "it has read that nothing is left");
  // A page makes a call, and is gone.
  const { semel } = await outbox(t, { server, store: { __proto__: store, load: () => load.call(store) } });
  rejection(deposit(semel)).catch(() => {});
  await until(() => store.holds("amount"), "it is stored");
  await semel.close();
  server.each = (_call, serve) => serve();
  const second = say("sync", { tag: "semel" });
  Object.assign(store, { load });
  goOn();
  await within(Promise.all([first, second]), "the events");
  assert.deepEqual([...server.runs.values()], [1, 1]);
});

test("an event waits for onrecovered longer than it waits for a tab", async (t) => {
  const later = clock(t);
  let take;
  const { say, store } = await woken(t, { onrecovered: () => new Promise((resolve) => (take = resolve)) });
  const sending = say("sync", { tag: "semel" });
  await until(() => take, "it is told");
  later(10_001);
  const looks = store.log.filter(([what]) => what === "load").length;
  await until(() => store.log.filter(([what]) => what === "load").length > looks + 1, "it has looked twice");
  take();
  await within(sending, "the event");
});

/** A page with a service worker: the messages that it posts, the syncs that it asks for, and `hear`, which gives it an event. */
function asking(t, { sync = true, hidden = false, register = async () => {} } = {}) {
  const [messages, tags, heard, replaced] = [[], [], new EventTarget(), Object.getOwnPropertyDescriptor(globalThis, "navigator")];
  const registration = { active: { postMessage: (text) => messages.push(text) }, sync: sync ? { register: (tag) => (tags.push(tag), register()) } : undefined };
  Object.defineProperty(globalThis, "navigator", { value: { serviceWorker: { ready: Promise.resolve(registration) } }, configurable: true });
  globalThis.document = { hidden };
  globalThis.addEventListener = heard.addEventListener.bind(heard);
  t.after(() => {
    delete globalThis.navigator;
    if (replaced) Object.defineProperty(globalThis, "navigator", replaced);
    delete globalThis.document;
    delete globalThis.addEventListener;
  });
  return { messages, tags, hear: (type) => heard.dispatchEvent(new Event(type)) };
}

test("a page that opens offline with a pending request asks for a sync at once", async (t) => {
  const { messages, tags } = asking(t);
  const { askToSendInBackground } = await import(new URL("service-worker.js", PACKAGE));
  askToSendInBackground({ addEventListener() {}, subscribe: (act) => act(), getSnapshot: () => ({ pending: 1, online: false }) });
  await until(() => tags.length > 0, "it asks");
  assert.deepEqual([messages, tags], [["semel here", "semel"], ["semel"]]);
});

test("an online page asks for a sync when it is hidden and has a request pending, even if the browser refuses", async (t) => {
  const { messages, tags, hear } = asking(t, { register: () => Promise.reject(new Error("not allowed")) });
  const { askToSendInBackground } = await import(new URL("service-worker.js", PACKAGE));
  let pending = 1;
  askToSendInBackground({ addEventListener() {}, subscribe: (act) => act(), getSnapshot: () => ({ pending, online: true }) });
  await until(() => messages.length > 0, "it says that it is there");
  hear("visibilitychange");
  assert.deepEqual(tags, []);
  document.hidden = true;
  hear("visibilitychange");
  hear("pagehide");
  pending = 0;
  hear("pagehide");
  assert.deepEqual([messages, tags], [["semel here", "semel", "semel"], ["semel", "semel"]]);
  await new Promise((resolve) => setImmediate(resolve));
});

test("without Background Sync a page sends its service worker no message", async (t) => {
  const { messages, hear } = asking(t, { sync: false, hidden: true });
  const { askToSendInBackground } = await import(new URL("service-worker.js", PACKAGE));
  askToSendInBackground({ addEventListener() {}, subscribe: (act) => act(), getSnapshot: () => ({ pending: 1, online: false }) });
  await new Promise((resolve) => setImmediate(resolve));
  hear("pagehide");
  assert.deepEqual(messages, []);
});

test("a page stops listening once its outbox is closed, even if the service worker is there only later", async (t) => {
  const { askToSendInBackground } = await import(new URL("service-worker.js", PACKAGE));
  page();
  t.after(leavePage);
  const [{ semel }, { semel: early }] = [await outbox(t), await outbox(t)];
  const [listening, said] = [new Set(), []];
  globalThis.addEventListener = (type, _act, { signal, capture } = {}) => {
    if (signal?.aborted) return;
    listening.add(type);
    signal?.addEventListener("abort", () => listening.delete(type));
    assert.ok(capture, "on the way to the document");
  };
  let arrive;
  navigator.serviceWorker = { ready: new Promise((resolve) => (arrive = resolve)) };
  for (const each of [semel, early]) askToSendInBackground(each);
  await early.close();
  arrive({ sync: { register: async () => {} }, active: { postMessage: (what) => said.push(what) } });
  await until(() => said.length, "there is a service worker");
  assert.deepEqual([said, [...listening]], [["semel here"], ["visibilitychange", "pagehide"]]);
  await semel.close();
  assert.deepEqual([...listening], []);
});
