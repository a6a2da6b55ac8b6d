// Tests what happens after a call has ended or its outbox is closed: callers that gave up waiting, and answers that nobody waits for.
// `acknowledging.test.mjs` has what is told of answers that came.

import assert from "node:assert/strict";
import { test } from "node:test";
import { OutcomeUnknownError, SemelError } from "../../sdk/npm/node.js";
import { Rows, Stub, clock, deposit, hang, lost, minutes, outbox, problem, rejection, until } from "./stub.mjs";

const DAY_MS = 86_400_000;

const states = async (semel) => (await semel.pending()).map(({ state }) => state);

/** A store with the requests of an outbox that was closed while it sent them. `treat` answers their first attempts. */
async function leftovers(t, { treat = lost, accounts = ["a"] } = {}) {
  const [store, server] = [new Rows(), new Stub()];
  const { semel } = await outbox(t, { store, server });
  server.each = (call, serve) => (call.kind === "change" ? treat(call, serve) : serve());
  const left = accounts.map((account) => rejection(deposit(semel, account, { headers: { "content-type": "text/left" } })));
  await until(() => new Set(server.attempts.map(({ id }) => id)).size === accounts.length, "all were sent");
  await semel.close();
  for (const each of left) assert.equal((await each).code, "closed");
  const sent = server.attempts.slice();
  server.calls.length = 0;
  server.each = (_call, serve) => serve();
  return { store, server, sent };
}

test("after giveUpAfterMs the caller is told unknown, the request goes on, and onrecovered gets its answer", async (t) => {
  const store = new Rows();
  const recovered = [];
  const { semel, server } = await outbox(t, { store, giveUpAfterMs: 60_000, onrecovered: (one) => void recovered.push(one) });
  const later = clock(t);
  let isOver = false;
  server.each = (call, serve) => (call.kind === "change" && !isOver ? lost() : serve());
  let error;
  rejection(deposit(semel)).then((thrown) => (error = thrown));
  const isSentAgain = (count = server.attempts.length) => until(() => server.attempts.length > count + 1, "it is sent again");
  await isSentAgain(0);
  later(50_000);
  await isSentAgain();
  assert.equal(error, undefined, "it is waited for");
  later(10_000);
  await until(() => error, "it is given up");
  assert.ok(error instanceof OutcomeUnknownError && error instanceof SemelError);
  const { name, code, executed, retry, requestId, problem: said } = error;
  assert.deepEqual({ name, code, executed, retry, said }, { name: "GaveUpError", code: "gave-up", executed: "unknown", retry: "same-id", said: undefined });
  assert.equal(requestId, server.attempts[0].id);
  assert.deepEqual(error.cause, new TypeError("fetch failed"), "why the last attempt got no answer");
  assert.deepEqual([await states(semel), store.holds("amount")], [["sending"], true]);
  const attempts = server.attempts.length;
  await until(() => server.attempts.length > attempts + 2, "it goes on");
  assert.deepEqual(recovered, []);
  isOver = true;
  const [{ response, ...rest }] = await until(() => recovered.length > 0 && recovered, "it is recovered");
  assert.deepEqual(rest, { requestId, method: "POST", url: "https://worker.test/accounts/a/deposit", error: undefined });
  assert.deepEqual(await response.json(), { ran: 1, path: "/accounts/a/deposit" });
  await until(() => !store.holds("amount"), "it left the store");
  assert.deepEqual([await semel.pending(), recovered.length, server.runs.get(requestId)], [[], 1, 1]);
});

test("giveUp(id) cancels an earlier page's request that keeps failing, and the request behind it goes on", async (t) => {
  const { store, server, sent } = await leftovers(t);
  const [{ id }] = sent;
  server.each = (call, serve) => (call.kind === "change" && call.id === id ? server.problem("accounts/a", 500, "rolled-back", { executed: "no" }) : serve());
  const recovered = [];
  const { semel } = await outbox(t, { store, server, onrecovered: (one) => void recovered.push(one) });
  await until(() => server.attempts.length > 2, "it is sent again and again");
  const behind = deposit(semel);
  semel.giveUp(id);
  const [{ requestId, error }] = await until(() => recovered.length > 0 && recovered, "it is recovered");
  assert.deepEqual([requestId, error.code, error.executed], [id, "cancelled", "no"]);
  assert.deepEqual((await (await behind).json()).ran, 1);
  semel.giveUp(id);
  for (const wrong of [undefined, "", "cancel-1"]) assert.throws(() => semel.giveUp(wrong), TypeError);
  await until(() => !store.holds("amount"), "both left the store");
  assert.deepEqual([server.runs.has(id), await semel.pending()], [false, []]);
});

test("a call that is answered in time does not give up, and its answer is not recovered", async (t) => {
  const later = clock(t);
  for (const giveUpAfterMs of [60_000, Infinity, Number.MAX_VALUE, undefined]) {
    const { semel, server } = await outbox(t, { giveUpAfterMs, onrecovered: () => assert.fail("it was recovered") });
    server.each = (call, serve) => (call.kind === "change" && call.n < 3 ? lost() : serve());
    assert.equal((await deposit(semel)).status, 200);
    later(60_000);
    // A request that is over is not looked at again, whenever the SDK wakes.
    assert.equal((await deposit(semel, "b")).status, 200);
  }
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
});

test("a call that gives up while it pauses, waits its turn or has no clock stays pending", async (t) => {
  const { semel, server } = await outbox(t, { giveUpAfterMs: 40, onpaused: () => {} });
  server.each = lost;
  assert.equal((await rejection(deposit(semel))).code, "gave-up");
  assert.deepEqual(await states(semel), ["sending"]);
  server.each = (call, serve) => (call.kind === "change" ? server.problem(call.key, 401, "unauthorized", { executed: "no", retry: "after-fix" }) : serve());
  assert.equal((await rejection(deposit(semel, "b"))).code, "gave-up");
  await until(async () => (await states(semel)).join() === "paused,paused", "both pause");
  // This request waits for the one before it at its key.
  assert.equal((await rejection(deposit(semel, "b"))).code, "gave-up");
  assert.deepEqual(await states(semel), ["paused", "paused", "sending"]);
});

test("requests that a closed outbox left go on at the next open under their ids, and are recovered once", async (t) => {
  const { store, server, sent } = await leftovers(t, { accounts: ["a", "b", "c"] });
  const minute = minutes(t);
  const recovered = [];
  const { semel } = await outbox(t, { store, server, onrecovered: (one) => void recovered.push(one) });
  await until(() => recovered.length === 3, "all are recovered");
  for (const { requestId, method, url, response, error } of recovered) {
    const before = sent.find(({ id }) => id === requestId);
    const again = server.attempts.filter(({ id }) => id === requestId);
    assert.equal(again.length, 1);
    const same = ({ method, path, body, firstSent, headers }) => ({ method, path, body, firstSent, type: headers.get("content-type") });
    assert.deepEqual(same(again[0]), same(before));
    assert.ok(again[0].deadline >= before.deadline);
    assert.deepEqual([method, url, error], ["POST", `https://worker.test${before.path}`, undefined]);
    assert.deepEqual([response.url, (await response.json()).ran], [url, 1]);
  }
  await until(() => !store.holds("amount"), "they left the store");
  await semel.close();
  const { semel: third } = await outbox(t, { store, server, onrecovered: () => assert.fail("once more") });
  await minute();
  assert.deepEqual([await third.pending(), recovered.length], [[], 3]);
});

test("a request that ran before its outbox closed is recovered with its first answer", async (t) => {
  const treat = async (_call, serve) => {
    await serve();
    throw new TypeError("fetch failed");
  };
  const { store, server, sent } = await leftovers(t, { treat });
  const recovered = [];
  await outbox(t, { store, server, onrecovered: (one) => void recovered.push(one) });
  const [{ response }] = await until(() => recovered.length > 0 && recovered, "it is recovered");
  assert.equal(response.headers.get("semel-status"), "replayed");
  assert.deepEqual([...server.runs.values()], [1]);
  assert.ok(sent.length > 0);
});

test("a definitive problem of a request that was left comes to onrecovered as an error", async (t) => {
  const { store, server, sent } = await leftovers(t);
  server.each = (call, serve) => (call.kind === "change" ? server.problem(call.key, 412, "outside-window", { retry: "never" }) : serve());
  const recovered = [];
  await outbox(t, { store, server, onrecovered: (one) => void recovered.push(one) });
  const [{ response, error, requestId }] = await until(() => recovered.length > 0 && recovered, "it is recovered");
  assert.equal(response, undefined);
  assert.ok(error instanceof SemelError);
  assert.deepEqual([error.code, error.executed, error.requestId, error.problem.status], ["outside-window", "unknown", requestId, 412]);
  assert.equal(requestId, sent[0].id);
});

test("a request that pauses after the next open is told to onpaused, and can be given up there", async (t) => {
  const { store, server } = await leftovers(t);
  server.each = (call, serve) => (call.kind === "change" ? server.problem(call.key, 403, "forbidden", { executed: "no", retry: "after-fix" }) : serve());
  const recovered = [];
  await outbox(t, { store, server, onpaused: (paused) => paused.giveUp(), onrecovered: (one) => void recovered.push(one) });
  const [{ error }] = await until(() => recovered.length > 0 && recovered, "it is recovered");
  assert.deepEqual([error.code, error.executed, server.runs.size], ["cancelled", "no", 0]);
});

test("without onrecovered an answer is kept, and the first handler that is set gets it", async (t) => {
  const { store, server } = await leftovers(t);
  const minute = minutes(t);
  const failures = t.mock.method(console, "error", () => {});
  const { semel } = await outbox(t, { store, server });
  await until(async () => (await states(semel))[0] === "answered", "it has its answer");
  await minute();
  assert.equal(failures.mock.callCount(), 0, "no handler is none that fails");
  assert.deepEqual([await states(semel), store.holds("amount"), server.attempts.length], [["answered"], true, 1]);
  const recovered = [];
  semel.onrecovered = (one) => void recovered.push(one);
  assert.equal(typeof semel.onrecovered, "function");
  await until(async () => (await semel.pending()).length === 0, "it is taken");
  semel.onrecovered = () => assert.fail("it was taken");
  await minute();
  assert.equal(recovered.length, 1);
});

test("an answer that nobody took is recovered after the next open, as a replay", async (t) => {
  const { store, server } = await leftovers(t);
  const { semel } = await outbox(t, { store, server });
  await until(async () => (await states(semel))[0] === "answered", "it has its answer");
  await semel.close();
  const recovered = [];
  await outbox(t, { store, server, onrecovered: (one) => void recovered.push(one) });
  const [{ response }] = await until(() => recovered.length > 0 && recovered, "it is recovered");
  assert.deepEqual([response.headers.get("semel-status"), [...server.runs.values()]], ["replayed", [1]]);
});

for (const [name, handler] of [
  ["throws", () => {
    throw new Error("not now");
  }],
  ["rejects", async () => {
    throw new Error("not now");
  }],
]) {
  test(`an onrecovered that ${name} is logged, and the answer is kept until a handler is set again`, async (t) => {
    const logged = t.mock.method(console, "error", () => {});
    const { store, server, sent } = await leftovers(t);
    const minute = minutes(t);
    let called = 0;
    const { semel } = await outbox(t, {
      store,
      server,
      onrecovered: (one) => {
        called += 1;
        return handler(one);
      },
    });
    await until(() => logged.mock.callCount() === 1, "it says so");
    assert.match(logged.mock.calls[0].arguments.join(" "), /onrecovered.*not now/);
    await minute();
    assert.deepEqual([called, await states(semel), store.holds("amount")], [1, ["answered"], true]);
    semel.onrecovered = null;
    const recovered = [];
    semel.onrecovered = (one) => void recovered.push(one);
    await until(async () => (await semel.pending()).length === 0, "it is taken");
    assert.deepEqual([recovered.length, recovered[0].requestId, server.attempts.length], [1, sent[0].id, 1]);
    assert.equal((await recovered[0].response.json()).ran, 1, "its body can be read again");
  });
}

test("a request leaves the store only once the promise of its onrecovered has resolved", async (t) => {
  const { store, server } = await leftovers(t);
  const minute = minutes(t);
  let called = 0;
  let finish;
  const handler = () => {
    called += 1;
    return new Promise((resolve) => (finish = resolve));
  };
  const { semel } = await outbox(t, { store, server, onrecovered: handler });
  await until(() => finish, "it is told");
  // A handler that is set meanwhile doesn't get an answer that another handler works on.
  semel.onrecovered = handler;
  await minute();
  assert.deepEqual([called, await states(semel), store.holds("amount")], [1, ["answered"], true]);
  finish();
  await until(() => !store.holds("amount"), "it left");
  assert.deepEqual([await semel.pending(), called], [[], 1]);
});

test("an answer that its caller got is not recovered, even if a listener of settled closes the outbox at once", async (t) => {
  const [store, server, recovered] = [new Rows(), new Stub(), []];
  const { semel } = await outbox(t, { store, server });
  semel.addEventListener("settled", () => semel.close());
  assert.equal((await deposit(semel)).status, 200);
  const { semel: next } = await outbox(t, { store, server, onrecovered: (one) => void recovered.push(one) });
  // A call that is made now comes after whatever was left.
  assert.equal((await deposit(next)).status, 200);
  await until(async () => (await next.pending()).length === 0, "it is over");
  assert.deepEqual(recovered, []);
});

test("an answer whose onrecovered is still at work when the outbox closes is recovered again at the next open", async (t) => {
  const { store, server } = await leftovers(t);
  const minute = minutes(t);
  let finish;
  const { semel } = await outbox(t, { store, server, onrecovered: () => new Promise((resolve) => (finish = resolve)) });
  await until(() => finish, "it is told");
  await semel.close();
  finish();
  await minute();
  assert.ok(store.holds("amount"));
  const recovered = [];
  await outbox(t, { store, server, onrecovered: (one) => void recovered.push(one) });
  await until(() => recovered.length === 1, "it is recovered");
  assert.deepEqual([...server.runs.values()], [1]);
});

test("pending() lists the stored requests, each with its state", async (t) => {
  const { store, server } = await leftovers(t);
  const { semel } = await outbox(t, { store, server, onpaused: () => {} });
  await until(async () => (await states(semel))[0] === "answered", "the first has its answer");
  server.each = (call, serve) => {
    if (call.key === "accounts/paused") return server.problem(call.key, 403, "forbidden", { executed: "no", retry: "after-fix" });
    return call.kind === "change" ? hang() : serve();
  };
  const others = [deposit(semel, "paused"), semel.fetch("/accounts/sending?x=%20", { method: "DELETE" })].map(rejection);
  await until(() => server.attempts.length === 3, "all were sent");
  await until(async () => (await states(semel)).includes("paused"), "one pauses");
  const pending = (await semel.pending()).sort((one, other) => one.state.localeCompare(other.state));
  assert.deepEqual(
    pending.map(({ method, url, attempts, state }) => [method, url, attempts, state]),
    [
      ["POST", "https://worker.test/accounts/a/deposit", 1, "answered"],
      ["POST", "https://worker.test/accounts/paused/deposit", 1, "paused"],
      ["DELETE", "https://worker.test/accounts/sending?x=%20", 1, "sending"],
    ],
  );
  assert.deepEqual(new Set(pending.map(({ requestId }) => requestId)), new Set(server.attempts.map(({ id }) => id)));
  await semel.close();
  for (const other of others) assert.equal((await other).code, "closed");
});

test("the row of a recovered answer has left the store after a day", async (t) => {
  const { store, server, sent } = await leftovers(t);
  const minute = minutes(t);
  const recovered = [];
  const { semel } = await outbox(t, { store, server, onrecovered: (one) => void recovered.push(one) });
  await until(() => recovered.length === 1, "it is recovered");
  await until(() => !store.holds("amount"), "it is settled");
  await semel.close();
  const kept = () => [...store.rows.keys()].filter((id) => id === sent[0].id).length;
  assert.equal(kept(), 1);
  server.aheadMs = 3 * DAY_MS;
  for (let opened = 0; opened < 2; opened += 1) {
    const { semel: later } = await outbox(t, { store, server });
    await deposit(later, "other");
    await minute();
    await later.close();
  }
  assert.equal(kept(), 0);
});

test("the error of a call that gives up has the network's error or the code of the last answer as its cause", async (t) => {
  const server = new Stub();
  const { semel } = await outbox(t, { server, giveUpAfterMs: 60_000, onrecovered: () => {} });
  const later = clock(t);
  const givenUp = async (account, sent) => {
    const error = rejection(deposit(semel, account));
    await until(sent, "it is answered, and sent again");
    later(60_000);
    return error;
  };
  // The first call asks for the Worker's clock.
  server.each = lost;
  const error = await givenUp("a", () => server.calls.length > 1);
  assert.deepEqual([error.code, error.cause], ["gave-up", new TypeError("fetch failed")]);
  server.each = (call, serve) => (call.kind === "change" ? problem(503, "unavailable", { executed: "unknown", retry: "same-id" }) : serve());
  const answered = await givenUp("b", () => server.attempts.filter(({ key }) => key === "accounts/b").length > 1);
  assert.deepEqual([answered.code, answered.cause], ["gave-up", "unavailable"]);
});
