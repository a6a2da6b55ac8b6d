// Tests request ids that the caller gives or that are hashes, and callers who wait for the answer of an id that somebody else sends.

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { CancelledError, ClosedError, FingerprintMismatchError, GaveUpError, OutcomeLostError } from "../../sdk/npm/node.js";
import { Rows, Stub, URL_OF_STUB, deposit, hang, lost, outbox, rejection, until, within } from "./stub.mjs";

/** An outbox whose `server` holds back the answers to changes until `letGo()`. */
async function held(t, options = {}) {
  const server = new Stub();
  let letGo;
  const gate = new Promise((resolve) => (letGo = resolve));
  server.each = async (call, serve) => {
    if (call.kind === "change") await gate;
    return serve();
  };
  const { semel } = await outbox(t, { server, ...options });
  return { semel, server, letGo };
}

const sent = (server, count = 1) => until(() => server.attempts.length >= count, "it was sent");

test("an id of the caller is sent, and a second call and outcome(id) under it get the same answer", async (t) => {
  const { semel, server, letGo } = await held(t);
  const both = [deposit(semel, "a", { id: 'order "7"' }), deposit(semel, "a", { id: 'order "7"' })];
  await sent(server);
  const third = semel.outcome('order "7"');
  letGo();
  const bodies = await Promise.all([...both, third].map(async (answer) => (await answer).json()));
  assert.deepEqual(bodies, Array(3).fill({ ran: 1, path: "/accounts/a/deposit" }));
  assert.deepEqual([server.attempts.length, server.attempts[0].id, [...server.runs.values()]], [1, 'order "7"', [1]]);
});

test("another request under a pending id is a FingerprintMismatchError, and leaves the first as it is", async (t) => {
  const { semel, server, letGo } = await held(t);
  const first = deposit(semel, "a", { id: "x" });
  await sent(server);
  for (const other of [{ body: "other" }, { method: "PUT" }, { headers: { "x-more": "1" } }, { key: "k" }]) {
    const error = await rejection(deposit(semel, "a", { id: "x", ...other }));
    assert.ok(error instanceof FingerprintMismatchError);
    assert.deepEqual([error.executed, error.retry, error.requestId], ["unknown", "after-fix", "x"], "the other may have run");
  }
  assert.ok((await rejection(deposit(semel, "b", { id: "x" }))) instanceof FingerprintMismatchError);
  letGo();
  assert.equal((await first).status, 200);
  assert.equal(server.runs.size, 1);
});

test("the signal of a refused call does not cancel what another call made under its id", async (t) => {
  const { semel, server } = await outbox(t, { maxPending: 1 });
  const giveUp = new AbortController();
  const { signal } = giveUp;
  const isNext = (code, call) => rejection(call).then((error) => assert.equal(error.code, code));
  server.each = (call, serve) => (call.kind === "change" && !signal.aborted ? lost() : serve());
  const other = deposit(semel, "a", { id: "order-0" });
  await isNext("outbox-full", deposit(semel, "a", { id: "order-1", signal }));
  server.each = (call, serve) => (call.kind === "change" && call.id === "order-1" && !signal.aborted ? lost() : serve());
  await other;
  await until(async () => (await semel.pending()).length === 0, "there is room");
  const first = deposit(semel, "a", { id: "order-1" });
  await isNext("fingerprint-mismatch", deposit(semel, "a", { id: "order-1", body: "another", signal }));
  await until(() => server.attempts.some(({ id }) => id === "order-1"), "it was sent");
  assert.equal(getEventListeners(signal, "abort").length, 0, "a signal may live for long");
  giveUp.abort();
  assert.equal((await first).status, 200);
});

test("invalid ids are refused before anything is stored or sent", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  for (const id of ["", "ä", "a\nb", "a\tb", "x".repeat(201), "cancel-x", 7, null, {}]) {
    assert.ok((await rejection(deposit(semel, "a", { id }))) instanceof TypeError, String(id));
    assert.ok((await rejection(semel.outcome(id))) instanceof TypeError, String(id));
  }
  assert.deepEqual([server.calls.length, store.log.length], [0, 1]);
  assert.equal((await deposit(semel, "a", { id: "x".repeat(200) })).status, 200);
});

test("invalid keys are refused before anything is stored or sent", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  // The last key ends in half of a surrogate pair, which UTF-8 can't encode.
  for (const key of ["", ".", "..", "a\nb", "\x7f", "x".repeat(513), "ä".repeat(257), 7, null, {}, "a\ud83d"]) {
    for (const call of [() => deposit(semel, "a", { key }), () => semel.session(key, "s", { store })]) assert.ok((await rejection(call())) instanceof TypeError, String(key));
  }
  assert.deepEqual([server.calls.length, store.log.length], [0, 1]);
});

test("with hashes as ids equal pending requests are one, and a difference in any part makes another", async (t) => {
  const { semel, server, letGo } = await held(t, { ids: "hash", identity: "alice", ordered: false });
  const { digest } = crypto.subtle;
  let hashes = 0;
  t.mock.method(crypto.subtle, "digest", async (...given) => {
    const made = await digest.apply(crypto.subtle, given);
    hashes += 1;
    return made;
  });
  const calls = [
    deposit(semel),
    deposit(semel),
    deposit(semel, "b"),
    deposit(semel, "a", { body: '{"amount":6}' }),
    deposit(semel, "a", { method: "PUT" }),
    deposit(semel, "a", { key: "accounts/a" }),
    deposit(semel, "a", { salt: 1 }),
    deposit(semel, "a", { salt: () => "1" }),
    semel.fetch("/accounts/a/deposit?at=noon", { method: "POST", body: '{"amount":5}' }),
    deposit(semel, "a", { id: "own" }),
  ];
  await sent(server, 8);
  // An equal call that is made after the answer would be refused, so all have to be made before it.
  await until(() => hashes === calls.length - 1, "those that are the same have joined");
  await new Promise((resolve) => setImmediate(resolve));
  letGo();
  await Promise.all(calls);
  const ids = server.attempts.map((call) => call.id);
  assert.deepEqual([ids.length, new Set(ids).size], [8, 8]);
  assert.ok(ids.filter((id) => id !== "own").every((id) => /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(id)));
  for (const other of [{ identity: "bob" }, { salt: "another" }]) {
    const { semel: its, server: seen } = await outbox(t, { ids: "hash", identity: "alice", ...other });
    await deposit(its);
    assert.ok(!ids.includes(seen.attempts[0].id), Object.keys(other)[0]);
  }
});

test("with hashes as ids, a salt and a body that join to the same text are still two requests", async (t) => {
  const { semel, server } = await outbox(t, { ids: "hash" });
  await deposit(semel, "a", { salt: "x", body: "yz" });
  await deposit(semel, "a", { salt: "xy", body: "z" });
  assert.equal(new Set(server.attempts.map((call) => call.id)).size, 2);
});

test("calls to one key keep their order, even if the body of the first takes longer to read", async (t) => {
  const { semel, server } = await outbox(t);
  let end;
  const slow = new ReadableStream({
    start(controller) {
      controller.enqueue(new TextEncoder().encode("slow"));
      end = () => controller.close();
    },
  });
  const first = deposit(semel, "a", { body: slow });
  const second = deposit(semel, "a", { body: "fast" });
  const elsewhere = await deposit(semel, "b", { body: "other" });
  assert.equal(elsewhere.status, 200);
  assert.equal(server.attempts.length, 1);
  end();
  await Promise.all([first, second]);
  assert.deepEqual(server.attempts.map((call) => call.body), ["other", "slow", "fast"]);
});

test("calls that name one key keep their order, whatever their paths", async (t) => {
  const { semel, server } = await outbox(t);
  let end;
  const slow = new ReadableStream({ start: (controller) => void (end = () => controller.close()) });
  const calls = [semel.fetch("/first", { method: "POST", key: "k", body: slow, duplex: "half" }), semel.fetch("/second", { method: "POST", key: "k" })];
  await deposit(semel, "b");
  end();
  await Promise.all(calls);
  assert.deepEqual(server.attempts.map(({ path }) => path), ["/accounts/b/deposit", "/first", "/second"]);
});

test("a call waits for every earlier call whose body takes longer, even after the first of them was sent", async (t) => {
  const { semel, server } = await outbox(t);
  const open = [];
  const slow = () => deposit(semel, "a", { body: new ReadableStream({ start: (source) => void open.push(source) }), duplex: "half" });
  const finish = (index, text) => (open[index].enqueue(new TextEncoder().encode(text)), open[index].close());
  const answering = [slow(), slow()];
  finish(0, "first");
  await answering[0];
  await new Promise((resolve) => setImmediate(resolve));
  answering.push(deposit(semel, "a", { body: "last" }));
  await new Promise((resolve) => setImmediate(resolve));
  finish(1, "second");
  await Promise.all(answering);
  assert.deepEqual(server.attempts.map(({ body }) => body), ["first", "second", "last"]);
});

test("a call that fails while its body is read does not hold up later calls", async (t) => {
  const { semel, server } = await outbox(t);
  const broken = new ReadableStream({ pull: (controller) => controller.error(new Error("broken")) });
  const endless = new AbortController();
  const calls = [deposit(semel, "a", { body: broken }), deposit(semel, "a", { body: new ReadableStream(), signal: endless.signal }), deposit(semel)];
  assert.match((await rejection(calls[0])).message, /broken/);
  endless.abort();
  assert.equal((await rejection(calls[1])).name, "AbortError");
  assert.equal((await calls[2]).status, 200);
  assert.equal(server.runs.size, 1);
});

test("aborting one of two calls under an id cancels both, and aborting outcome(id) cancels nothing", async (t) => {
  const server = new Stub();
  server.each = (call, serve) => (call.kind === "change" && call.n === 1 ? hang() : serve());
  const { semel } = await outbox(t, { server, attemptTimeoutMs: 100 });
  const first = rejection(deposit(semel, "a", { id: "x" }));
  await sent(server);
  const stop = new AbortController();
  const asking = rejection(semel.outcome("x", { signal: stop.signal }));
  stop.abort();
  assert.equal((await asking).name, "AbortError");
  const giveUp = new AbortController();
  const other = rejection(deposit(semel, "a", { id: "x", signal: giveUp.signal }));
  // The next call gets its place only after the calls before it have theirs.
  const next = deposit(semel);
  await until(() => semel.getSnapshot().pending === 2, "all are in hand");
  giveUp.abort();
  for (const error of await Promise.all([other, first])) assert.ok(error instanceof CancelledError, String(error));
  assert.equal((await next).status, 200);
  assert.equal(server.runs.size, 1);
});

test("outcome(id) gets the answer to another outbox's request, and aborting it only ends the waiting", async (t) => {
  const store = new Rows();
  const { semel: first, server, letGo } = await held(t, { store });
  // The second outbox is open before the request exists, so it doesn't take the request over.
  const { semel: second } = await outbox(t, { store, server });
  const answer = deposit(first, "a", { id: "x" });
  await sent(server);
  const stop = new AbortController();
  const [left, waiting] = [rejection(second.outcome("x", { signal: stop.signal })), second.outcome("x")];
  stop.abort(new Error("enough"));
  assert.equal((await left).message, "enough");
  await until(() => store.log.filter(([what]) => what === "change").length >= 4, "it has looked twice");
  letGo();
  assert.equal((await answer).status, 200);
  assert.deepEqual([(await waiting).status, server.attempts.length], [200, 1]);
});

test("giveUp of another outbox's request ends only the waiting here, and cancels nothing", async (t) => {
  const store = new Rows();
  const { semel: first, server, letGo } = await held(t, { store });
  const { semel: second } = await outbox(t, { store, server });
  const answer = deposit(first, "a", { id: "x" });
  await sent(server);
  second.giveUp("x");
  const waiting = rejection(second.outcome("x"));
  await until(() => store.log.filter(([what]) => what === "change").length >= 4, "it has looked twice");
  second.giveUp("x");
  assert.equal((await waiting).code, "gave-up");
  letGo();
  assert.equal((await answer).status, 200);
  assert.deepEqual([server.of("cancel"), server.runs.size], [[], 1]);
});

test("outcome(id) of an id that was answered or never used is an OutcomeLostError", async (t) => {
  const { semel } = await outbox(t);
  await deposit(semel, "a", { id: "x" });
  for (const id of ["x", "never"]) {
    const error = await rejection(semel.outcome(id));
    assert.ok(error instanceof OutcomeLostError);
    assert.deepEqual([error.executed, error.retry, error.requestId], ["unknown", "never", id]);
  }
});

test("outcome(id) takes an answer that was recovered and not taken, and onrecovered does not get it then", async (t) => {
  const store = new Rows();
  const server = new Stub();
  server.each = (call, serve) => (call.kind === "change" ? hang() : serve());
  const { semel: first } = await outbox(t, { store, server });
  const lost = rejection(deposit(first, "a", { id: "x" }));
  await sent(server);
  await first.close();
  assert.ok((await lost) instanceof ClosedError);
  server.each = (_call, serve) => serve();
  const { semel } = await outbox(t, { store, server });
  await until(async () => (await semel.pending())[0]?.state === "answered", "its answer waits");
  const response = await semel.outcome("x");
  assert.deepEqual([response.status, response.url], [200, `${URL_OF_STUB}/accounts/a/deposit`]);
  const recovered = [];
  semel.onrecovered = (each) => void recovered.push(each);
  await until(async () => (await semel.pending()).length === 0, "it is settled");
  assert.deepEqual(recovered, []);
});

test("close ends the waiting in outcome(id), and more waiting ids than maxPending are refused", async (t) => {
  const store = new Rows();
  const { semel: first, server } = await held(t, { store });
  const { semel } = await outbox(t, { store, server, maxPending: 1 });
  deposit(first, "a", { id: "x" }).catch(() => {});
  await sent(server);
  assert.equal((await within(rejection(semel.outcome("x", { signal: AbortSignal.abort() })), "it is aborted already", 5_000)).name, "AbortError");
  // A caller who has left doesn't count as waiting either.
  const leaving = new AbortController();
  const gone = rejection(semel.outcome("z", { signal: leaving.signal }));
  leaving.abort();
  await gone;
  // A second caller who asks for the same id doesn't count as another one.
  const waiting = [rejection(semel.outcome("x")), rejection(semel.outcome("x"))];
  assert.ok((await rejection(semel.outcome("y"))) instanceof RangeError);
  await semel.close();
  for (const error of await Promise.all(waiting)) assert.ok(error instanceof ClosedError);
  assert.ok((await rejection(semel.outcome("x"))) instanceof TypeError);
});

test("an aborted call that joined another outbox's request is told GaveUpError, and the request goes on", async (t) => {
  const store = new Rows();
  const { semel: first, server, letGo } = await held(t, { store });
  const { semel } = await outbox(t, { store, server });
  const answer = deposit(first, "a", { id: "x" });
  await sent(server);
  const giveUp = new AbortController();
  const joined = rejection(deposit(semel, "a", { id: "x", signal: giveUp.signal }));
  await until(() => store.log.filter(([what]) => what === "change").length >= 3, "it has joined");
  giveUp.abort();
  assert.ok((await joined) instanceof GaveUpError);
  letGo();
  assert.equal((await answer).status, 200);
});

test("an id that another tab uses again before its acknowledged row is removed keeps its new row", async (t) => {
  const store = new Rows();
  let pending;
  const { change, remove } = store;
  store.change = (id, to) => change.call(store, id, (row) => {
    const made = to(row);
    pending ??= made?.slice();
    return made;
  });
  store.remove = async (ids, isDone) => {
    store.rows.set(ids[0], pending);
    await remove.call(store, ids, isDone);
  };
  const { semel } = await outbox(t, { store });
  await deposit(semel, "a", { id: "x" });
  // The second deposit carries the acknowledgement of x.
  await deposit(semel, "a");
  await until(() => store.log.some(([what]) => what === "remove"), "it is acknowledged");
  assert.deepEqual([...store.rows.keys()].includes("x"), true);
});

test("an aborted call does not let a later call pass an earlier one", async (t) => {
  const { semel, server } = await outbox(t);
  let source;
  const first = deposit(semel, "a", { body: new ReadableStream({ start: (its) => void (source = its) }), duplex: "half" });
  const giveUp = new AbortController();
  const aborted = rejection(deposit(semel, "a", { body: "aborted", signal: giveUp.signal }));
  giveUp.abort();
  assert.equal((await aborted).name, "AbortError");
  const last = deposit(semel, "a", { body: "last" });
  await deposit(semel, "b", { body: "elsewhere" });
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.deepEqual(server.attempts.map(({ body }) => body), ["elsewhere"]);
  source.enqueue(new TextEncoder().encode("first"));
  source.close();
  await Promise.all([first, last]);
  assert.deepEqual(server.attempts.map(({ body }) => body), ["elsewhere", "first", "last"]);
});

test("a refused call does not count as waiting, so onrecovered gets the recovered answer", async (t) => {
  const [store, server] = [new Rows(), new Stub()];
  let isThere = false;
  server.each = (call, serve) => (call.kind === "change" && !isThere ? lost() : serve());
  const { semel: before } = await outbox(t, { server, store });
  const made = rejection(deposit(before, "a", { id: "x" }));
  await until(() => server.attempts.length > 0, "it was sent");
  await before.close();
  await made;
  const recovered = [];
  const { semel } = await outbox(t, { server, store, onrecovered: ({ requestId, response }) => void recovered.push([requestId, response.status]) });
  assert.ok((await rejection(deposit(semel, "a", { id: "x", body: "another" }))) instanceof FingerprintMismatchError);
  const stop = new AbortController();
  const asking = rejection(semel.outcome("x", { signal: stop.signal }));
  stop.abort();
  assert.equal((await asking).name, "AbortError");
  isThere = true;
  await until(() => semel.getSnapshot().pending === 0, "it has its answer");
  assert.deepEqual(recovered, [["x", 200]]);
});
