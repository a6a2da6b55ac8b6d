// Tests callers that wait for a store that never answers: each is told so, and none is told that something was not done if nobody can know that.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Semel, StoreError } from "../../sdk/npm/node.js";
import * as sessions from "./session-stub.mjs";
import { Rows, Stub, URL_OF_STUB, deposit, hang, outbox, rejection, until, within } from "./stub.mjs";

const STORE_MS_MAX = 30_000;
/** A test that takes longer hangs. */
const LIMIT = { timeout: 9_000 };

/** Stops all timers. The function that this returns advances them by 1 ms a turn until `isMet`, and then by `ms`. */
function holdTimers(t) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  return async (isMet, ms = 0) => {
    for (let turn = 0; !isMet(); turn = 1) {
      t.mock.timers.tick(turn);
      await new Promise((resolve) => setImmediate(resolve));
    }
    t.mock.timers.tick(ms);
  };
}

/** The result of a promise that a test must not await, as it may never settle: empty until then. */
function watched(promise) {
  const seen = {};
  promise.then(
    (value) => Object.assign(seen, { value }),
    (error) => Object.assign(seen, { error }),
  );
  return seen;
}

/** Waits long enough that something would have come. */
async function turns() {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** Checks that a call rejects with `store-blocked` after the limit, and no sooner, once the store was asked. */
async function isBlocked(pass, seen, wasAsked) {
  await pass(wasAsked, STORE_MS_MAX - 1);
  await turns();
  assert.deepEqual(seen, {}, "it waits");
  await pass(() => true, 1);
  await pass(() => seen.error ?? seen.value);
  assert.ok(seen.error instanceof StoreError, String(seen.error));
  assert.equal(seen.error.code, "store-blocked");
  assert.match(seen.error.message, /no answer: another tab may have it/);
}

/** A store whose function `name` never answers until `answer()`, and how often its owner has left. */
function deaf(name) {
  const store = new Rows();
  const told = { left: 0, answer: undefined };
  const never = () => new Promise((resolve) => (told.answer = resolve));
  store.load = name === "load" ? never : async () => (store.closed ? Promise.reject(new Error("it is closed")) : []);
  const alive = name === "alive" ? never : () => [];
  const presence = { alive, leave: () => void (told.left += 1) };
  store.presence = name === "presence" ? never : () => presence;
  const answers = { load: [], alive: [], presence };
  return { store, told, answer: () => told.answer(answers[name]) };
}

for (const name of ["load", "presence", "alive"]) {
  test(`open rejects with store-blocked after 30 seconds if the store does not answer: ${name}`, LIMIT, async (t) => {
    const pass = holdTimers(t);
    const { store, told, answer } = deaf(name);
    const server = new Stub();
    await isBlocked(pass, watched(Semel.open({ url: URL_OF_STUB, fetch: server.fetch, store })), () => told.answer);
    assert.deepEqual([store.closed, server.calls], [1, []]);
    // An answer that comes late is let go, once.
    answer();
    await pass(() => told.left > 0);
    await turns();
    assert.equal(told.left, 1);
  });

  test(`session rejects with store-blocked after 30 seconds if its store does not answer: ${name}`, LIMIT, async (t) => {
    const { semel, server } = await sessions.outbox(t);
    const { store, told, answer } = deaf(name);
    const pass = holdTimers(t);
    await isBlocked(pass, watched(semel.session("accounts/a", "s", { store })), () => told.answer);
    assert.deepEqual([store.closed, server.effects], [1, []]);
    // A session that could not read the rows has not announced that it lives.
    if (name === "load") return;
    answer();
    await pass(() => told.left > 0);
    await turns();
    assert.equal(told.left, 1);
  });
}

test("pending of an outbox, a session or both rejects with store-blocked if the store does not answer, and both go on", LIMIT, async (t) => {
  const { semel } = await sessions.outbox(t);
  const own = new sessions.SharedRows();
  const session = await semel.session("accounts/a", "s", { store: own });
  const slow = new Rows();
  const { semel: other, server } = await outbox(t, { store: slow });
  let asked = 0;
  for (const store of [own, slow]) store.load = () => hang((asked += 1));
  const pass = holdTimers(t);
  const [one, ...others] = [session, other, semel].map((each) => watched(each.pending()));
  await isBlocked(pass, one, () => asked === 3);
  assert.deepEqual(others.map(({ error }) => error.code), ["store-blocked", "store-blocked"]);
  t.mock.timers.reset();
  assert.equal((await deposit(other)).status, 200);
  assert.equal(server.runs.size, 1);
  assert.equal((await sessions.deposit(session, "x")).status, 200);
});

test("close clears all timers for stores that never answer", LIMIT, async (t) => {
  const slow = new Rows();
  const { semel } = await sessions.outbox(t, { store: slow });
  const own = new sessions.SharedRows();
  const session = await semel.session("accounts/a", "s", { store: own });
  for (const store of [slow, own]) store.load = hang;
  const deaves = ["load", "presence", "alive"].map((name) => deaf(name));
  const { setTimeout: set, clearTimeout: clear } = globalThis;
  const running = new Set();
  t.mock.method(globalThis, "setTimeout", (act, ms, ...rest) => {
    const timer = set(act, ms, ...rest);
    // The SDK waits for a store in two halves.
    if (ms === STORE_MS_MAX / 2) running.add(timer);
    return timer;
  });
  t.mock.method(globalThis, "clearTimeout", (timer) => {
    running.delete(timer);
    clear(timer);
  });
  const waiting = [semel.pending(), session.pending(), ...deaves.map(({ store }, index) => semel.session("accounts/a", `deaf-${index}`, { store }))].map(rejection);
  await until(() => deaves.every(({ told }) => told.answer), "all wait for a store");
  // `pending()` of the outbox asks its session as well.
  assert.equal(running.size, 6);
  await semel.close();
  await Promise.all(waiting);
  assert.equal(running.size, 0);
});

test("a request at a store that never answers is not sent, and unknown after giveUpAfterMs or close", LIMIT, async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store, giveUpAfterMs: 20 });
  store.before = hang;
  const gaveUp = await rejection(deposit(semel));
  assert.deepEqual([gaveUp.code, gaveUp.executed], ["gave-up", "unknown"]);
  const { semel: patient } = await outbox(t, { store, server });
  const waiting = rejection(deposit(patient));
  await until(() => patient.getSnapshot().pending === 1, "it is in hand");
  await patient.close();
  const { code, executed } = await waiting;
  assert.deepEqual([code, executed, server.attempts], ["closed", "unknown", []]);
});

for (const isAborted of [false, true]) {
  test(`a request with its own id that is ${isAborted ? "aborted" : "refused"} at a slow store is recovered as unknown after its caller left`, LIMIT, async (t) => {
    const store = new Rows();
    const { semel } = await outbox(t, { store, giveUpAfterMs: 20 });
    const recovered = new Promise((resolve) => (semel.onrecovered = resolve));
    let goesOn;
    const isSlow = new Promise((resolve) => (goesOn = resolve));
    store.before = async () => {
      await isSlow;
      if (!isAborted) throw new Error("the disk is gone");
    };
    const stop = new AbortController();
    const waiting = rejection(deposit(semel, "a", { id: "order-7", signal: stop.signal }));
    await until(() => semel.getSnapshot().pending === 1, "it is in hand");
    if (isAborted) stop.abort();
    assert.equal((await waiting).code, "gave-up");
    goesOn();
    const { requestId, error } = await recovered;
    assert.deepEqual([requestId, error.executed, error.retry], ["order-7", "unknown", "same-id"]);
  });
}

test("outcome at a store that never answers ends by its signal", LIMIT, async (t) => {
  const store = new Rows();
  const { semel } = await outbox(t, { store });
  store.before = hang;
  const stop = new AbortController();
  const waiting = rejection(semel.outcome("x", { signal: stop.signal }));
  stop.abort();
  assert.equal((await waiting).name, "AbortError");
});

test("a read ends by its signal if its headers never come", LIMIT, async (t) => {
  const { semel } = await outbox(t, { headers: hang });
  const stop = new AbortController();
  const waiting = rejection(semel.fetch("/accounts/a", { signal: stop.signal }));
  stop.abort();
  assert.equal((await within(waiting, "the read", 5_000)).name, "AbortError");
});
