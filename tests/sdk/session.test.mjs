// Tests sessions (`semel.session`) against a stub of a key that keeps to the protocol: order, take-overs, the end of a session, wrong calls, events.
// `session-giving-up.test.mjs` has pauses and aborted calls, `session-store.test.mjs` what is stored.

import assert from "node:assert/strict";
import { test } from "node:test";
import { FencedError, SemelError, SessionUnknownError } from "../../sdk/npm/node.js";
import { deposit, outbox, ran, SessionStub } from "./session-stub.mjs";
import { lost, problem, rejection, until, within } from "./stub.mjs";

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

test("session.fetch takes a Request, or an object that inherits its members, as init: no change becomes a read, and none ignores an option", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const request = new Request("https://elsewhere.test/", { method: "PUT", body: "own", headers: { "content-type": "text/own" } });
  await session.fetch("/accounts/a/deposit", request);
  const presets = { method: "POST", headers: { "content-type": "text/preset" } };
  await session.fetch("/accounts/a/deposit", Object.assign(Object.create(presets), { body: "inherits" }));
  assert.deepEqual(
    server.frames.map(({ method, path, headers, elements: [{ body }] }) => [method, path, body, headers.get("content-type")]),
    [
      ["PUT", "/accounts/a/deposit", "own", "text/own"],
      ["POST", "/accounts/a/deposit", "inherits", "text/preset"],
    ],
  );
  assert.ok((await rejection(session.fetch("/accounts/a/deposit", Object.create({ ...presets, id: "a" })))) instanceof TypeError);
  const stopped = new Request("https://elsewhere.test/", { method: "POST", signal: AbortSignal.abort() });
  assert.equal((await rejection(session.fetch("/accounts/a/deposit", stopped))).name, "AbortError");
  assert.equal(server.frames.length, 2);
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
  for (const [named, kind] of [[["accounts/a", ""], TypeError], [["accounts/a", "ü"], TypeError], [[undefined, "s"], TypeError], [["accounts/a", 5], TypeError], [["accounts/a", "s", { after: -1 }], RangeError], [["accounts/a", "s", { after: 0.5 }], RangeError], [["accounts/a", "s", { nothing: 1 }], TypeError]]) {
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
