// Tests aborting a call by its signal, at each moment between the call and its answer.

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { changes, isCancelled, pausing, refuse } from "./giving-up.mjs";
import { Rows, Stub, deposit, hang, lost, outbox, rejection, until, within } from "./stub.mjs";

test("with a signal that is aborted already, nothing is stored and nothing is sent", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  const reason = new Error("not today");
  for (const method of ["POST", "DELETE", "GET"]) {
    assert.equal(await rejection(semel.fetch("/accounts/a", { method, signal: AbortSignal.abort(reason) })), reason, method);
  }
  const body = new ReadableStream();
  for (const init of [{}, { body, duplex: "half" }]) {
    assert.equal((await within(rejection(deposit(semel, "a", { ...init, signal: AbortSignal.abort() })), "it is aborted already", 5_000)).name, "AbortError");
  }
  assert.deepEqual([server.of("change").length, server.of("health").length, store.log], [0, 0, [["load"]]]);
});

test("aborting a call cancels it while it waits for an attempt, has one under way, or pauses", async (t) => {
  const { semel, server, next } = await pausing(t, { attemptTimeoutMs: 100 });
  const treatments = {
    // The timeout ends this attempt.
    "under way": (call, serve) => (call.n === 1 ? hang() : serve()),
    waiting: (call, serve) => (call.deadline > server.now() ? server.problem(call.key, 503, "unavailable") : serve()),
    pausing: (call) => refuse(server, call),
  };
  for (const [name, treat] of Object.entries(treatments)) {
    server.calls.length = 0;
    changes(server, treat);
    const giveUp = new AbortController();
    const answered = rejection(deposit(semel, "a", { signal: giveUp.signal }));
    await until(() => server.attempts.length > 0, "it was sent");
    if (name === "pausing") await next();
    giveUp.abort();
    isCancelled(await answered, server.attempts[0].id);
    assert.equal(server.of("cancel").length, 1, name);
  }
  assert.equal(server.runs.size, 0);
});

test("aborting a call while it is being stored cancels it, and it never runs", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  for (const account of ["a", "b"]) {
    const giveUp = new AbortController();
    store.before = async () => {
      await new Promise((resolve) => setImmediate(resolve));
      giveUp.abort();
    };
    const error = await rejection(deposit(semel, account, { signal: giveUp.signal }));
    isCancelled(error, error.requestId);
    // When the first request was stored, no clock was known, so no attempt can have left, and the request was taken back. The second may leave as
    // soon as its row is stored, so the key has to cancel it.
    assert.deepEqual(server.of("cancel").map((call) => call.json.id), account === "a" ? [] : [error.requestId]);
    store.before = async () => {};
    if (account === "a") assert.equal((await deposit(semel, "b")).status, 200);
  }
  assert.equal(server.runs.size, 1);
});

test("aborting a call while its answer is on its way brings the outcome", async (t) => {
  const { semel, server } = await outbox(t);
  const giveUp = new AbortController();
  changes(server, async (_call, serve) => {
    const answer = await serve();
    giveUp.abort();
    return answer;
  });
  assert.equal((await deposit(semel, "a", { signal: giveUp.signal })).status, 200);
  assert.equal(server.of("cancel").length, 0);
});

test("aborting after the answer does nothing, and one signal may serve many requests", async (t) => {
  const { semel, server } = await outbox(t);
  const giveUp = new AbortController();
  await Promise.all(["a", "b"].map((account) => deposit(semel, account, { signal: giveUp.signal })));
  assert.equal(getEventListeners(giveUp.signal, "abort").length, 0, "a signal may live for long");
  changes(server, hang);
  const others = ["a", "b"].map((account) => rejection(deposit(semel, account, { signal: giveUp.signal })));
  await until(() => server.attempts.length === 4, "all were sent");
  giveUp.abort();
  await new Promise((resolve) => setTimeout(resolve, 30));
  assert.equal(server.of("cancel").length, 0, "attempts are under way");
  await semel.close();
  for (const other of others) assert.equal((await other).code, "closed");
});

test("a call aborted before it is sent never ran, but is unknown if its id is the caller's own or a hash", async (t) => {
  const server = new Stub();
  for (const [ids, id, told] of [["uuid", undefined, "no never"], ["uuid", "order-42", "unknown same-id"], ["hash", undefined, "unknown same-id"]]) {
    const { semel } = await outbox(t, { server, ids });
    const giveUp = new AbortController();
    server.each = (call, serve) => {
      if (call.kind === "health") giveUp.abort();
      return serve();
    };
    const { code, executed, retry } = await rejection(deposit(semel, "a", { id, signal: giveUp.signal }));
    assert.deepEqual([code, `${executed} ${retry}`], ["cancelled", told], `${ids} ${id}`);
  }
  assert.equal(server.attempts.length, 0);
});

test("an abort reaches the key while an attempt hangs, and that attempt does not run later", async (t) => {
  const { semel, server } = await outbox(t, { attemptTimeoutMs: 60_000 });
  let arrive;
  server.each = (call, serve) => {
    if (call.kind !== "change" || call.n > 1) return serve();
    return new Promise((resolve) => (arrive = () => resolve(serve())));
  };
  const giveUp = new AbortController();
  const answered = rejection(deposit(semel, "a", { key: "accounts/a", signal: giveUp.signal }));
  await until(() => arrive, "it is under way");
  giveUp.abort();
  isCancelled(await within(answered, "it hears nothing", 5_000), server.attempts[0].id);
  arrive();
  await until(async () => (await semel.pending()).length === 0, "it is over");
  assert.equal(server.runs.size, 0);
});

test("a request in doubt that is aborted is asked for, and sent again if needed, until its outcome is known", async (t) => {
  // What the server behind the Worker answers: the outcome at once, the outcome after the request is sent again, that it never came, or a refusal.
  for (const [finds, kinds] of [["asked", ["cancel", "asks"]], ["sent", ["cancel", "asks", "sends"]], ["absent", ["cancel", "asks", "sends", "cancel"]], ["refused", ["cancel", "asks", "sends", "cancel", "asks"]]]) {
    const { semel, server } = await outbox(t);
    const giveUp = new AbortController();
    const inDoubt = (call) => server.problem(call.key, 409, "in-flight", { executed: "unknown", retry: "same-id" });
    let ends = inDoubt;
    server.each = (call, serve) => {
      if (call.kind === "cancel") return ends(call, serve);
      if (call.kind !== "change") return serve();
      if (call.n === 1) {
        giveUp.abort();
        return server.problem(call.key, 503, "unavailable", { executed: "unknown", retry: "same-id" });
      }
      if (call.deadline === 0 && ends !== inDoubt) return ends(call);
      if (call.deadline === 0) return finds === "asked" ? server.serve({ ...call, deadline: server.now() + 60_000 }) : inDoubt(call);
      if (finds === "sent") return serve();
      if (finds === "refused") {
        ends = ({ key }) => server.problem(key, 409, "outcome-unknown", { executed: "unknown", retry: "never" });
        // The path belongs to no route any more. No key's object says so.
        return server.problem(undefined, 404, "not-found", { executed: "no", retry: "after-fix" });
      }
      ends = (_, serveCancel) => serveCancel();
      return server.problem(call.key, 502, "upstream-unreachable", { executed: "no", retry: "same-id" });
    };
    const answered = deposit(semel, "a", { key: "accounts/a", signal: giveUp.signal });
    if (finds === "absent") isCancelled(await within(rejection(answered), finds, 10_000), server.attempts[0].id);
    else if (finds === "refused") assert.equal((await within(rejection(answered), finds, 10_000)).code, "outcome-unknown");
    else assert.equal((await within(answered, finds, 10_000)).status, 200);
    const told = server.calls.slice(2).map(({ kind, deadline }) => (kind === "change" ? (deadline === 0 ? "asks" : "sends") : kind));
    assert.deepEqual([told, server.runs.size, await semel.pending()], [kinds, ["absent", "refused"].includes(finds) ? 0 : 1, []], finds);
  }
});

test("an aborted request that waits for a place among the attempts is taken back at once, and never sent", async (t) => {
  const { semel, server } = await outbox(t, { maxAttempts: 1, ordered: false });
  let answer;
  changes(server, (call, serve) => new Promise((resolve) => (answer = () => resolve(serve()))));
  const first = deposit(semel);
  await until(() => answer, "the first is under way");
  const giveUp = new AbortController();
  const second = rejection(deposit(semel, "b", { signal: giveUp.signal }));
  await until(async () => (await semel.pending()).length === 2, "the second waits");
  giveUp.abort();
  const { code, executed, retry } = await within(second, "it hears nothing", 5_000);
  assert.deepEqual([code, executed, retry], ["cancelled", "no", "never"]);
  answer();
  assert.equal((await first).status, 200);
  assert.deepEqual([server.attempts.length, server.of("cancel").length, await semel.pending()], [1, 0, []]);
});

test("an abort at any moment after the body was read ends the call", async (t) => {
  const { cancel } = ReadableStreamDefaultReader.prototype;
  for (let turns = 0; turns < 12; turns += 1) {
    const { semel, server } = await outbox(t);
    server.each = (call, serve) => (call.kind === "change" ? lost() : serve());
    const aborting = new AbortController();
    const abortLater = async () => {
      for (let turn = 0; turn < turns; turn += 1) await undefined;
      aborting.abort();
    };
    // The SDK calls this once it has read a body.
    const read = t.mock.method(ReadableStreamDefaultReader.prototype, "cancel", function () {
      abortLater();
      return cancel.call(this);
    });
    const error = await within(rejection(deposit(semel, "a", { body: "body", signal: aborting.signal })), `abort ${turns} turns after the body was read`, 5_000);
    read.mock.restore();
    assert.ok(["AbortError", "CancelledError"].includes(error.name), String(error));
  }
});

test("a call aborted from a listener or the headers function, which then closes, is cancelled after the next open", async (t) => {
  for (const where of ["attempt", "refused", "settled", "headers"]) {
    const [store, giveUp] = [new Rows(), new AbortController()];
    let logOut = () => {};
    const { semel, server } = await outbox(t, { store, headers: () => (where === "headers" ? logOut() : undefined) });
    if (where !== "headers") semel.addEventListener(where, () => logOut());
    const fails = ({ key }) => (where === "settled" ? hang() : server.problem(key, 503, "unavailable", { executed: "no" }));
    changes(server, (call, serve) => (call.key === "accounts/b" ? serve() : fails(call)));
    const answered = rejection(deposit(semel, "a", { signal: giveUp.signal }));
    await until(() => server.attempts.length > 0, "it was sent");
    logOut = () => {
      giveUp.abort();
      semel.close();
    };
    if (where === "settled") await deposit(semel, "b");
    const { code, requestId } = await answered;
    assert.equal(code, "closed", where);
    const ran = server.runs.size;
    server.each = (_call, serve) => serve();
    const recovered = [];
    await outbox(t, { store, server, onrecovered: (one) => void recovered.push(one) });
    isCancelled((await until(() => recovered[0], `it is recovered: ${where}`)).error, requestId);
    assert.deepEqual([server.runs.size, recovered.length], [ran, 1], where);
  }
});

test("a change or a read made with a Request is aborted by that one's signal, even if the Request was collected as garbage", async (t) => {
  const { semel, server } = await outbox(t);
  server.each = (call, serve) => ({ change: () => server.problem(call.key, 503, "unavailable"), read: hang })[call.kind]?.() ?? serve();
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc");
  const url = "https://worker.test/accounts/a/deposit";
  const calls = [(init) => [new Request(url, init)], (init) => [new URL(url), new Request(url, init)]];
  for (const method of ["POST", "GET"]) {
    for (const given of calls) {
      const giveUp = new AbortController();
      const sent = server.calls.length;
      const rejected = rejection(semel.fetch(...given({ method, signal: giveUp.signal })));
      await until(() => server.calls.slice(sent).some(({ kind }) => ["change", "read"].includes(kind)), "it is sent");
      // In Node, the signal of a Request follows the given one only as long as there is the Request.
      for (let turn = 0; turn < 5; turn += 1) {
        await new Promise((resolve) => setTimeout(resolve, 1));
        collect();
      }
      giveUp.abort();
      assert.equal((await rejected).name, method === "POST" ? "CancelledError" : "AbortError", `${method} ${given}`);
    }
  }
});

test("a stream whose call is aborted is cancelled", async (t) => {
  const { semel } = await outbox(t);
  let cancelled = false;
  const body = new ReadableStream({ cancel: () => void (cancelled = true) });
  const cancelling = new AbortController();
  const made = deposit(semel, "a", { body, signal: cancelling.signal });
  await new Promise((resolve) => setTimeout(resolve, 10));
  cancelling.abort();
  await rejection(made);
  await until(() => cancelled, "the stream is cancelled", 500);
});
