// Tests sessions over a socket, over HTTP, or over either: the option `transport` of `semel.session`.

import assert from "node:assert/strict";
import { test } from "node:test";
import { deposit, outbox, ran, SessionStub } from "./session-stub.mjs";
import { hang, keeping, minutes, until, within } from "./stub.mjs";

/** Replaces `WebSocket` for a test. `connections` are the sockets that were made, each with its frames; `serve` gets each frame. */
function sockets(t, server, { opens = () => true, hangs = () => false, refuses = () => undefined } = {}) {
  const connections = [];
  const before = globalThis.WebSocket;
  t.after(() => (globalThis.WebSocket = before));
  globalThis.WebSocket = class {
    frames = [];
    isClosed = false;
    constructor(url) {
      this.url = url;
      connections.push(this);
      if (!hangs()) queueMicrotask(() => (opens() ? this.onopen?.() : this.onclose?.({ code: 1006, reason: "" })));
    }
    send(text) {
      const frame = JSON.parse(text);
      this.frames.push(frame);
      const [code, reason] = refuses(frame, text) ?? [];
      if (code) queueMicrotask(() => this.onclose?.({ code, reason }));
      if (code || this.frames.length === 1) return;
      const answers = JSON.parse(server.batch(frame.requests));
      const say = () => this.isClosed || this.onmessage({ data: JSON.stringify({ frame: frame.frame, now: 1, answers }) });
      const fates = { lost: () => this.onclose?.({ code: 1006, reason: "" }), silent: () => {}, strange: () => this.onmessage({ data: "<h1>Who are you?</h1>" }), null: () => this.onmessage({ data: "null" }) };
      queueMicrotask(fates[server.each(frame, () => {})] ?? say);
    }
    close() {
      this.isClosed = true;
    }
  };
  return connections;
}

test("where there is no WebSocket, a session with transport socket rejects with a TypeError, and one with auto is like one by HTTP", async (t) => {
  const { semel, server } = await outbox(t);
  const own = globalThis.WebSocket;
  t.after(() => (globalThis.WebSocket = own));
  globalThis.WebSocket = undefined;
  await assert.rejects(semel.session("accounts/a", "s", { transport: "socket" }), new TypeError("semel: no WebSocket here"));
  await deposit(await semel.session("accounts/a", "s", { transport: "auto" }), "x");
  assert.equal(server.calls.at(-1).path, "/accounts/a/deposit", "a single request is not a batch");
});

test("a session by a socket sends all its frames over one connection, and each request gets its own answer", async (t) => {
  const { semel, server } = await outbox(t, { headers: { authorization: "Bearer t", "x-tenant": "n" } });
  const connections = sockets(t, server);
  const session = await semel.session("accounts/a", "s", { transport: "socket" });
  assert.deepEqual(await ran(deposit(session, "a")), { ran: "a" });
  const answers = await Promise.all(["b", "c"].map((body) => ran(deposit(session, body))));
  assert.deepEqual(answers, [{ ran: "b" }, { ran: "c" }]);
  assert.deepEqual(connections.map(({ url }) => url), ["wss://worker.test/semel/v1/keys/accounts%2Fa/socket"]);
  const [first, alone, two] = connections[0].frames;
  assert.deepEqual(first, { authorization: "Bearer t", principal: "alice" });
  assert.deepEqual([alone.frame, alone.requests.length, two.frame, two.requests.length], [1, 1, 2, 2]);
  assert.deepEqual([alone.requests[0].session, alone.requests[0].headers["x-tenant"]], [{ name: "s", epoch: 1, seq: 1 }, "n"]);
  assert.equal(server.frames.length, 0, "nothing by HTTP but the take-over");
  await session.close();
  assert.ok(connections[0].isClosed);
});

test("a session by a socket has two frames of half a window under way, and each request gets its own answer", async (t) => {
  const { semel, server } = await outbox(t);
  const connections = sockets(t, server);
  const session = await semel.session("accounts/a", "s", { transport: "socket" });
  server.each = (call, serve) => (call.frame === undefined ? serve() : "silent");
  const bodies = Array.from({ length: 70 }, (_, index) => `${index}`);
  const answering = Promise.all(bodies.map((body) => ran(deposit(session, body))));
  await until(() => connections[0]?.frames.length === 3, "two frames are under way");
  const [, ...frames] = connections[0].frames;
  assert.deepEqual(frames.map(({ frame, requests }) => [frame, requests.length, requests[0].body]), [[1, 32, "0"], [2, 32, "32"]]);
  server.each = (call, serve) => (call.frame === undefined ? serve() : "answered");
  // The second frame is answered first.
  for (const { frame, requests } of frames.reverse()) {
    connections[0].onmessage({ data: JSON.stringify({ frame, now: 1, answers: JSON.parse(server.batch(requests)) }) });
  }
  assert.deepEqual(await within(answering, "all are answered"), bodies.map((body) => ({ ran: body })));
  assert.deepEqual(server.effects, bodies);
});

test("a frame that an answer makes room for leaves before the callers go on, and acknowledges that answer", async (t) => {
  const { semel, server } = await outbox(t);
  const connections = sockets(t, server);
  const session = await semel.session("accounts/a", "s", { transport: "socket" });
  server.each = (call, serve) => (call.frame === undefined ? serve() : "silent");
  const heard = [];
  const bodies = Array.from({ length: 96 }, (_, index) => `${index}`);
  const answering = Promise.all(bodies.map((body) => deposit(session, body).then(() => heard.push(body))));
  await until(() => connections[0]?.frames.length === 3, "two frames are under way");
  const [socket] = connections;
  const answer = ({ frame, requests }) => socket.onmessage({ data: JSON.stringify({ frame, now: 1, answers: JSON.parse(server.batch(requests)) }) });
  const { send } = socket;
  let heardBefore;
  socket.send = (text) => {
    heardBefore = heard.length;
    send.call(socket, text);
  };
  answer(socket.frames[1]);
  await until(() => socket.frames.length === 4, "the third is under way");
  const { requests } = socket.frames[3];
  assert.deepEqual([heardBefore, requests.length, requests[0].body, requests[0].session.ack], [0, 32, "64", 32]);
  for (const frame of socket.frames.slice(2)) answer(frame);
  await within(answering, "all are answered");
  assert.deepEqual(heard, bodies);
});

for (const [which, slowest] of [["the first", 2], ["the second", 3]]) {
  test(`frames on a socket leave in the order of the calls, however long the headers of ${which} take`, async (t) => {
    let [given, calls] = [undefined, 0];
    const slow = new Promise((resolve) => (given = resolve));
    const { semel, server } = await outbox(t, { headers: () => ((calls += 1) === slowest ? slow : {}) });
    const connections = sockets(t, server);
    const session = await semel.session("accounts/a", "s", { transport: "socket" });
    const answering = Promise.all(Array.from({ length: 96 }, (_, index) => ran(deposit(session, `${index}`))));
    await until(() => calls === slowest + 1, "the one after it is asked for");
    given({});
    await within(answering, "all are answered");
    assert.deepEqual(connections[0].frames.slice(1).map(({ requests }) => requests[0].body), ["0", "32", "64"]);
  });
}

test("a socket that closes before its answer is opened anew, and the lost frame is sent again", async (t) => {
  const { semel, server } = await outbox(t);
  const connections = sockets(t, server);
  const session = await semel.session("accounts/a", "s", { transport: "socket" });
  let n = 0;
  server.each = (call, serve) => (call.frame === undefined ? serve() : (n += 1) % 2 ? "lost" : "answered");
  const bodies = Array.from({ length: 20 }, (_, index) => `${index}`);
  for (const body of bodies) await deposit(session, body);
  assert.deepEqual(server.effects, bodies);
  assert.equal(connections.length, 21);
});

test("a message on a socket that is no answer of the Worker closes that socket, and the session opens another", async (t) => {
  const { semel, server } = await outbox(t);
  const connections = sockets(t, server);
  const session = await semel.session("accounts/a", "s", { transport: "socket" });
  const fates = ["strange", "null"];
  server.each = () => fates.shift();
  assert.deepEqual(await within(ran(deposit(session, "a")), "it goes on by another socket"), { ran: "a" });
  assert.deepEqual([connections.length, connections.map(({ isClosed }) => isClosed)], [3, [true, true, false]]);
});

test("a socket that does not answer in time is closed, and another is opened", async (t) => {
  const { semel, server } = await outbox(t, { attemptTimeoutMs: 100 });
  const connections = sockets(t, server);
  const session = await semel.session("accounts/a", "s", { transport: "socket" });
  let n = 0;
  server.each = (call, serve) => (call.frame === undefined ? serve() : (n += 1) === 1 ? "silent" : "answered");
  const answering = deposit(session, "x");
  assert.deepEqual(await ran(answering), { ran: "x" });
  assert.deepEqual([connections.length, connections[0].isClosed, server.effects], [2, true, ["x"]]);
  // The platform reports only now that the first socket is closed. That must not affect the socket in its place.
  connections[0].onclose({ code: 1006, reason: "" });
  await deposit(session, "y");
  assert.deepEqual([connections.length, server.effects], [2, ["x", "y"]]);
});

test("a session pauses when its new socket is refused; a socket that had answered before is only opened anew", async (t) => {
  const { semel, server } = await outbox(t);
  let isRefused = true;
  const connections = sockets(t, server, { refuses: () => (isRefused ? [4401, "unauthorized"] : undefined) });
  const paused = [];
  const session = await semel.session("accounts/a", "s", { transport: "socket", onpaused: (each) => paused.push(each) });
  const first = deposit(session, "x");
  await until(() => paused.length === 1, "it pauses");
  assert.deepEqual([paused[0].error.code, paused[0].error.executed], ["unauthorized", "unknown"]);
  isRefused = false;
  session.resume();
  await first;
  const { each } = server;
  server.each = () => "silent";
  const again = deposit(session, "y");
  const { frames, onclose } = connections.at(-1);
  const { length } = frames;
  await until(() => frames.length > length, "it is under way");
  server.each = each;
  onclose({ code: 4401, reason: "unauthorized" });
  await within(again, "it goes again");
  assert.deepEqual([server.effects, paused.length], [["x", "y"], 1]);
});

test("a request that a key refuses only in a frame goes by HTTP, alone, without a pause, and the next by the socket", async (t) => {
  const { semel, server } = await outbox(t);
  const connections = sockets(t, server, { refuses: ({ requests }) => (requests?.some(({ body }) => body === "y") ? [4400, "body-invalid"] : undefined) });
  const session = await semel.session("accounts/a", "s", { transport: "socket", onpaused: assert.fail });
  const answers = await within(Promise.all(["x", "y", "z"].map((body) => ran(deposit(session, body)))), "all are answered");
  assert.deepEqual([answers, server.effects], [["x", "y", "z"].map((body) => ({ ran: body })), ["x", "y", "z"]]);
  assert.deepEqual(server.frames.map(({ elements: [{ body }] }) => body), ["y"]);
  assert.ok(connections.at(-1).frames.at(-1).requests.some(({ body }) => body === "z"), "what comes after it goes by the socket");
});

test("a request whose frame is too long for the server or a proxy goes by HTTP, alone, on a new socket or an old one", async (t) => {
  for (const [closing, before] of [[[4413, "too-large"], []], [[4413, "too-large"], ["x"]], [[1009, ""], []], [[1009, ""], ["x"]]]) {
    const { semel, server } = await outbox(t);
    sockets(t, server, { refuses: ({ requests }) => (requests?.some(({ body }) => body === "long") ? closing : undefined) });
    const session = await semel.session("accounts/a", "s", { transport: "socket", onpaused: assert.fail });
    for (const body of [...before, "long", "z"]) assert.deepEqual(await within(ran(deposit(session, body)), `${closing}: ${body}`), { ran: body });
    assert.deepEqual(server.frames.map(({ elements: [{ body }] }) => body), ["long"]);
  }
});

test("a body takes at most a third more in a frame, also if it needs many escapes", async (t) => {
  const { semel, server } = await outbox(t);
  const sizes = [];
  sockets(t, server, { refuses: (_, text) => void sizes.push(Buffer.byteLength(text)) });
  const session = await semel.session("accounts/a", "s", { transport: "socket" });
  const body = JSON.stringify({ doc: JSON.stringify(Array(90_000).fill("\u65e5")) });
  const size = Buffer.byteLength(body);
  await within(deposit(session, body), "it is answered");
  assert.ok(sizes.at(-1) > size && sizes.at(-1) < (size * 4) / 3 + 400, `${size} bytes, ${sizes.at(-1)} in a frame`);
});

test("a session with transport auto goes by HTTP if the socket does not open, and opens no other", async (t) => {
  const { semel, server } = await outbox(t);
  const connections = sockets(t, server, { opens: () => false });
  const session = await semel.session("accounts/a", "s", { transport: "auto" });
  for (const body of ["x", "y"]) await deposit(session, body);
  assert.deepEqual([server.effects, connections.length, server.frames.length], [["x", "y"], 1, 2]);
  await assert.rejects(semel.session("accounts/a", "s", { transport: "carrier pigeon" }), TypeError);
});

test("a session with transport auto goes by HTTP if an upgrade hangs, and tries a socket again a minute later", async (t) => {
  const { semel, server } = await outbox(t, { attemptTimeoutMs: 100 });
  let isHanging = true;
  const connections = sockets(t, server, { hangs: () => isHanging });
  const before = performance.now;
  let laterMs = 0;
  t.mock.method(performance, "now", () => before.call(performance) + laterMs);
  const session = await semel.session("accounts/a", "s", { transport: "auto" });
  for (const body of ["x", "y"]) await deposit(session, body);
  assert.deepEqual([server.effects, connections.length, connections[0].isClosed], [["x", "y"], 1, true]);
  assert.equal(server.frames.length, 2);
  isHanging = false;
  laterMs = 60_000;
  await deposit(session, "z");
  assert.deepEqual([server.effects, connections.length, server.frames.length], [["x", "y", "z"], 2, 2]);
});

test("a session with transport auto gives a hanging upgrade half the time of an attempt, and goes by HTTP in the other", async (t) => {
  const { semel, server } = await outbox(t, { attemptTimeoutMs: 40_000 });
  const connections = sockets(t, server, { hangs: () => true });
  const session = await semel.session("accounts/a", "s", { transport: "auto" });
  const minute = minutes(t);
  const begun = performance.now();
  let tookMs;
  server.each = (_call, serve) => {
    tookMs = performance.now() - begun;
    return serve();
  };
  const made = deposit(session, "x");
  await minute();
  assert.deepEqual(await ran(made), { ran: "x" });
  assert.deepEqual([connections.length, server.effects, tookMs < 30_000], [1, ["x"], true], `after ${tookMs} ms`);
});

test("closing a session clears the timer of a socket that does not open", async (t) => {
  const { semel, server } = await outbox(t, { attemptTimeoutMs: 9_000 });
  const connections = sockets(t, server, { hangs: () => true });
  const session = await semel.session("accounts/a", "s", { transport: "socket" });
  const [set, cleared] = [t.mock.method(globalThis, "setTimeout"), t.mock.method(globalThis, "clearTimeout")];
  const made = Promise.allSettled([deposit(session, "x")]);
  await until(() => connections.length === 1, "it is being opened");
  const [opening] = set.mock.calls.filter(({ arguments: [, ms] }) => ms === 4_500).map(({ result }) => result);
  await session.close();
  await made;
  assert.ok(opening && cleared.mock.calls.some(({ arguments: [timer] }) => timer === opening));
});

test("a session with transport auto goes by HTTP after a socket that opened and does not answer", async (t) => {
  const { semel, server } = await outbox(t, { attemptTimeoutMs: 100 });
  const connections = sockets(t, server);
  server.each = (call, serve) => (call.frame === undefined ? serve() : "silent");
  const session = await semel.session("accounts/a", "s", { transport: "auto" });
  assert.deepEqual(await ran(deposit(session, "x")), { ran: "x" });
  assert.deepEqual([server.effects, connections.length, server.frames.length], [["x"], 1, 1]);
});

test("a session with transport auto goes by HTTP after a proxy has closed its socket at once, and opens one socket a minute", async (t) => {
  const { semel, server } = await outbox(t);
  const connections = sockets(t, server);
  server.each = (call, serve) => (call.frame === undefined ? serve() : "lost");
  const before = performance.now;
  let laterMs = 0;
  t.mock.method(performance, "now", () => before.call(performance) + laterMs);
  const session = await semel.session("accounts/a", "s", { transport: "auto" });
  for (const body of ["x", "y"]) await deposit(session, body);
  assert.deepEqual([server.effects, connections.length], [["x", "y"], 1]);
  laterMs = 60_000;
  for (const body of ["z", "w"]) await deposit(session, body);
  assert.deepEqual([server.effects, connections.length], [["x", "y", "z", "w"], 2]);
});

test("a session by a socket that never opens pauses with upstream-unreachable, and goes on once the socket opens", async (t) => {
  const { semel, server } = await outbox(t);
  let opens = false;
  const connections = sockets(t, server, { opens: () => opens });
  const paused = [];
  const session = await semel.session("accounts/a", "s", { transport: "socket", onpaused: (each) => paused.push(each) });
  const made = deposit(session, "x");
  await until(() => paused.length === 1, "it is told of");
  assert.deepEqual([paused[0].error.code, paused[0].error.executed, connections.length >= 8], ["upstream-unreachable", "unknown", true]);
  assert.deepEqual(semel.getSnapshot(), { pending: 1, paused: 1, online: true });
  opens = true;
  assert.deepEqual(await ran(made), { ran: "x" });
});

test("a session with transport auto opens a socket that had answered anew, and does not go by HTTP", async (t) => {
  const { semel, server } = await outbox(t);
  const connections = sockets(t, server);
  const session = await semel.session("accounts/a", "s", { transport: "auto" });
  await deposit(session, "x");
  let n = 0;
  server.each = (call, serve) => (call.frame === undefined ? serve() : (n += 1) === 1 ? "lost" : "answered");
  await deposit(session, "y");
  assert.deepEqual([server.effects, connections.length, server.frames.length], [["x", "y"], 2, 0]);
});

test("a session that is closed while its headers are awaited opens no socket", async (t) => {
  let give;
  const { semel, server } = await outbox(t, { headers: () => (server.calls.length ? new Promise((resolve) => (give = resolve)) : {}) });
  const connections = sockets(t, server);
  const session = await semel.session("accounts/a", "s", { transport: "socket" });
  const left = Promise.allSettled([deposit(session, "x")]);
  await until(() => give, "they are asked for");
  await session.close();
  give({});
  await left;
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(connections.length, 0);
});

test("headers that never come delay only their own frame, until its attempt times out", async (t) => {
  let calls = 0;
  const { semel, server } = await outbox(t, { attemptTimeoutMs: 100, headers: () => ((calls += 1) === 2 ? hang() : {}) });
  sockets(t, server);
  const session = await semel.session("accounts/a", "s", { transport: "socket" });
  assert.deepEqual(await within(ran(deposit(session, "x")), "it is answered"), { ran: "x" });
});

test("a socket that has opened stays open while the session sends nothing", async (t) => {
  const { semel, server } = await outbox(t);
  const connections = sockets(t, server);
  const session = await semel.session("accounts/a", "s", { transport: "socket" });
  const minute = minutes(t);
  for (const body of ["x", "y"]) {
    const made = deposit(session, body);
    await minute();
    await made;
  }
  assert.deepEqual([server.effects, connections.map(({ isClosed }) => isClosed)], [["x", "y"], [false]]);
});

test("a session by a socket keeps nothing of answered frames, and an outbox nothing of closed sessions", async (t) => {
  const server = new SessionStub();
  const size = keeping(t, server);
  const { semel } = await outbox(t, { server });
  sockets(t, server);
  const session = await semel.session("accounts/a", "s", { transport: "socket" });
  for (let n = 0; n < 40; n += 1) await deposit(session, `${n}`);
  for (let n = 0; n < 40; n += 1) await (await semel.session("accounts/a", "s")).close();
  assert.ok(size() < 20, `of something there are ${size()}`);
});
