// Tests acknowledgements: an outbox tells a key which answers have come, along with the next request or by itself.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Rows, Stub, deposit, lost, minutes, outbox, problem, until } from "./stub.mjs";

test("an acknowledgement rides on the next request to its key, with the latest deadline of its attempts", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  server.each = (call, serve) => (call.kind === "change" && call.n < 3 ? lost() : serve());
  await deposit(semel);
  const [first, , last] = server.attempts;
  await until(async () => (await semel.pending()).length === 0, "it is settled");
  await deposit(semel, "b");
  const other = server.attempts.at(-1);
  assert.deepEqual(other.acks, [], "not to another key");
  await until(async () => (await semel.pending()).length === 0, "it is settled");
  await deposit(semel);
  const next = server.attempts.at(-1);
  assert.deepEqual(next.acks, [[first.id, last.deadline]]);
  assert.deepEqual(server.record("accounts/a", first.id), { state: "acknowledged", executed: "yes", until: last.deadline, principal: "" });
  await until(() => !store.rows.has(first.id), "its row is gone");
  await deposit(semel);
  assert.deepEqual(server.attempts.at(-1).acks.map(([id]) => id), [next.id], "and it is not acknowledged again");
  assert.ok(store.rows.has(other.id) && server.of("acks").length === 0);
});

test("an acknowledgement rides on each request until the key has answered one of them", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  await deposit(semel);
  const [{ id }] = server.attempts;
  await until(async () => (await semel.pending()).length === 0, "it is settled");
  const answers = [
    lost,
    () => new Response("<h1>Log in</h1>"),
    () => problem(400, "rate-limited", { executed: "no", retry: "same-id" }),
    () => server.problem("accounts/a", 500, "rolled-back", { executed: "no" }),
  ];
  server.each = (call, serve) => answers.shift()?.() ?? serve();
  await deposit(semel);
  const rides = server.attempts.slice(1).map(({ acks }) => acks.map(([acknowledged]) => acknowledged));
  assert.deepEqual(rides, [[id], [id], [id], [id], []], "a refusal of the key has applied it");
});

test("an outbox acknowledges at once the answers that the outbox before it left", async (t) => {
  const [store, server] = [new Rows(), new Stub()];
  const { semel } = await outbox(t, { store, server });
  await Promise.all([deposit(semel), deposit(semel), deposit(semel, "b")]);
  await until(async () => (await semel.pending()).length === 0, "all are settled");
  await semel.close();
  const left = new Map([...store.rows.keys()].map((id) => [id, server.attempts.findLast((call) => call.id === id)]));
  assert.equal(left.size, 3);
  server.calls.length = 0;
  // The clock stands still, so no time passes in which the acknowledgements could look for a ride.
  const nowMs = performance.now();
  const stopped = t.mock.method(performance, "now", () => nowMs);
  await outbox(t, { store, server });
  await until(() => store.rows.size === 0, "all are acknowledged");
  stopped.mock.restore();
  assert.deepEqual(server.calls.map(({ kind, path }) => [kind, path]).sort(), [
    ["acks", "/semel/v1/keys/accounts%2Fa/acks"],
    ["acks", "/semel/v1/keys/accounts%2Fb/acks"],
  ]);
  const told = server.of("acks").flatMap(({ json }) => json.ids.map(({ id, until: latest }) => [id, latest]));
  assert.deepEqual(new Map(told), new Map([...left].map(([id, { deadline }]) => [id, deadline])));
});

test("an acknowledgement that is refused is not sent by itself any more, until the application resumes what is paused", async (t) => {
  const [store, server] = [new Rows(), new Stub()];
  const { semel } = await outbox(t, { store, server });
  await deposit(semel);
  await until(async () => (await semel.pending()).length === 0, "it is settled");
  await semel.close();
  server.each = (call, serve) => (call.kind === "acks" ? problem(403, "forbidden", { executed: "no", retry: "after-fix" }) : serve());
  const minute = minutes(t);
  const { semel: next } = await outbox(t, { store, server });
  for (let n = 0; n < 3; n += 1) await minute();
  assert.deepEqual([server.of("acks").length, store.rows.size], [1, 1]);
  server.each = (_call, serve) => serve();
  next.resume();
  await until(() => store.rows.size === 0, "it is acknowledged");
  assert.equal(server.of("acks").length, 2);
});

// These tests wait for the five seconds in which an acknowledgement looks for a ride on another request.
describe("without a request to ride on", { concurrency: true }, () => {
  test("an acknowledgement is sent by itself after 5 s, under the outbox's identity", async (t) => {
    const store = new Rows();
    const { semel, server } = await outbox(t, { store, identity: "alice", headers: { authorization: "Bearer alice" } });
    await Promise.all([deposit(semel), deposit(semel, "b")]);
    const answered = performance.now();
    await until(() => store.rows.size === 0, "all are acknowledged", 8_000);
    assert.deepEqual([server.of("acks").length, server.attempts.length], [2, 2]);
    for (const call of server.of("acks")) {
      const waited = call.startedMs - answered;
      assert.ok(waited > 4_900 && waited < 7_000, `${waited} ms`);
      const { id, deadline } = server.attempts.find(({ key }) => key === call.key);
      assert.deepEqual(call.json, { ids: [{ id, until: deadline }] });
      assert.deepEqual([call.principal, call.headers.get("authorization"), call.id], ["alice", "Bearer alice", undefined]);
      assert.equal(server.record(call.key, id).state, "acknowledged");
    }
  });

  test("an acknowledgement that its key did not answer is sent again 5 s later", async (t) => {
    const [store, server] = [new Rows(), new Stub()];
    const { semel } = await outbox(t, { store, server });
    await deposit(semel);
    await until(async () => (await semel.pending()).length === 0, "it is settled");
    await semel.close();
    server.each = (call, serve) => (call.kind === "acks" && call.n === 1 ? new Response(null, { status: 204 }) : serve());
    await outbox(t, { store, server });
    await until(() => store.rows.size === 0, "it is acknowledged", 8_000);
    const [first, second] = server.of("acks");
    const waited = second.startedMs - first.endedMs;
    assert.deepEqual([server.of("acks").length, first.body], [2, second.body]);
    assert.ok(waited > 4_900 && waited < 7_000, `${waited} ms`);
  });
});
