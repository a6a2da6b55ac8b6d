// Tests how requests pause, go on and are given up: `onpaused`, `resume` and `giveUp`. `aborting.test.mjs` has calls that are aborted by a signal.

import assert from "node:assert/strict";
import { test } from "node:test";
import { SemelError } from "../../sdk/npm/node.js";
import { changes, isCancelled, pausing, refuse } from "./giving-up.mjs";
import { Rows, Stub, deposit, hang, lost, minutes, outbox, rejection, until, within } from "./stub.mjs";

test("a request that needs a fix pauses, onpaused is told, and resume sends it again under the same id", async (t) => {
  const minute = minutes(t);
  const { semel, server, told, next } = await pausing(t);
  let isMended = false;
  changes(server, (call, serve) => (isMended ? serve() : refuse(server, call)));
  const answered = deposit(semel);
  const paused = await next();
  const { requestId, method, url, error } = paused;
  assert.deepEqual([requestId, method, url], [server.attempts[0].id, "POST", "https://worker.test/accounts/a/deposit"]);
  assert.ok(error instanceof SemelError);
  assert.deepEqual([error.code, error.executed, error.retry, error.requestId], ["key-mismatch", "unknown", "after-fix", requestId]);
  assert.deepEqual([error.problem.code, error.problem.executed], ["key-mismatch", "no"], "the problem is what the server said");
  assert.deepEqual(await semel.pending(), [{ requestId, method, url, attempts: 1, state: "paused" }]);
  await minute();
  assert.equal(server.attempts.length, 1, "nothing is sent while it pauses");
  // The request is not mended yet, so `onpaused` is told once more.
  paused.resume();
  await minute();
  await next(2);
  isMended = true;
  told[1].resume();
  told[1].resume();
  await minute();
  assert.equal((await answered).status, 200);
  assert.equal(server.attempts.length, 3);
  assert.equal(new Set(server.attempts.map(({ id, firstSent }) => id + firstSent)).size, 1);
  told[1].resume();
  told[1].giveUp();
  await minute();
  assert.deepEqual([server.attempts.length, server.of("cancel").length], [3, 0], "it is too late for both");
});

test("giveUp asks the key to cancel the request, and the caller learns that it never ran and never will", async (t) => {
  const { semel, server, next } = await pausing(t, { identity: "alice" });
  changes(server, (call) => refuse(server, call));
  const answered = rejection(deposit(semel, "a b"));
  const { giveUp, requestId } = await next();
  giveUp();
  isCancelled(await answered, requestId);
  const [cancel] = server.of("cancel");
  const [attempt] = server.attempts;
  assert.equal(server.attempts.length, 1);
  assert.equal(cancel.path, "/semel/v1/keys/accounts%2Fa%20b/cancel");
  assert.deepEqual(cancel.json, { id: requestId, firstSent: Number(attempt.firstSent.slice(1)) });
  assert.notEqual(cancel.id, requestId, "a cancellation has an id of its own");
  assert.deepEqual([cancel.method, cancel.principal, cancel.headers.get("content-type")], ["POST", "alice", "application/json"]);
  assert.ok(Math.abs(cancel.deadline - server.now() - 10_000) < 1_000);
  assert.equal(server.record(cancel.key, requestId).state, "cancelled");
  assert.deepEqual([server.runs.size, await semel.pending()], [0, []]);
});

test("giveUp brings the outcome if the request had run", async (t) => {
  const { semel, server, next } = await pausing(t);
  changes(server, async (call, serve) => {
    if (call.n === 1) {
      await serve();
      throw new TypeError("fetch failed");
    }
    return call.n === 2 ? refuse(server, call, 401, "unauthorized") : serve();
  });
  const answered = deposit(semel);
  (await next()).giveUp();
  const response = await answered;
  assert.deepEqual([response.status, await response.json()], [200, { ran: 1, path: "/accounts/a/deposit" }]);
  assert.deepEqual([server.of("cancel").length, server.runs.get(server.attempts[0].id)], [1, 1]);
});

test("a cancellation is sent again until it is answered, under one id and while its row is stored", async (t) => {
  const store = new Rows();
  const { semel, server, next } = await pausing(t, { store });
  server.each = async (call, serve) => {
    if (call.kind === "change") return refuse(server, call);
    if (call.kind !== "cancel") return serve();
    const [what, , how] = store.log.at(-1);
    assert.deepEqual([what, how], ["change", "put"]);
    if (call.n === 1) return lost();
    if (call.n === 2) return new Response("{}", { headers: { "content-type": "application/json" } });
    const answer = await serve();
    if (call.n === 3) throw new TypeError("fetch failed");
    return answer;
  };
  const answered = rejection(deposit(semel));
  const { giveUp, requestId } = await next();
  giveUp();
  isCancelled(await answered, requestId);
  assert.equal(server.of("cancel").length, 4);
  assert.equal(new Set(server.of("cancel").map(({ id, body, firstSent }) => id + body + firstSent)).size, 1);
});

test("a request given up before its key is known never runs: an attempt past its deadline learns the key", async (t) => {
  const { semel, server } = await outbox(t);
  const giveUp = new AbortController();
  changes(server, (call, serve) => {
    if (call.n > 1) return serve();
    giveUp.abort();
    return lost();
  });
  const error = await rejection(deposit(semel, "a", { signal: giveUp.signal }));
  isCancelled(error, server.attempts[0].id);
  assert.deepEqual(server.calls.map(({ kind }) => kind), ["health", "change", "change", "cancel"]);
  const [first, probe] = server.attempts;
  assert.deepEqual([probe.id, probe.firstSent, probe.body], [first.id, first.firstSent, first.body]);
  assert.ok(probe.deadline < server.now(), `${probe.deadline} is over`);
  assert.equal(server.runs.size, 0);
});

test("a request given up before its key is known brings its outcome if it had run", async (t) => {
  const { semel, server } = await outbox(t);
  const giveUp = new AbortController();
  changes(server, async (call, serve) => {
    const answer = await serve();
    if (call.n > 1) return answer;
    giveUp.abort();
    throw new TypeError("fetch failed");
  });
  const response = await deposit(semel, "a", { signal: giveUp.signal });
  assert.equal((await response.json()).ran, 1);
  assert.deepEqual(server.calls.map(({ kind }) => kind), ["health", "change", "change"]);
});

test("a request given up before its key is known repeats late attempts until one of them tells the key", async (t) => {
  const { semel, server } = await outbox(t);
  const giveUp = new AbortController();
  changes(server, (call, serve) => {
    giveUp.abort();
    if (call.n > 1) assert.ok(call.deadline < server.now());
    if (call.n === 2) return new Response("<h1>Log in</h1>");
    if (call.n === 3) return server.problem(undefined, 503, "unavailable");
    return call.n < 5 ? lost() : serve();
  });
  isCancelled(await rejection(deposit(semel, "a", { signal: giveUp.signal })), server.attempts[0].id);
  assert.deepEqual([server.attempts.length, server.of("cancel").length, server.runs.size], [5, 1, 0]);
});

test("giveUp settles the caller even if every attempt is refused without a key", async (t) => {
  // The Worker refuses a malformed path like this, without asking an object.
  const { semel, server, next } = await pausing(t);
  changes(server, () => server.problem(undefined, 400, "key-invalid", { executed: "no", retry: "after-fix" }));
  const answered = Promise.allSettled([semel.fetch("/a//b", { method: "POST" })]);
  (await next()).giveUp();
  const [{ status, reason }] = await within(answered, "giveUp", 5_000);
  assert.equal(status, "rejected");
  assert.ok(reason instanceof SemelError);
});

test("a cancellation that pauses is told to onpaused, and goes on after resume", async (t) => {
  const { semel, server, next } = await pausing(t);
  server.each = (call, serve) => {
    if (call.kind === "change") return refuse(server, call);
    return call.kind === "cancel" && call.n === 1 ? refuse(server, call, 401, "unauthorized") : serve();
  };
  const answered = rejection(deposit(semel));
  const { giveUp, requestId } = await next();
  giveUp();
  const second = await next(2);
  assert.deepEqual([second.requestId, second.error.code], [requestId, "unauthorized"]);
  semel.resume();
  isCancelled(await answered, requestId);
  assert.equal(server.attempts.length, 1);
});

test("a cancellation that is answered with a problem of the record rejects the call with that problem", async (t) => {
  const { semel, server, next } = await pausing(t);
  server.each = (call, serve) => {
    if (call.kind === "change" && call.n === 1) return refuse(server, call);
    return call.kind === "change" || call.kind === "cancel" ? server.problem(call.key, 410, "outcome-expired", { executed: "yes", retry: "never" }) : serve();
  };
  const answered = rejection(deposit(semel));
  (await next()).giveUp();
  const { code, executed, retry } = await answered;
  assert.deepEqual({ code, executed, retry }, { code: "outcome-expired", executed: "yes", retry: "never" });
});

test("a cancellation goes on after the next open", async (t) => {
  const store = new Rows();
  const { semel, server, next } = await pausing(t, { store });
  server.each = (call, serve) => (call.kind === "change" && call.n === 1 ? refuse(server, call) : call.kind === "cancel" ? hang() : serve());
  const answered = rejection(deposit(semel));
  const { giveUp, requestId } = await next();
  giveUp();
  await until(() => server.of("cancel").length === 1, "it was sent");
  await semel.close();
  assert.equal((await answered).code, "closed");
  server.each = (_call, serve) => serve();
  const recovered = [];
  await outbox(t, { store, server, onrecovered: (one) => void recovered.push(one) });
  const { error } = await until(() => recovered[0], "it is recovered");
  isCancelled(error, requestId);
  assert.deepEqual([server.runs.size, new Set(server.of("cancel").map(({ id }) => id)).size], [0, 1]);
});

for (const [status, code] of [
  [401, "unauthorized"],
  [403, "forbidden"],
]) {
  test(`${status} pauses every request that gets it, and semel.resume() sends them with other credentials`, async (t) => {
    let token = "old";
    const { semel, server, told, next } = await pausing(t, { headers: () => ({ authorization: `Bearer ${token}` }) });
    changes(server, (call, serve) => (call.headers.get("authorization") === "Bearer new" ? serve() : refuse(server, call, status, code)));
    const answered = Promise.all(["a", "b", "c"].map((account) => deposit(semel, account)));
    await next(3);
    assert.deepEqual(told.map(({ error }) => [error.code, error.executed, error.problem.status]), Array(3).fill([code, "unknown", status]));
    token = "new";
    semel.resume();
    assert.deepEqual((await answered).map((response) => response.status), [200, 200, 200]);
    assert.deepEqual([server.attempts.length, server.runs.size], [6, 3]);
  });
}

test("resume does nothing while no request is paused", async (t) => {
  const { semel, server } = await outbox(t);
  semel.resume();
  server.each = (call, serve) => {
    semel.resume();
    return call.kind === "change" && call.n < 3 ? lost() : serve();
  };
  await deposit(semel);
  semel.resume();
  assert.equal(server.attempts.length, 3);
});

test("without onpaused a pause is a warning, and the request stays pending until it is resumed", async (t) => {
  const { semel, server } = await outbox(t, { onpaused: null });
  const warn = t.mock.method(console, "warn", () => {});
  let isMended = false;
  changes(server, (call, serve) => (isMended ? serve() : refuse(server, call)));
  const answered = deposit(semel);
  await until(() => warn.mock.callCount() === 1, "it warns");
  assert.match(warn.mock.calls[0].arguments.join(" "), /POST .*\/accounts\/a\/deposit .*onpaused.*key-mismatch/);
  await until(async () => (await semel.pending())[0].state === "paused", "it pauses");
  isMended = true;
  semel.resume();
  assert.equal((await answered).status, 200);
  assert.equal(warn.mock.callCount(), 1);
});

test("onpaused can be set and changed after open", async (t) => {
  const { semel, server } = await outbox(t);
  assert.deepEqual([semel.onpaused, semel.onrecovered], [null, null]);
  changes(server, (call, serve) => (call.n < 3 ? refuse(server, call) : serve()));
  const told = [];
  semel.onpaused = (paused) => {
    told.push("one");
    semel.onpaused = (other) => {
      told.push("other");
      other.resume();
    };
    paused.resume();
  };
  assert.equal((await deposit(semel)).status, 200);
  assert.deepEqual(told, ["one", "other"]);
});

test("a cancelled request is acknowledged under its own id and that of its cancellation", async (t) => {
  const { semel, server, next } = await pausing(t);
  changes(server, (call, serve) => (call.n === 1 ? refuse(server, call) : serve()));
  const answered = rejection(deposit(semel));
  (await next()).giveUp();
  await answered;
  const [{ id, deadline }] = server.attempts;
  const [cancel] = server.of("cancel");
  await until(async () => (await semel.pending()).length === 0, "it is settled");
  await deposit(semel);
  assert.deepEqual(new Set(server.attempts[1].acks.map(([acknowledged]) => acknowledged)), new Set([id, cancel.id]));
  for (const [, latest] of server.attempts[1].acks) assert.ok(latest >= cancel.deadline && latest >= deadline, `${latest}`);
});

test("two outboxes on one server cancel only their own requests", async (t) => {
  const server = new Stub();
  const [one, other] = [await pausing(t, { server }), await pausing(t, { server })];
  changes(server, (call) => refuse(server, call));
  const both = [one, other].map(({ semel }) => rejection(deposit(semel)));
  const [first, second] = [await one.next(), await other.next()];
  first.giveUp();
  isCancelled(await both[0], first.requestId);
  assert.deepEqual((await other.semel.pending()).map(({ requestId, state }) => [requestId, state]), [[second.requestId, "paused"]]);
  second.giveUp();
  isCancelled(await both[1], second.requestId);
});
