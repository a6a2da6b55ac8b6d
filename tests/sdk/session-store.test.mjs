// Tests the store of a session, against a stub of a key: what the next holder finds there, and stores that fail, or that are another's.

import assert from "node:assert/strict";
import { test } from "node:test";
import { deposit, outbox, ran, SharedRows } from "./session-stub.mjs";
import { hang, lost, problem, rejection, Rows, until, within } from "./stub.mjs";

test("the next holder sends requests left behind under their old places, and those that never ran before its own calls", async (t) => {
  const store = new SharedRows();
  const { semel, server } = await outbox(t);
  const before = await semel.session("accounts/a", "s", { store });
  server.each = (call, serve) => {
    const isFirst = server.frames.length === 1;
    if (isFirst && call.elements[0].body === "heard") return serve();
    if (server.frames.length === 2) serve();
    return lost();
  };
  await deposit(before, "heard");
  const left = Promise.allSettled([deposit(before, "ran"), deposit(before, "stored")]);
  // Storing a place takes a transaction, which may take longer than the interval.
  await until(() => server.frames.length > 2 && store.holds("stored") && store.rows.size === 2, "the one ran unheard, and the other never arrives");
  await before.close();
  await left;
  assert.deepEqual([server.effects, store.rows.size], [["heard", "ran"], 2]);
  server.each = (_call, serve) => serve();
  const recovered = [];
  const session = await semel.session("accounts/a", "s", {
    store,
    onrecovered: async ({ response, url, error }) => recovered.push([url, error, await response.json()]),
  });
  assert.deepEqual([session.epoch, session.lastSeq], [2, 2]);
  await deposit(session, "new");
  assert.deepEqual(server.effects, ["heard", "ran", "stored", "new"]);
  const url = "https://worker.test/accounts/a/deposit";
  await until(() => recovered.length === 2, "both are taken");
  assert.deepEqual(recovered, [[url, undefined, { ran: "ran" }], [url, undefined, { ran: "stored" }]]);
  await until(() => store.rows.size === 0, "nothing is left");
});

test("an answer without onrecovered is kept until a later holder takes it with onrecovered", async (t) => {
  const store = new SharedRows();
  const failures = t.mock.method(console, "error", () => {});
  const { semel, server } = await outbox(t);
  const first = await semel.session("accounts/a", "s", { store });
  server.each = (_call, serve) => (serve(), lost());
  const left = Promise.allSettled([deposit(first, "x")]);
  await until(() => server.effects.length === 1, "it ran");
  await first.close();
  await left;
  server.each = (_call, serve) => serve();
  const second = await semel.session("accounts/a", "s", { store });
  await deposit(second, "y");
  await second.close();
  const third = await semel.session("accounts/a", "s", { store });
  assert.equal(failures.mock.callCount(), 0, "no handler is none that fails");
  const answered = await new Promise((resolve) => (third.onrecovered = resolve));
  assert.deepEqual(await answered.response.json(), { ran: "x" });
  await until(() => store.rows.size === 0, "nothing is left");
});

test("an answer that was delivered before its session closed is not recovered by the next holder", async (t) => {
  const store = new SharedRows();
  const { semel } = await outbox(t);
  const session = await semel.session("accounts/a", "s", { store });
  await deposit(session, "x");
  await session.close();
  await until(() => store.rows.size === 0, "its row is removed", 5_000);
  const next = await semel.session("accounts/a", "s", { store, onrecovered: assert.fail });
  assert.deepEqual(await next.pending(), []);
});

test("a call that the store fails to store rejects with store-failed, and its number goes to the next call", async (t) => {
  const store = new SharedRows();
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s", { store });
  store.before = async () => {
    throw new Error("full");
  };
  const error = await rejection(deposit(session, "x"));
  assert.deepEqual([error.code, error.executed, error.cause.message], ["store-failed", "no", "full"]);
  // With these, browsers may reject even for what they have stored.
  for (const [message, name] of [["Connection to Indexed Database server lost. Refresh the page to try again", "UnknownError"], ["Encountered disk full while committing transaction.", "QuotaExceededError"]]) {
    store.before = async () => {
      throw new DOMException(message, name);
    };
    const inDoubt = await rejection(deposit(session, "x"));
    assert.deepEqual([inDoubt.code, inDoubt.executed, inDoubt.retry], ["store-failed", "unknown", "same-id"], message);
  }
  store.before = async () => {};
  await deposit(session, "y");
  assert.deepEqual([server.effects, server.frames[0].elements[0].session.seq], [["y"], 1]);
});

test("a row that the store kept although it reported a failure is removed before its number is used again", async (t) => {
  const store = new SharedRows();
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s", { store });
  const { change } = store;
  store.change = async (...given) => {
    await change.apply(store, given);
    throw new DOMException("It may have been stored.", "UnknownError");
  };
  const { executed } = await rejection(deposit(session, "x"));
  store.change = change;
  // This call is equal to the first, so a key could not tell them apart.
  const answered = await within(ran(deposit(session, "x")), "it is answered");
  await session.close();
  const recovered = [];
  const next = await semel.session("accounts/a", "s", { store, onrecovered: (each) => recovered.push(each) });
  await deposit(next, "y");
  assert.deepEqual([executed, answered, server.effects, recovered], ["unknown", { ran: "x" }, ["x", "y"], []]);
});

test("a request whose row was stored twice, while another holder may have run it, is not said never to have run", async (t) => {
  // Without presence, nobody can tell that the first holder lives.
  const store = new Rows();
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s", { store });
  const { change } = store;
  store.change = async (id, to) => {
    store.change = change;
    await change.call(store, id, to);
    // It can't tell that this was committed, so it repeats the transaction.
    const recovered = [];
    await semel.session("accounts/a", "s", { store, onrecovered: (each) => void recovered.push(each) });
    await until(() => recovered.length && !store.rows.size, "the other holder has its answer");
    await change.call(store, id, to);
  };
  const { code, executed } = await rejection(deposit(session, "x"));
  assert.deepEqual([code, executed, server.effects], ["fenced", "unknown", ["x"]]);
});

test("each failure of the store at the place or the cancellation of a request is a lost event of the outbox", async (t) => {
  const store = new SharedRows();
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s", { store, onpaused() {} });
  const told = [];
  semel.addEventListener("lost", ({ detail }) => told.push(detail));
  const full = new Error("full");
  let isFull = false;
  store.before = async () => {
    if (isFull) throw full;
  };
  /** Checks that the outbox reports each failure of the one request that waits. */
  const isTold = async () => {
    const { requestId } = (await session.pending()).find(({ state }) => state === "sending");
    await until(() => told.length > 2, "it is told each time");
    for (const each of told.splice(0)) assert.deepEqual(each, { requestId, method: "POST", url: "https://worker.test/accounts/a/deposit", error: full });
    isFull = false;
  };
  server.each = () => problem(401, "unauthorized", { executed: "no", retry: "after-fix" });
  const first = deposit(session, "first");
  await until(() => semel.getSnapshot().paused === 1, "it pauses");
  const second = deposit(session, "second");
  await until(() => store.holds("second"), "it is stored without a place");
  isFull = true;
  server.each = (_call, serve) => serve();
  session.resume();
  await first;
  await isTold();
  await second;
  await until(() => store.rows.size === 0, "nothing is left");
  server.each = () => hang();
  const stop = new AbortController();
  const given = rejection(deposit(session, "third", { signal: stop.signal }));
  await until(() => server.frames.at(-1).elements[0].body === "third", "it has left");
  isFull = true;
  stop.abort();
  await isTold();
  server.each = (_call, serve) => serve();
  session.close();
  assert.equal((await given).code, "closed");
});

test("a session refuses the store of its outbox", async (t) => {
  const store = new SharedRows();
  const { semel, server } = await outbox(t, { store });
  await assert.rejects(semel.session("accounts/a", "s", { store }), new TypeError("semel: where the outbox has a store, give the session another, by its option store"));
  assert.deepEqual([server.calls, store.closed], [[], 0]);
});

test("a refused take-over rejects and closes its store, and an outbox with its own store requires the option store", async (t) => {
  const { semel, server } = await outbox(t, { store: new SharedRows() });
  await assert.rejects(semel.session("accounts/a", "s"), /option store/);
  server.each = () => problem(403, "forbidden", { executed: "no", retry: "after-fix" });
  const store = new SharedRows();
  assert.equal((await rejection(semel.session("accounts/a", "s", { store }))).code, "forbidden");
  assert.deepEqual([[...store.living], store.closed], [[], 1]);
});
