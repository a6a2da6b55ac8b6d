// Tests the presence of a store that an application provides: owners that live keep their requests, and other outboxes go on with those of the rest.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Semel } from "../../sdk/npm/node.js";
import * as sessions from "./session-stub.mjs";
import { Rows, Stub, deposit, hang, outbox, rejection, until, within } from "./stub.mjs";

const LOOK_MS = 5_000;

/** A store that several outboxes share, and its living owners. */
class Shared extends Rows {
  owners = new Set();

  presence(owner) {
    this.log.push(["presence", owner]);
    this.owners.add(owner);
    return {
      alive: async () => {
        this.log.push(["alive"]);
        return [...this.owners];
      },
      leave: () => {
        this.log.push(["leave", owner]);
        this.owners.delete(owner);
      },
    };
  }

  asked(what) {
    return this.log.filter(([each]) => each === what).length;
  }
}

/** An outbox on the store, with a request under way that gets no answer. */
async function underWay(t, store) {
  const { semel, server } = await outbox(t, { store });
  server.each = (call, serve) => (call.kind === "change" ? hang() : serve());
  const answer = rejection(deposit(semel));
  await until(() => server.attempts.length === 1, "it is sent");
  return { semel, server, answer };
}

test("an outbox announces its owner once, before it loads, and leaves once, when it is closed", async (t) => {
  const store = new Shared();
  const { semel } = await outbox(t, { store });
  const [owner] = store.owners;
  assert.deepEqual(store.log, [["presence", owner], ["load"], ["alive"]]);
  assert.match(owner, /^[\w-]{1,64}$/);
  await semel.close();
  await semel.close();
  assert.deepEqual(store.log.slice(3), [["leave", owner]]);
  assert.equal(store.closed, 1);
});

test("a request of a living outbox is left to it, and taken over at the next look after it has closed", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const store = new Shared();
  const { semel, server, answer } = await underWay(t, store);
  const recovered = [];
  const { semel: other, server: seen } = await outbox(t, { store, onrecovered: (each) => void recovered.push(each) });
  const looks = store.asked("alive");
  t.mock.timers.tick(LOOK_MS);
  // Both outboxes look.
  await until(() => store.asked("alive") === looks + 2, "they have looked");
  assert.deepEqual((await other.pending()).map(({ state }) => state), ["elsewhere"]);
  assert.deepEqual(seen.calls, []);
  await semel.close();
  assert.equal((await answer).code, "closed");
  t.mock.timers.tick(LOOK_MS);
  await until(() => recovered.length === 1, "it is taken over");
  assert.deepEqual(seen.attempts.map(({ id }) => id), server.attempts.map(({ id }) => id));
});

test("a request of a crashed owner is taken over by the next outbox that opens", async (t) => {
  const store = new Shared();
  const { server } = await underWay(t, store);
  // As after a crash: the owner has not reported that it leaves, and is not among those that live.
  store.owners.clear();
  const recovered = [];
  await outbox(t, { store, onrecovered: (each) => void recovered.push(each) });
  await until(() => recovered.length === 1, "it is taken over");
  assert.equal(recovered[0].requestId, server.attempts[0].id);
});

test("after a look that failed the next look takes over what was left", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const store = new Shared();
  const recovered = [];
  await outbox(t, { store, onrecovered: (each) => void recovered.push(each) });
  const { semel } = await underWay(t, store);
  await semel.close();
  const { load } = store;
  store.load = () => Promise.reject(new Error("no disk"));
  t.mock.timers.tick(LOOK_MS);
  await new Promise((resolve) => setImmediate(resolve));
  store.load = load;
  t.mock.timers.tick(LOOK_MS);
  await until(() => recovered.length === 1, "it is taken over");
});

test("living owners are watched and gone ones are not, and a failed look is no unhandled rejection", async (t) => {
  const store = new Shared();
  for (let n = 0; n < 2; n += 1) await underWay(t, store);
  const [crashed, lives] = store.owners;
  store.owners.delete(crashed);
  const { presence } = store;
  const [watched, gone] = [[], []];
  store.presence = (owner) => ({ ...presence.call(store, owner), watch: (other, then) => (watched.push(other), gone.push(then)) });
  await outbox(t, { store });
  assert.deepEqual(watched, [lives]);
  store.load = () => Promise.reject(new Error("no disk"));
  for (const then of gone) then();
  // A rejection that nobody catches would fail the test.
  await new Promise((resolve) => setImmediate(resolve));
});

test("an outbox looks through a slow store only once at a time", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const store = new Shared();
  const { semel } = await outbox(t, { store });
  const finish = [];
  store.load = () => new Promise((resolve) => finish.push(() => resolve([])));
  for (let n = 0; n < 10; n += 1) t.mock.timers.tick(LOOK_MS);
  assert.equal(finish.length, 1);
  const asked = store.asked("alive");
  finish[0]();
  await until(() => store.asked("alive") === asked + 1, "it has looked");
  await new Promise((resolve) => setImmediate(resolve));
  t.mock.timers.tick(LOOK_MS);
  assert.equal(finish.length, 2, "the next one comes");
  await semel.close();
});

for (const [name, presence] of [
  ["throws", () => { throw new Error("nobody knows"); }],
  ["can't tell which owners are alive", () => ({ alive: () => Promise.reject(new Error("nobody knows")), leave: () => {} })],
]) {
  test(`where presence ${name}, open rejects with that error, sends nothing, and closes the store`, async () => {
    const store = new Shared();
    const server = new Stub();
    store.presence = presence;
    const error = await rejection(Semel.open({ url: "https://worker.test", fetch: server.fetch, store }));
    assert.deepEqual([error.message, server.calls, store.closed], ["nobody knows", [], 1]);
  });

  test(`where presence ${name}, session() rejects with that error, closes its store, and no rejection is unhandled`, async (t) => {
    const { semel } = await sessions.outbox(t);
    const store = new Shared();
    store.presence = presence;
    const error = await rejection(semel.session("accounts/a", "s", { store }));
    assert.deepEqual([error.message, store.closed], ["nobody knows", 1]);
    await new Promise((resolve) => setImmediate(resolve));
  });
}

test("outcome(id) asks the key itself for an answer that a living outbox has and nobody takes there", async (t) => {
  const store = new Shared();
  const { semel: gone, server } = await outbox(t, { store });
  server.each = (call, serve) => (call.kind === "change" ? hang() : serve());
  const init = { method: "POST", body: "5", id: "own" };
  const left = rejection(gone.fetch("/accounts/a/deposit", init));
  await until(() => server.attempts.length === 1, "it is sent");
  await gone.close();
  await left;
  server.each = (_call, serve) => serve();
  // The holder has no `onrecovered`, so it keeps the answer.
  const { semel: holder } = await outbox(t, { store, server });
  const states = async () => (await holder.pending()).map(({ state }) => state);
  await until(async () => (await states())[0] === "answered", "it has the answer");
  const { semel: other } = await outbox(t, { store, server, attemptTimeoutMs: 100 });
  const answers = await within(Promise.all([other.outcome("own"), other.fetch("/accounts/a/deposit", init)]), "both are answered");
  assert.deepEqual(await Promise.all(answers.map(async (answer) => [answer.headers.get("semel-status"), (await answer.json()).ran])), Array(2).fill(["replayed", 1]));
  assert.deepEqual([server.attempts.length, [...server.runs.values()]], [3, [1]]);
  await until(async () => (await states()).length === 0, "it is settled");
  const recovered = [];
  holder.onrecovered = ({ response }) => recovered.push(response.status);
  await until(() => recovered.length > 0, "who had it all the time takes it yet");
  assert.deepEqual([recovered, server.attempts.length], [[200], 3]);
});

test("after close neither an outbox nor a session looks again, nor a session that is closed while it opens", async (t) => {
  const [set, cleared] = [t.mock.method(globalThis, "setInterval"), t.mock.method(globalThis, "clearInterval")];
  const left = () => {
    const gone = cleared.mock.calls.map(({ arguments: [timer] }) => timer);
    return set.mock.calls.filter(({ result }) => !gone.includes(result)).length;
  };
  const { semel } = await outbox(t, { store: new Shared() });
  const { semel: one } = await sessions.outbox(t);
  const session = await one.session("accounts/a", "s", { store: new Shared() });
  assert.equal(left(), 2);
  await semel.close();
  await session.close();
  assert.equal(left(), 0);
  let answer;
  const slow = new Shared();
  slow.presence = () => ({ alive: () => new Promise((resolve) => (answer = () => resolve([]))), leave: () => {} });
  const opening = rejection(one.session("accounts/a", "s", { store: slow }));
  await until(() => answer, "it looks");
  await one.close();
  assert.equal((await opening).code, "closed");
  answer();
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(left(), 0);
});
