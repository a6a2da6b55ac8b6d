// Tests sessions (`semel.session`) against a stub of a key that keeps to the protocol.

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { FencedError, SemelError, SessionUnknownError } from "../../sdk/npm/node.js";
import { deposit, outbox, SessionStub, SharedRows } from "./session-stub.mjs";
import { hang, lost, problem, rejection, until, within } from "./stub.mjs";

const ran = async (response) => (await response).json();

test("the first call of a session goes alone and at once, later ones go in one batch, and each gets its answer", async (t) => {
  const { semel, server } = await outbox(t, { headers: { authorization: "Bearer t", "x-tenant": "n" } });
  const session = await semel.session("accounts/a", "s");
  assert.deepEqual([session.key, session.name, session.epoch, session.lastSeq], ["accounts/a", "s", 1, 0]);
  let answer;
  const answered = new Promise((resolve) => (answer = resolve));
  server.each = async (_call, serve) => (await answered, serve());
  const first = ran(deposit(session, "a"));
  await until(() => server.frames.length === 1, "the first has left");
  const others = ["b", "ü", "\u0001\u0002"].map((body) => ran(deposit(session, body)));
  // The module is told of the calls in the turn in which they are made.
  await new Promise(setImmediate);
  answer();
  const answers = await Promise.all([first, ...others]);
  assert.deepEqual(answers, [{ ran: "a" }, { ran: "b" }, { ran: "ü" }, { ran: "\u0001\u0002" }]);
  assert.deepEqual(server.frames.map(({ path }) => path), ["/accounts/a/deposit", "/semel/v1/keys/accounts%2Fa/batch"]);
  const [alone, batch] = server.frames;
  assert.equal(alone.headers.get("semel-session"), '"s";epoch=1;seq=1');
  assert.equal(alone.headers.get("semel-key"), '"accounts/a"');
  assert.deepEqual(
    [batch.headers.get("authorization"), batch.headers.get("semel-principal"), batch.headers.get("content-type")],
    ["Bearer t", '"alice"', "application/json"],
  );
  const headers = { "content-type": "text/plain;charset=UTF-8", "x-tenant": "n" };
  assert.deepEqual(batch.elements[0], { session: { name: "s", epoch: 1, seq: 2, ack: 1 }, method: "POST", path: "/accounts/a/deposit", headers, body: "b" });
});

test("calls made at one moment leave together in one batch, also those made when its answers arrive", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const again = async (body) => (await deposit(session, body), ran(deposit(session, `${body} again`)));
  const answers = await within(Promise.all(["a", "b", "c"].map(again)), "all are answered");
  assert.deepEqual(answers, [{ ran: "a again" }, { ran: "b again" }, { ran: "c again" }]);
  assert.deepEqual(server.frames.map(({ elements }) => elements.map(({ body }) => body)), [["a", "b", "c"], ["a again", "b again", "c again"]]);
});

test("a body of bytes reaches the key unchanged, alone and in a batch", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const bytes = Uint8Array.from({ length: 300 }, (_, index) => index);
  const answers = Promise.all(["first", bytes].map((body) => deposit(session, body)));
  await within(answers, "both are answered");
  assert.equal(server.frames.length, 2);
  server.each = lost;
  // A decoder that strips the byte order mark would lose it.
  const marked = Uint8Array.of(0xef, 0xbb, 0xbf, 0x78);
  const again = Promise.allSettled([deposit(session, "x"), deposit(session, bytes), deposit(session, marked)]);
  await until(() => server.frames.at(-1).elements.length === 3, "they are in one frame");
  assert.equal(server.frames.at(-1).elements[2].body, "\ufeffx");
  assert.deepEqual(new Uint8Array(Buffer.from(server.frames.at(-1).elements[1].body.base64, "base64")), bytes);
  await semel.close();
  assert.deepEqual((await again).map(({ reason }) => reason.code), ["closed", "closed", "closed"]);
});

test("a call's own headers win over those of the option headers, alone and in a batch", async (t) => {
  const { semel, server } = await outbox(t, { headers: { "x-tenant": "option", "x-trace": "option" } });
  const session = await semel.session("accounts/a", "s");
  await Promise.all(["x", "y", "z"].map((body) => deposit(session, body, { headers: { "x-tenant": body } })));
  const said = server.frames.flatMap(({ elements }) => elements).map(({ headers, body }) => [body, headers["x-tenant"], headers["x-trace"]]);
  assert.deepEqual([server.frames.length, said], [2, ["x", "y", "z"].map((body) => [body, body, "option"])]);
});

test("each call of a session runs once and in the order of the calls if requests and answers are lost", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  let n = 0;
  server.each = (_call, serve) => {
    n += 1;
    if (n % 3 === 1) return lost();
    const answer = serve();
    return n % 3 === 2 ? lost() : answer;
  };
  const bodies = Array.from({ length: 150 }, (_, index) => `${index}`);
  const answers = await within(Promise.all(bodies.map((body) => ran(deposit(session, body)))), "all are answered");
  assert.deepEqual(answers, bodies.map((body) => ({ ran: body })));
  assert.deepEqual(server.effects, bodies);
  assert.ok(server.acked >= 150 - 64, `${server.acked} are acknowledged`);
});

test("a call whose body is slow to read keeps its place, and one whose body fails leaves no gap", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const slow = new ReadableStream({
    async pull(controller) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      controller.enqueue(new TextEncoder().encode("slow"));
      controller.close();
    },
  });
  const broken = new ReadableStream({ pull: (controller) => controller.error(new RangeError("broken")) });
  const calls = [deposit(session, slow), deposit(session, broken), deposit(session, "last")];
  assert.equal((await rejection(calls[1])).message, "broken");
  await Promise.all([calls[0], calls[2]]);
  assert.deepEqual(server.effects, ["slow", "last"]);
});

test("a take-over fences the holder before it, which ends once and says that none of its new calls ran", async (t) => {
  const { semel, server } = await outbox(t);
  const ended = [];
  const zombie = await semel.session("accounts/a", "s", { onended: (error) => ended.push(error) });
  const session = await semel.session("accounts/a", "s");
  const errors = await Promise.all([rejection(deposit(zombie, "x")), rejection(deposit(zombie, "y"))]);
  for (const error of errors) {
    assert.ok(error instanceof FencedError && error instanceof SemelError && !(error instanceof SessionUnknownError));
    assert.deepEqual([error.name, error.executed, error.retry], ["FencedError", "no", "never"]);
  }
  const { length } = server.calls;
  assert.equal((await rejection(deposit(zombie, "z"))).code, "fenced");
  assert.equal(server.calls.length, length, "nothing more is sent");
  assert.deepEqual(ended.map((error) => [error instanceof FencedError, error.code]), [[true, "fenced"]], "it is told once");
  await deposit(session, "mine");
  assert.deepEqual([server.effects, session.epoch], [["mine"], 2]);
});

test("a take-over with the option after is fenced if the session has another holder", async (t) => {
  const { semel } = await outbox(t);
  await semel.session("accounts/a", "s");
  const error = await rejection(semel.session("accounts/a", "s", { after: 0 }));
  assert.deepEqual([error.code, error.executed, error.problem.currentEpoch], ["fenced", "no", 1]);
  assert.equal((await semel.session("accounts/a", "s", { after: 1 })).epoch, 2);
});

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
  const answered = await new Promise((resolve) => (third.onrecovered = resolve));
  assert.deepEqual(await answered.response.json(), { ran: "x" });
  await until(() => store.rows.size === 0, "nothing is left");
});

test("a session pauses at an after-fix refusal, and later calls wait", async (t) => {
  const { semel, server } = await outbox(t);
  const paused = [];
  const session = await semel.session("accounts/a", "s", { onpaused: (each) => paused.push(each) });
  server.refuse = ({ body }) => (body === "x" ? [401, "unauthorized", "no", "after-fix"] : undefined);
  const calls = [deposit(session, "x"), deposit(session, "y")];
  await until(() => paused.length === 1, "it pauses");
  assert.deepEqual([paused[0].error.code, paused[0].error.executed, paused[0].method], ["unauthorized", "unknown", "POST"]);
  server.refuse = () => undefined;
  paused[0].resume();
  await Promise.all(calls);
  assert.deepEqual(server.effects, ["x", "y"]);
});

test("a refusal of a whole batch pauses the session with the problem as the server sent it", async (t) => {
  const { semel, server } = await outbox(t);
  const paused = [];
  const session = await semel.session("accounts/a", "s", { onpaused: (each) => paused.push(each) });
  server.each = (call, serve) => (paused.length ? serve() : problem(401, "unauthorized", { executed: "no", retry: "after-fix", detail: "the token has ended", own: [1] }));
  const answers = ["a", "b"].map((body) => deposit(session, body));
  await until(() => paused.length, "it pauses");
  const [{ error }] = paused;
  assert.deepEqual([error.code, error.message, error.problem?.own], ["unauthorized", "unauthorized: the token has ended", [1]]);
  assert.equal(server.frames[0].elements.length, 2);
  session.resume();
  await within(Promise.all(answers), "they are answered");
});

test("a call that is given up in a pause never runs, and later calls go on", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s", { onpaused: ({ giveUp }) => giveUp() });
  server.refuse = ({ path }) => (path === "/nowhere" ? [404, "not-found", "no", "after-fix"] : undefined);
  const calls = [session.fetch("/nowhere", { method: "POST" }), deposit(session, "y")];
  const error = await rejection(calls[0]);
  assert.deepEqual([error.code, error.executed], ["cancelled", "no"]);
  await calls[1];
  assert.deepEqual(server.effects, ["y"]);
});

test("an aborted call under way is cancelled and has its place closed, or gets its outcome if it ran", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const [early, late] = [new AbortController(), new AbortController()];
  server.each = lost;
  const never = deposit(session, "never", { signal: early.signal });
  await until(() => server.frames.length > 0, "it is on its way");
  early.abort();
  server.each = (_call, serve) => serve();
  const error = await rejection(never);
  assert.deepEqual([error.code, error.executed], ["cancelled", "no"]);
  server.each = (_call, serve) => (serve(), lost());
  const ranAnyway = deposit(session, "ran", { signal: late.signal });
  await until(() => server.effects.length === 1, "it ran");
  late.abort();
  server.each = (_call, serve) => serve();
  assert.deepEqual(await ran(ranAnyway), { ran: "ran" });
  await deposit(session, "next");
  assert.deepEqual(server.effects, ["ran", "next"]);
});

test("a call that is aborted as its headers throw is cancelled and never runs", async (t) => {
  const aborting = new AbortController();
  let isOut = false;
  const headers = () => {
    if (!isOut) return {};
    aborting.abort();
    throw new Error("logged out");
  };
  const { semel, server } = await outbox(t, { headers });
  const session = await semel.session("accounts/a", "s");
  const isLost = new Promise((resolve) => semel.addEventListener("lost", resolve, { once: true }));
  isOut = true;
  const made = rejection(deposit(session, "x", { signal: aborting.signal }));
  await within(isLost, "it had no token");
  isOut = false;
  const error = await made;
  assert.deepEqual([error.code, error.executed, server.effects], ["cancelled", "no", []]);
});

test("a call that is aborted before it has a place rejects at once, and leaves no gap", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const [before, stop] = [new AbortController(), new AbortController()];
  const endless = rejection(deposit(session, new ReadableStream(), { signal: before.signal }));
  const behind = rejection(deposit(session, "behind", { signal: stop.signal }));
  const last = deposit(session, "last");
  stop.abort(new Error("enough"));
  assert.equal((await within(behind, "it waits for no body", 2_000)).message, "enough");
  assert.equal((await within(rejection(deposit(session, "never", { signal: AbortSignal.abort(new Error("before")) })), "nor does this", 2_000)).message, "before");
  before.abort(new Error("no more"));
  assert.equal((await endless).message, "no more");
  assert.deepEqual(await ran(last), { ran: "last" });
  assert.deepEqual([server.effects, server.frames[0].elements[0].session.seq], [["last"], 1]);
});

test("a call that is aborted at once is cancelled, and a call that is answered leaves no listener at its signal", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const aborting = new AbortController();
  server.each = (_call, serve) => (server.frames.length === 1 ? lost() : serve());
  const never = rejection(deposit(session, "never", { signal: aborting.signal }));
  aborting.abort();
  const error = await within(never, "it ends");
  assert.deepEqual([error.code, error.executed, server.effects], ["cancelled", "no", []]);
  const { signal } = new AbortController();
  await deposit(session, "x", { signal });
  assert.deepEqual([server.effects, getEventListeners(signal, "abort").length], [["x"], 0]);
});

test("a call waits for earlier calls with slow bodies, also once the first of them has its place", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const open = [];
  const slow = () => deposit(session, new ReadableStream({ start: (source) => void open.push(source) }));
  const finish = (index, text) => (open[index].enqueue(new TextEncoder().encode(text)), open[index].close());
  const answering = [slow(), slow()];
  finish(0, "first");
  await answering[0];
  await new Promise((resolve) => setImmediate(resolve));
  answering.push(deposit(session, "last"));
  await new Promise((resolve) => setImmediate(resolve));
  finish(1, "second");
  await within(Promise.all(answering), "all are answered");
  assert.deepEqual(server.effects, ["first", "second", "last"]);
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
  // In a worker, WebKit rejects with this even for what it has stored.
  store.before = async () => {
    throw new Error("Connection to Indexed Database server lost. Refresh the page to try again");
  };
  const inDoubt = await rejection(deposit(session, "x"));
  assert.deepEqual([inDoubt.code, inDoubt.executed, inDoubt.retry], ["store-failed", "unknown", "same-id"]);
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
    throw new Error("Connection to Indexed Database server lost. Refresh the page to try again");
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

test("closing the outbox closes its sessions, and every call that waits rejects as closed", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  server.each = () => new Promise(() => {});
  const endless = new ReadableStream({ pull: () => new Promise(() => {}) });
  const waiting = [deposit(session, "x"), deposit(session, endless), semel.session("accounts/a", "other")];
  await until(() => server.calls.length === 3, "both are on their way");
  await semel.close();
  const settled = await within(Promise.allSettled(waiting), "all is settled");
  assert.deepEqual(settled.map(({ reason }) => reason.code), ["closed", "closed", "closed"]);
  assert.equal((await rejection(deposit(session, "y"))).code, "closed");
});

test("a session that is being loaded as the outbox closes rejects, and sends nothing", async (t) => {
  const { semel, server } = await outbox(t);
  const opening = rejection(semel.session("accounts/a", "s"));
  semel.close();
  assert.equal((await opening).message, "semel: it is closed");
  assert.deepEqual(server.calls, []);
});

test("a read by a session goes through with the key, the principal and the headers of the outbox", async (t) => {
  const reads = [];
  const server = new SessionStub();
  const { semel } = await outbox(t, { server, identity: "alice", headers: { "x-tenant": "n" }, fetch: (url, init) => (url instanceof Request ? (reads.push(url), new Response("read")) : server.fetch(url, init)) });
  const session = await semel.session("accounts/a b", "s");
  assert.equal(await (await session.fetch("/accounts/a")).text(), "read");
  assert.deepEqual(reads.map(({ method, headers }) => [method, headers.get("semel-key"), headers.get("semel-principal"), headers.get("x-tenant")]), [["GET", '"accounts/a%20b"', '"alice"', "n"]]);
});

test("a read under way rejects as closed when the session is closed, and session.fetch needs no receiver", async (t) => {
  const server = new SessionStub();
  const { semel } = await outbox(t, { server, fetch: (url, init) => (url instanceof Request ? new Promise(() => {}) : server.fetch(url, init)) });
  const session = await semel.session("accounts/a", "s");
  const { fetch } = session;
  assert.equal((await fetch("/accounts/a/deposit", { method: "POST", body: "x" })).status, 200);
  const read = rejection(fetch("/accounts/a", null));
  await session.close();
  assert.equal((await within(read, "the read", 2_000)).code, "closed");
});

test("a session refuses the options of outbox calls: id, key, salt and ordered", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const { length } = server.calls;
  for (const init of [{ id: "order-7" }, { key: "accounts/b" }, { salt: 1 }, { ordered: false }]) {
    const error = await rejection(deposit(session, "x", init));
    assert.ok(error instanceof TypeError && error.message.includes(Object.keys(init)[0]), String(error));
  }
  assert.equal(server.calls.length, length);
  assert.deepEqual(await ran(deposit(session, "y", { id: undefined })), { ran: "y" });
});

test("wrong calls of session and session.fetch are refused before anything is sent", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const { length } = server.calls;
  for (const [named, kind] of [[["accounts/a", ""], TypeError], [["accounts/a", "ü"], TypeError], [[undefined, "s"], TypeError], [["accounts/a", "s", { after: -1 }], RangeError], [["accounts/a", "s", { nothing: 1 }], TypeError]]) {
    await assert.rejects(semel.session(...named), kind);
  }
  for (const store of [null, 5, {}, { load() {}, change() {} }]) await assert.rejects(semel.session("accounts/a", "s", { store }), new TypeError("semel: a store has the methods load, change and remove"));
  for (const handler of ["onrecovered", "onpaused", "onended"]) await assert.rejects(semel.session("accounts/a", "s", { [handler]: true }), TypeError, handler);
  await assert.rejects(session.fetch("https://other.test/", { method: "POST" }), TypeError);
  // A key would take these for requests of the session itself.
  for (const path of ["/semel/v1/keys/accounts%2Fa/batch", "/a/../semel/v1/keys/accounts%2Fa/cancel"]) {
    for (const headers of [{}, { "x-a": "not plain" }]) await assert.rejects(within(session.fetch(path, { method: "POST", body: "[]", headers }), path, 1_000), new TypeError("semel: /semel/ is not the application's"));
  }
  await assert.rejects(session.fetch("/a", { method: "POST", headers: { authorization: "x" } }), TypeError);
  await assert.rejects(session.fetch("/a", { method: "POST", body: new Uint8Array((1 << 20) + 1) }), RangeError);
  assert.equal(server.calls.length, length);
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

test("each refusal of a take-over is a refused event of the outbox, and refusals of the session afterwards are not", async (t) => {
  const { semel, server } = await outbox(t);
  const all = [];
  semel.addEventListener("refused", ({ detail }) => all.push(detail));
  server.each = (_call, serve) => (all.length < 2 ? problem(429, "rate-limited", { executed: "no" }) : serve());
  const session = await within(semel.session("accounts/a", "s"), "it is taken over");
  const of = { requestId: undefined, method: "POST", url: "https://worker.test/semel/v1/keys/accounts%2Fa/sessions", status: 429, code: "rate-limited" };
  assert.deepEqual(all, [of, of]);
  let times = 0;
  server.each = (_call, serve) => ((times += 1) > 1 ? serve() : problem(429, "rate-limited", { executed: "no" }));
  await within(deposit(session, "a"), "it is answered");
  assert.deepEqual([all.length, times], [2, 2]);
});

test("a lost attempt of a session is a lost event of the outbox", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const all = [];
  semel.addEventListener("lost", ({ detail }) => all.push(detail));
  server.each = (_call, serve) => (all.length ? serve() : lost());
  await within(deposit(session, "a"), "it is answered");
  assert.deepEqual(all, [{ requestId: undefined, method: "POST", url: "https://worker.test/accounts/a/deposit", error: new TypeError("fetch failed") }]);
});
