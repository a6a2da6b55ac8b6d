// Tests what callers are told when several things go wrong at once: no error says something wrong, no caller waits for ever, and no answer is lost.
// Most tests run an outbox on a store in memory (`Rows`) against the stub of a Worker. `wrong-calls.test.mjs` has calls that make no sense.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { GaveUpError } from "../../sdk/npm/node.js";
import { Rows, Stub, deposit, hang, outbox, rejection, until, within } from "./stub.mjs";

afterEach(() => {
  for (const name of ["navigator", "document", "addEventListener"]) delete globalThis[name];
});

/** A store for two tabs, each of which knows that the other lives. */
function shared() {
  const store = new Rows();
  const living = new Set();
  store.presence = (owner) => {
    living.add(owner);
    return { alive: async () => [...living], leave: () => living.delete(owner) };
  };
  return store;
}

const sent = (server, count = 1) => until(() => server.attempts.length >= count, "it was sent");

async function pendingElsewhere(t) {
  const store = shared();
  const server = new Stub();
  let letGo;
  const gate = new Promise((resolve) => (letGo = resolve));
  server.each = async (call, serve) => {
    if (call.kind === "change") await gate;
    return serve();
  };
  const { semel: first } = await outbox(t, { server, store });
  const { semel: second } = await outbox(t, { server, store });
  const running = deposit(first, "a", { id: "x" });
  await sent(server);
  return { store, server, first, second, running, letGo };
}

test("outcome(id) of another tab's request is not settled by a refused call with another body under the same id", async (t) => {
  const { second, running, letGo } = await pendingElsewhere(t);
  const asked = second.outcome("x").catch((error) => error);
  await new Promise((resolve) => setTimeout(resolve, 20));
  const error = await rejection(deposit(second, "a", { id: "x", body: "another" }));
  assert.equal(error.code, "fingerprint-mismatch");
  letGo();
  assert.equal((await running).status, 200);
  assert.notEqual((await asked).executed, "no", "it ran");
});

test("outcome(id) of another tab's request is not settled by a call under the same id that could not be stored", async (t) => {
  const { store, second, running, letGo } = await pendingElsewhere(t);
  const asked = second.outcome("x").catch((error) => error);
  await new Promise((resolve) => setTimeout(resolve, 20));
  store.before = async () => {
    throw new Error("broken");
  };
  const made = deposit(second, "a", { id: "x" }).catch((error) => error);
  await new Promise((resolve) => setTimeout(resolve, 20));
  store.before = async () => {};
  letGo();
  assert.equal((await running).status, 200);
  assert.notEqual((await asked).executed, "no", "it ran");
  assert.notEqual((await made).executed, "no", "it ran");
});

test("while the store fails, outcome(id) does not take a failed call under the same id for proof that it never ran", async (t) => {
  const { store, second, running, letGo } = await pendingElsewhere(t);
  store.before = async () => {
    throw new Error("broken");
  };
  const asked = second.outcome("x").catch((error) => error);
  const made = deposit(second, "a", { id: "x" }).catch((error) => error);
  const errors = await within(Promise.all([asked, made]), "both");
  store.before = async () => {};
  letGo();
  assert.equal((await running).status, 200);
  assert.deepEqual(errors.map(({ code, executed }) => [code, executed]), [["store-failed", "unknown"], ["store-failed", "unknown"]], "it ran");
});

for (const [code, options, before] of [
  ["store-failed", {}, (store) => (store.before = async () => Promise.reject(new Error("broken")))],
  ["outbox-full", { maxPending: 1 }, (_store, semel) => void deposit(semel, "b", { id: "other" }).catch(() => {})],
]) {
  test(`${code}: a call under an id of the caller is not said never to have run if another tab has that id pending`, async (t) => {
    const { store, server, running, letGo } = await pendingElsewhere(t);
    const { semel } = await outbox(t, { server, store, ...options });
    before(store, semel);
    await new Promise((resolve) => setTimeout(resolve, 20));
    const error = await rejection(deposit(semel, "a", { id: "x" }));
    assert.equal(error.code, code);
    store.before = async () => {};
    letGo();
    assert.equal((await running).status, 200);
    assert.notEqual(error.executed, "no", "it ran under this id");
  });
}

test("a call whose store lost its process in WebKit is store-failed and unknown, for the row may be stored", async (t) => {
  const store = new Rows();
  const { semel } = await outbox(t, { store });
  // In a worker, WebKit rejects with this as long as the worker lives, even for what it has committed.
  store.before = async () => {
    throw new DOMException("Connection to Indexed Database server lost. Refresh the page to try again", "UnknownError");
  };
  const { code, executed, retry } = await rejection(deposit(semel, "a"));
  assert.deepEqual([code, executed, retry], ["store-failed", "unknown", "same-id"]);
});

// Where the disk refuses to sync, Firefox 153 and Chromium 156 with SQLite find the row of the failed transaction over the next connection.
test("a change that is made again writes what it finds: a transaction that only reads would make nothing durable", async (t) => {
  const store = new Rows();
  const { semel } = await outbox(t, { store });
  const { change } = store;
  const again = [];
  store.change = async (id, to) => {
    await change.call(store, id, to);
    await change.call(store, id, (row) => {
      const made = to(row);
      again.push([row !== undefined, made === null]);
      return made;
    });
  };
  assert.equal((await deposit(semel, "a")).status, 200);
  const [[isFound, isLeft]] = again;
  assert.deepEqual([isFound, isLeft], [true, false]);
});

test("a store that repeats a change does not restore a frozen page's row after another tab is done with it", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  const { change } = store;
  let laterMs;
  // The store makes each change twice: it committed the first time, but did not report it. A row that is still there is one that no other
  // tab is done with.
  store.change = (id, to) =>
    change.call(store, id, (row) => {
      to(row);
      const now = Date.now() + (row ? 60_000 : laterMs);
      const clock = t.mock.method(Date, "now", () => now);
      const made = to(row);
      clock.mock.restore();
      return made;
    });
  laterMs = 4_000;
  assert.equal((await deposit(semel, "soon")).status, 200);
  laterMs = 6_000;
  const { code, executed, retry } = await rejection(deposit(semel, "late"));
  assert.deepEqual([code, executed, retry], ["store-failed", "unknown", "same-id"]);
  assert.deepEqual([[...server.runs.values()], store.holds("late")], [[1], false]);
});

test("a store that repeats a change does not restore a closed page's row after another tab is done with it", async (t) => {
  const store = new Rows();
  const { semel } = await outbox(t, { store });
  const { change } = store;
  const made = new Promise((resolve) => {
    store.change = async (id, to) => {
      await change.call(store, id, to);
      await semel.close();
      // Another tab finds that this page has left, takes the row over, and is done with it.
      await change.call(store, id, () => undefined);
      resolve(await change.call(store, id, to).then(() => "made", ({ code }) => code));
    };
  });
  const { code, executed } = await rejection(deposit(semel, "a"));
  assert.deepEqual([code, executed], ["closed", "unknown"]);
  assert.deepEqual([await made, store.holds("a")], ["store-failed", false]);
});

test("a call aborted before its store repeats the change is unknown if another tab is already done with its row", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  const { change } = store;
  const stop = new AbortController();
  store.change = async (id, to) => {
    store.change = change;
    await change.call(store, id, to);
    // Another tab takes the row over and is done with it, in the moments in which this page is frozen.
    await change.call(store, id, () => undefined);
    stop.abort();
    await change.call(store, id, to);
  };
  const { code, executed, retry } = await rejection(deposit(semel, "a", { signal: stop.signal }));
  assert.deepEqual([code, executed, retry, server.attempts], ["cancelled", "unknown", "same-id", []]);
});

test("a call aborted before its store repeats the change twice is unknown if another tab is done with its row", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  const { change } = store;
  const stop = new AbortController();
  store.change = async (id, to) => {
    store.change = change;
    await change.call(store, id, to);
    await change.call(store, id, () => undefined);
    stop.abort();
    await change.call(store, id, to);
    await change.call(store, id, to);
  };
  const { code, executed, retry } = await rejection(deposit(semel, "a", { signal: stop.signal }));
  assert.deepEqual([code, executed, retry, server.attempts], ["cancelled", "unknown", "same-id", []]);
});

test("a call whose store repeats the change and fails without storing it is said never to have run", async (t) => {
  const store = new Rows();
  const { semel } = await outbox(t, { store });
  store.change = async (_id, to) => {
    for (let times = 3; times > 0; times -= 1) to(undefined);
    throw new Error("there is no space");
  };
  const { code, executed } = await rejection(deposit(semel));
  assert.deepEqual([code, executed], ["store-failed", "no"]);
});

test("a call that another tab answered and whose row is removed is not said never to have run when it is aborted", async (t) => {
  const store = new Rows(); // The store has no presence, so whoever opens it takes over everything.
  const server = new Stub();
  const hanging = new Stub();
  hanging.each = (call, serve) => (call.kind === "change" ? hang() : serve());
  const { semel: first } = await outbox(t, { server: hanging, store });
  const before = deposit(first, "a", { id: "1" });
  before.catch(() => {});
  const cancelling = new AbortController();
  const waiting = deposit(first, "a", { id: "2", signal: cancelling.signal }).catch((error) => error);
  await until(() => store.rows.size === 2, "both are stored");
  const { semel: second } = await outbox(t, { server, store, onrecovered: () => {} });
  await until(() => server.runs.get("2") === 1, "the other tab has sent it");
  await until(async () => (await second.pending()).length === 0, "it is settled");
  store.rows.delete("2"); // Any tab does this after a day.
  cancelling.abort();
  const error = await within(waiting, "the call");
  assert.notEqual(error.executed, "no", `it ran: ${error}`);
});

test("outcome(id) waits for the answer to a call that gave up", async (t) => {
  const server = new Stub();
  let letGo;
  const gate = new Promise((resolve) => (letGo = resolve));
  server.each = async (call, serve) => {
    if (call.kind === "change") await gate;
    return serve();
  };
  const { semel } = await outbox(t, { server, giveUpAfterMs: 20 });
  const error = await rejection(deposit(semel));
  assert.ok(error instanceof GaveUpError);
  const answer = semel.outcome(error.requestId);
  setTimeout(letGo, 10);
  assert.equal((await answer).status, 200);
});

test("a call that joins a pending call waits for its own giveUpAfterMs", async (t) => {
  const server = new Stub();
  server.each = (call, serve) => (call.kind === "change" ? hang() : serve());
  const { semel } = await outbox(t, { server, giveUpAfterMs: 300 });
  await rejection(deposit(semel, "a", { id: "x" }));
  const begun = performance.now();
  await rejection(deposit(semel, "a", { id: "x" }));
  assert.ok(performance.now() - begun > 250, `${performance.now() - begun} ms`);
});

test("an aborted call does not wait for an earlier call whose body does not end", async (t) => {
  const { semel } = await outbox(t);
  deposit(semel, "a", { body: new ReadableStream({}) }).catch(() => {});
  const cancelling = new AbortController();
  const second = deposit(semel, "a", { signal: cancelling.signal });
  await new Promise((resolve) => setTimeout(resolve, 20));
  cancelling.abort();
  assert.equal((await within(rejection(second), "the second", 5_000)).name, "AbortError");
});

test("a page that missed the online event goes on at the next pageshow", async (t) => {
  const window = new EventTarget();
  const navigator = { onLine: false };
  const has = (name, value) => Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  has("navigator", navigator);
  has("document", { hidden: false });
  has("addEventListener", window.addEventListener.bind(window));
  const { semel } = await outbox(t);
  const made = deposit(semel);
  await until(() => semel.getSnapshot().pending === 1, "it is in hand");
  navigator.onLine = true;
  window.dispatchEvent(new Event("pageshow"));
  assert.equal((await within(made, "the call", 5_000)).status, 200);
});

test("a subscriber is told of a change even if another subscriber throws", async (t) => {
  const { semel } = await outbox(t);
  // An error that a subscriber throws must not fail this test.
  const { queueMicrotask } = globalThis;
  t.after(() => (globalThis.queueMicrotask = queueMicrotask));
  globalThis.queueMicrotask = (work) =>
    queueMicrotask(() => {
      try {
        work();
      } catch {
        // This is the error that the test throws.
      }
    });
  let isArmed = false;
  semel.subscribe(() => {
    if (isArmed) throw new Error("the first");
  });
  const heard = [];
  semel.subscribe(({ pending }) => heard.push(pending));
  isArmed = true;
  await deposit(semel);
  assert.ok(heard.includes(1), JSON.stringify(heard));
});

test("a late acknowledgement by another tab does not delete a request that was made under the same id since", async (t) => {
  const store = shared();
  const server = new Stub();
  const slow = new Stub();
  let letGo;
  const gate = new Promise((resolve) => (letGo = resolve));
  slow.each = async (call, serve) => {
    if (call.kind === "acks") await gate;
    return serve();
  };
  const { semel: first } = await outbox(t, { server, store });
  await deposit(first, "a", { id: "x" });
  await until(() => store.rows.size === 1 && store.log.filter(([, id]) => id === "x").length > 2, "it is added, raised and settled");
  await outbox(t, { server: slow, store });
  await until(() => slow.of("acks").length === 1, "the other tab acknowledges it too");
  await deposit(first, "a", { id: "y" });
  await until(() => !store.rows.has("x"), "it is acknowledged");
  // Suppose that the tombstone of x is gone by now, so the id can be used again.
  server.each = (call, serve) => (call.id === "x" ? hang() : serve());
  deposit(first, "b", { id: "x" }).catch(() => {});
  await until(() => store.rows.has("x"), "it is stored");
  letGo();
  await until(() => store.log.some(([what, ids]) => what === "remove" && ids.includes("x") && slow.of("acks")[0].endedMs), "the other tab is done");
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.ok(store.rows.has("x"), "a pending request is no longer stored");
});

test("an outbox works while its module's memory is larger than 2 GiB", async (t) => {
  const { Instance } = WebAssembly;
  t.after(() => (WebAssembly.Instance = Instance));
  // Many large bodies would make the memory as large. The system gives no room to pages that nothing touches.
  WebAssembly.Instance = class extends Instance {
    constructor(module) {
      super(module);
      this.exports.memory.grow(32_768);
    }
  };
  const { semel } = await outbox(t);
  assert.equal((await deposit(semel, "a", { body: new Uint8Array(1 << 20) })).status, 200);
});

test("an onpaused that throws is logged once, and its error is not thrown into the process", async (t) => {
  const errors = t.mock.method(console, "error", () => {});
  const { queueMicrotask } = globalThis;
  t.after(() => (globalThis.queueMicrotask = queueMicrotask));
  const thrown = [];
  globalThis.queueMicrotask = (work) =>
    queueMicrotask(() => {
      try {
        work();
      } catch (error) {
        thrown.push(error);
      }
    });
  const server = new Stub();
  server.each = (call, serve) => (call.kind === "change" ? server.problem("a", 401, "unauthorized", { executed: "no", retry: "after-fix" }) : serve());
  let told = 0;
  const { semel } = await outbox(t, {
    server,
    onpaused() {
      told += 1;
      throw new Error("mine");
    },
  });
  deposit(semel).catch(() => {});
  await until(() => told === 1, "it is told");
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.deepEqual([thrown.length, errors.mock.callCount()], [0, 1]);
});
