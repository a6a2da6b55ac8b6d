// Tests how an outbox takes over what others left, and its ids, at the JavaScript that drives the wasm module: a test tells it which owners live.

import assert from "node:assert/strict";
import { test } from "node:test";
import { left, tab } from "./machine.mjs";
import * as sessions from "./session-stub.mjs";
import { Rows, Stub, clock, deposit, lost, minutes, outbox, rejection, until } from "./stub.mjs";

test("a request of an owner that is gone is sent once it is taken over, under its id, and recovered once", async (t) => {
  const minute = minutes(t);
  const [store, server] = [new Rows(), new Stub()];
  await left(t, store, "gone", "id-left");
  const own = tab(t, { store, server });
  await minute();
  assert.deepEqual(server.calls, [], "not before");
  assert.deepEqual(await own.takesOver([]), ["gone"]);
  await until(() => own.delivered.length > 0, "it is delivered");
  assert.deepEqual(own.delivered, [{ id: "id-left", isAwaited: false, status: 200, code: undefined, executed: undefined }]);
  assert.deepEqual(server.attempts.map(({ id, body }) => [id, body]), [["id-left", "\x01"]]);
});

test("a request of an owner that lives is left to it", async (t) => {
  const minute = minutes(t);
  const [store, server] = [new Rows(), new Stub()];
  await left(t, store, "lives", "id-left");
  const row = store.rows.get("id-left");
  const own = tab(t, { store, server });
  for (const alive of [["lives"], ["own", "lives"], ["lives", "other"]]) assert.deepEqual(await own.takesOver(alive), ["lives"]);
  own.posts("id-own", "/accounts/own/deposit");
  await until(() => own.delivered.length > 0, "its own is delivered");
  await minute();
  assert.deepEqual([own.delivered.map(({ id }) => id), server.attempts.map(({ id }) => id)], [["id-own"], ["id-own"]]);
  assert.equal(store.rows.get("id-left"), row, "not touched");
  assert.deepEqual(await own.machine.overview(), [["id-left", "POST", "/accounts/left/deposit", "elsewhere", "0"]]);
});

test("requests of another identity in the same store are neither sent nor acknowledged", async (t) => {
  const minute = minutes(t);
  const [store, server] = [new Rows(), new Stub()];
  await left(t, store, "gone", "id-left");
  const alice = tab(t, { store, server, owner: "alice's" });
  alice.posts("id-settled", "/accounts/a/deposit");
  await until(() => store.log.length === 3, "it is stored, raised and settled");
  alice.machine.close();
  const rows = new Map(store.rows);
  assert.equal(rows.size, 2);
  const bob = tab(t, { store, server, database: "semel https://worker.test bob", identity: "bob" });
  await bob.takesOver([]);
  bob.posts("id-bob", "/accounts/a/deposit");
  await until(() => bob.delivered.length > 0, "his own is delivered");
  await minute();
  assert.deepEqual(server.attempts.map(({ id, acks }) => [id, acks]), [["id-settled", []], ["id-bob", []]]);
  assert.deepEqual(server.of("acks").flatMap(({ json }) => json.ids.map(({ id }) => id)), ["id-bob"], "his own alone");
  for (const [id, row] of rows) assert.equal(store.rows.get(id), row, id);
  assert.deepEqual(await bob.machine.overview(), []);
});

test("an owner that opens and writes while another loads the store is not taken for gone", async (t) => {
  const minute = minutes(t);
  const [store, others] = [new Rows(), new Rows()];
  await left(t, others, "new", "id-new");
  const own = tab(t, { store });
  let alive = [];
  store.load = async () => {
    alive = ["new"];
    store.rows = others.rows;
    return [...store.rows];
  };
  assert.deepEqual(await own.takesOver(async () => alive), ["new"]);
  await minute();
  assert.deepEqual(store.log, [], "its request was taken over");
});

test("nothing is taken over if asking which owners live fails", async (t) => {
  const minute = minutes(t);
  const [store, server] = [new Rows(), new Stub()];
  await left(t, store, "may-live", "id-left");
  const own = tab(t, { store, server });
  const thrown = new Error("no locks");
  assert.equal(await rejection(own.takesOver(() => Promise.reject(thrown))), thrown);
  await minute();
  assert.deepEqual([store.log, server.calls], [[["load"]], []]);
});

test("a request that is taken over twice at once is sent once", async (t) => {
  const minute = minutes(t);
  const [store, server] = [new Rows(), new Stub()];
  await left(t, store, "gone", "id-left");
  const own = tab(t, { store, server });
  await Promise.all([own.takesOver([]), own.takesOver([])]);
  await until(() => own.delivered.length > 0, "it is delivered");
  await minute();
  assert.deepEqual([server.attempts.length, own.delivered.length], [1, 1]);
});

test("an outbox that is closed while it looks for requests of others takes over nothing", async (t) => {
  const minute = minutes(t);
  for (const closes of ["while it loads", "while it asks"]) {
    const [store, server] = [new Rows(), new Stub()];
    await left(t, store, "gone", "id-left");
    const own = tab(t, { store, server });
    const taking = own.takesOver(async () => {
      if (closes === "while it asks") own.machine.close();
      return [];
    });
    if (closes === "while it loads") own.machine.close();
    assert.deepEqual(await taking, [], closes);
    await minute();
    assert.deepEqual([store.log, server.calls], [[["load"]], []], closes);
  }
});

test("a request whose row becomes durable after close is not sent", async (t) => {
  const minute = minutes(t);
  const [store, server] = [new Rows(), new Stub()];
  const own = tab(t, { store, server });
  let commit;
  store.before = () => new Promise((resolve) => (commit = resolve));
  own.posts("id-1", "/accounts/a/deposit");
  await until(() => commit, "it is on its way to the store");
  own.machine.close();
  commit();
  await until(() => store.log.length === 1, "the change has ended");
  await minute();
  assert.deepEqual(server.calls, []);
});

test("a row that can't be read is not overwritten, and a call under its id is store-failed", async (t) => {
  const [store, server] = [new Rows(), new Stub()];
  const newer = new Uint8Array([99, 0, 0]);
  store.rows.set("id-newer", newer);
  const own = tab(t, { store, server });
  own.posts("id-newer", "/accounts/a/deposit");
  await until(() => own.delivered.length > 0, "it is delivered");
  assert.deepEqual(own.delivered, [{ id: "id-newer", isAwaited: true, status: undefined, code: "store-failed", executed: "no" }]);
  assert.deepEqual([server.calls, store.rows.get("id-newer")], [[], newer]);
});

test("100 requests at once that are each lost once all get their own answers", async (t) => {
  const { semel, server } = await outbox(t);
  const tried = new Set();
  server.each = (call, serve) => {
    const isFirst = call.kind === "change" && !tried.has(call.id);
    tried.add(call.id);
    return isFirst ? Promise.reject(new TypeError("fetch failed")) : serve();
  };
  const accounts = Array.from({ length: 100 }, (_, n) => `many-${n}`);
  const answers = await Promise.all(accounts.map(async (account) => (await deposit(semel, account)).json()));
  assert.deepEqual(answers, accounts.map((account) => ({ ran: 1, path: `/accounts/${account}/deposit` })));
  assert.equal(server.attempts.length, 200);
});

test("once the clock is known a request is stored with its first deadline, in one transaction", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  await deposit(semel, "a");
  await until(() => store.log.filter(([what]) => what === "change").length === 3, "it is stored, raised and settled");
  const before = store.log.length;
  let logged;
  server.each = (call, serve) => {
    logged = store.log.slice(before).map(([what, , how]) => [what, how]);
    return serve();
  };
  await deposit(semel, "b");
  assert.deepEqual(logged, [["change", "put"]]);
  assert.equal(server.of("health").length, 1);
});

test("a row that is given to a store is all of its buffer", async (t) => {
  const store = new Rows();
  const { semel } = await outbox(t, { store });
  await deposit(semel);
  await until(() => store.log.filter(([what]) => what === "change").length === 3, "it is settled");
  assert.deepEqual([...store.rows.values()].map((row) => row.buffer.byteLength - row.length), [0]);
});

test("a key that was learned from an answer is not sent with the next request", async (t) => {
  const { semel, server } = await outbox(t);
  for (let n = 0; n < 2; n += 1) await deposit(semel);
  assert.deepEqual(server.attempts.map(({ headers }) => headers.has("semel-key")), [false, false]);
});

test("a giveUpAfterMs beyond the longest timer does not end a call at once", async (t) => {
  const delays = [];
  const { setTimeout: set } = globalThis;
  t.mock.method(globalThis, "setTimeout", (callback, ms, ...rest) => {
    delays.push(ms);
    return set(callback, ms, ...rest);
  });
  const { semel, server } = await outbox(t, { giveUpAfterMs: 1e12, onpaused: () => {} });
  server.each = (call, serve) => (call.kind === "change" ? server.problem("accounts/a", 401, "unauthorized", { retry: "after-fix" }) : serve());
  const answered = rejection(deposit(semel));
  await until(async () => (await semel.pending())[0]?.state === "paused", "it pauses");
  const longest = Math.max(...delays);
  assert.ok(longest > 1e9 && longest < 2 ** 31, `${longest} ms`);
  await semel.close();
  assert.equal((await answered).code, "closed", "it was not given up");
});

test("a page that has been open for two months waits for its interval like one that was just opened", async (t) => {
  clock(t)(2 ** 32);
  const set = t.mock.method(globalThis, "setTimeout");
  const { semel, server } = await outbox(t, { retryIntervalMs: 3_600_000, attemptTimeoutMs: 100, giveUpAfterMs: 2 ** 32 + 1_000 });
  server.each = (call, serve) => (call.kind === "change" ? lost() : serve());
  const made = rejection(deposit(semel));
  const last = () => set.mock.calls.at(-1)?.arguments[1];
  await until(() => server.attempts[0]?.endedMs && last() > 3_500_000 && last() <= 3_600_000, "it waits for the interval", 5_000);
  await semel.close();
  assert.equal((await made).code, "closed");
});

test("no timer is set with a negative delay, in an outbox or in a session", async (t) => {
  const delays = [];
  const { setTimeout: set } = globalThis;
  t.mock.method(globalThis, "setTimeout", (callback, ms, ...rest) => {
    delays.push(ms);
    return set(callback, ms, ...rest);
  });
  const { semel } = await outbox(t);
  assert.equal((await deposit(semel)).status, 200);
  const session = await (await sessions.outbox(t)).semel.session("accounts/a", "s");
  assert.equal((await sessions.deposit(session, "1")).status, 200);
  assert.ok(delays.length > 0);
  assert.deepEqual(delays.filter((ms) => ms !== undefined && !(ms >= 0)), []);
});

/** A page that was loaded without encryption has no `crypto.randomUUID`. */
for (const [where, randomUUID] of Object.entries({ "with crypto.randomUUID": crypto.randomUUID, "without crypto.randomUUID": undefined })) {
  test(`an id is a UUID of version 7, in lower case: its beginning is the time, the rest is random: ${where}`, (t) => {
    Object.defineProperty(crypto, "randomUUID", { value: randomUUID, configurable: true });
    t.after(() => delete crypto.randomUUID);
    const { machine } = tab(t);
    assert.equal(machine.id(new Uint8Array(16).fill(255)), "ffffffff-ffff-4fff-bfff-ffffffffffff", "of bytes it is of those, and of version 4");
    const fromMs = Date.now();
    const ids = Array.from({ length: 10_000 }, () => machine.id());
    const toMs = Date.now();
    for (const id of ids) {
      assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
      const atMs = parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
      assert.ok(fromMs <= atMs && atMs <= toMs, `${id} is of ${atMs}`);
    }
    assert.equal(new Set(ids).size, ids.length);
    for (let place = 14; place < 36; place += 1) {
      const values = new Set(ids.map((id) => id[place])).size;
      assert.equal(values, [14, 18, 23].includes(place) ? 1 : place === 19 ? 4 : 16, `at ${place}`);
    }
  });
}
