// Sockets as raw WebSockets on workerd: who is let in, the order of answers, what closes a socket, sleep, and clients that mean harm.
// `batch.test.mjs` has kills and crashes.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { ADMIN_TOKEN, serve } from "./server.mjs";
import { AUDIENCE, jwks, signer } from "./tokens.mjs";
import { open } from "./websocket.mjs";

const SIGNER = signer("ES256");
/** Signs with a key that an issuer serves only when a test lets it. */
const LATE = signer("ES256", "late");
const issuer = createServer();
await new Promise((resolve) => issuer.listen(0, "127.0.0.1", resolve));
after(() => {
  issuer.closeAllConnections();
  issuer.close();
});
const APP = "https://app.example";
const vars = { SEMEL_OPEN: "false", SEMEL_JWT_KEYS: jwks(SIGNER), SEMEL_JWKS_URL: `http://127.0.0.1:${issuer.address().port}/`, SEMEL_JWT_AUDIENCE: AUDIENCE, SEMEL_ORIGINS: APP, SEMEL_RATE_BURST: "1000000", SEMEL_RATE_PER_SECOND: "1000000" };
const server = await serve(after, "ledger", vars, { reachesLocal: true });
const token = (sub, claims) => SIGNER.token({ sub, ...claims });
const alice = token("alice");
const LEEWAY_S = 30;
const seconds = () => Math.floor(Date.now() / 1000);

/** The content type that `fetch` gives to a body that is a string. It is part of the fingerprint. */
const TEXT = { "content-type": "text/plain;charset=UTF-8" };
const path = (account) => `/semel/v1/keys/accounts%2F${account}/socket`;
const deposit = (account, amount = 1, id = randomUUID()) => ({ id, firstSent: seconds(), method: "POST", path: `/accounts/${account}/deposit`, headers: TEXT, body: JSON.stringify({ amount }) });
const frame = (number, requests, more) => JSON.stringify({ frame: number, requests, ...more });
/** A frame that closes the connection, masked with zeros. */
const CLOSE = Buffer.from([0x88, 0x80, 0, 0, 0, 0]);
/** A frame with an opcode that does not exist. */
const BROKEN = Buffer.from([0xf3, 0x80, 0, 0, 0, 0]);
const hello = (as = alice, more) => JSON.stringify({ authorization: `Bearer ${as}`, ...more });
const account = async (name) => (await server.send("GET", `/accounts/${name}`, { as: alice })).json;
const statuses = ({ answers }) => answers.map(({ headers }) => headers["semel-status"]);

/** Opens a socket and authenticates on it, or sends another `first` message. */
async function connect(name, first = hello(), headers, opened = () => open(server.url, path(name), headers)) {
  const { status, socket } = await opened();
  assert.equal(status, 101);
  socket.send(first);
  socket.ask = async (...asked) => {
    socket.send(frame(...asked));
    return JSON.parse(await socket.next());
  };
  return socket;
}

/**
 * A probe of the test's own. `ours(name, first)` opens a socket at a key, `put(what, body)` sets its clock or timers, `runs(name)` tells how many
 * changes of a key were kept.
 */
async function probing(t, more) {
  const own = await serve((end) => t.after(end), "probe", { ...vars, ...more }, { reachesLocal: true });
  const at = (name) => `/semel/v1/keys/${name}/socket`;
  return {
    opened: (name, headers) => open(own.url, at(name), headers),
    ours: (name, first, headers) => connect(name, first, headers, () => open(own.url, at(name), headers)),
    put: (what, body) => own.send("POST", `/probe/${what}`, { body: String(body) }),
    runs: async (name) => Number((await own.send("GET", "/runs", { key: `"${name}"`, as: alice })).text) - 1,
  };
}

/** A change for a probe, without a first-sent. */
const echo = () => ({ id: randomUUID(), method: "POST", path: "/echo", headers: TEXT, body: "x" });

/**
 * An issuer that does not answer until the test does, and a probe that gets LATE's key from it. `asked` resolves to the issuer's response. For the
 * probe no time passes, so neither clients that wait nor clients that are silent run out of time.
 */
async function withoutKeys(t) {
  const silent = createServer();
  await new Promise((resolve) => silent.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    silent.closeAllConnections();
    silent.close();
  });
  const asked = new Promise((resolve) => silent.once("request", (_, response) => resolve(response)));
  const probe = await probing(t, { SEMEL_JWKS_URL: `http://127.0.0.1:${silent.address().port}/` });
  await probe.put("timers", 2_000);
  await probe.put("clock", "stands for 1000000");
  return { ...probe, asked };
}

/** Opens a socket, and waits until it is known who is on it. */
async function heard(name, as = alice) {
  const socket = await connect(name, hello(as));
  await socket.ask(0, []);
  return socket;
}

// What takes ten seconds is begun first, and looked at last.
const STRANGERS = 100;
/** The oldest silent socket, then others in any order, and one more, which has the oldest closed. */
const evicted = await open(server.url, path("silent"));
const strangers = await Promise.all(Array.from({ length: STRANGERS - 1 }, () => open(server.url, path("silent"))));
const crowded = await open(server.url, path("silent"));
/** As many authenticated sockets as a key may have: one of bob's, then the oldest of alice's, then others of alice's in any order. */
const crowd = [await heard("full", token("bob")), await heard("full")];
while (crowd.length < 1_000) crowd.push(...(await Promise.all(Array.from({ length: Math.min(37, 1_000 - crowd.length) }, () => heard("full")))));
const sleeper = await connect("sleeper");
const sleeperId = randomUUID();
const sleeperFirst = await sleeper.ask(1, [deposit("sleeper", 5, sleeperId)]);
const sleeperSinceMs = Date.now();

test("frames are answered in order, with their numbers, and a request in a frame is the same request as by HTTP", async () => {
  const socket = await connect("order");
  const id = randomUUID();
  const first = await socket.ask(7, [deposit("order", 5, id), { method: "GET", path: "/accounts/order" }, deposit("order", 5, id)]);
  assert.deepEqual([first.frame, Object.keys(first), statuses(first)], [7, ["frame", "now", "answers"], ["executed", "read", "replayed"]]);
  assert.ok(Math.abs(first.now - Date.now()) < 60_000);
  assert.deepEqual(JSON.parse(first.answers[1].body), { id: "order", balance: 5, entries: 1 });
  // The client chooses the numbers of its frames, and may repeat them.
  assert.deepEqual([(await socket.ask(3, [])).frame, (await socket.ask(3, [])).answers], [3, []]);
  const again = await server.deposit("order", 5, { id, as: alice });
  assert.deepEqual([again.semel, again.text], ["replayed", first.answers[0].body]);
  assert.deepEqual(statuses(await socket.ask(8, [], { acks: [id] })), []);
  assert.equal((await server.deposit("order", 5, { id, as: alice })).semel, "acknowledged");
  socket.destroy();
});

test("a session works on a socket: in order, replayed on the next socket, and fenced by the next take-over", async () => {
  const holder = () => ({ id: randomUUID(), method: "POST", path: "/semel/v1/keys/accounts%2Fsession/sessions", body: JSON.stringify({ name: "tab" }) });
  const numbered = (epoch, seq, ack) => ({ session: { name: "tab", epoch, seq, ack }, method: "POST", path: "/accounts/session/deposit", headers: TEXT, body: JSON.stringify({ amount: 1 }) });
  const bodyOf = ({ body }) => JSON.parse(body);
  const first = await connect("session");
  const taken = await first.ask(1, [holder()]);
  assert.deepEqual(taken.answers.map(bodyOf), [{ name: "tab", epoch: 1, lastSeq: 0 }]);
  // Frames that are under way together are answered in order, and a gap takes no place.
  for (const [number, seq] of [[2, 1], [3, 2], [4, 4], [5, 3]]) first.send(frame(number, [numbered(1, seq)]));
  const answers = [];
  for (let number = 2; number <= 5; number += 1) answers.push(JSON.parse(await first.next()));
  assert.deepEqual(answers.flatMap(statuses), ["executed", "executed", "sequence-gap", "executed"]);
  assert.equal(bodyOf(answers[2].answers[0]).expectedSeq, 3);
  // The connection breaks. The client sends again what had no answer as far as it knows.
  first.destroy();
  const second = await connect("session");
  const again = await second.ask(1, [numbered(1, 3), numbered(1, 4, 3), numbered(1, 3)]);
  assert.deepEqual(statuses(again), ["replayed", "executed", "acknowledged"]);
  assert.equal(again.answers[0].body, answers[3].answers[0].body);
  const other = await connect("session");
  assert.deepEqual((await other.ask(1, [holder()])).answers.map(bodyOf), [{ name: "tab", epoch: 2, lastSeq: 4 }]);
  const fenced = await second.ask(2, [numbered(1, 5), numbered(1, 4)]);
  assert.deepEqual([statuses(fenced), bodyOf(fenced.answers[0]).currentEpoch], [["fenced", "replayed"], 2]);
  assert.deepEqual(statuses(await other.ask(2, [numbered(2, 5)])), ["executed"]);
  assert.equal((await account("session")).balance, 5);
  second.destroy();
  other.destroy();
});

test("a thousand frames that are sent before any answer are executed once each, in their order", async () => {
  const { socket } = await open(server.url, path("many"));
  socket.send(hello());
  for (let number = 0; number < 1_000; number += 1) socket.send(frame(number, [deposit("many")]));
  for (let number = 0; number < 1_000; number += 1) {
    const answer = JSON.parse(await socket.next());
    assert.deepEqual([answer.frame, statuses(answer)], [number, ["executed"]]);
    assert.equal(JSON.parse(answer.answers[0].body).balance, number + 1);
  }
  assert.equal((await account("many")).balance, 1_000);
  socket.destroy();
});

test("only a listed origin, the Worker's own, and a client without an Origin may open a socket", async () => {
  const { host, origin } = new URL(server.url);
  for (const allowed of [APP, origin, undefined]) {
    const { status, socket } = await open(server.url, path("origin"), allowed && { origin: allowed });
    assert.equal(status, 101, allowed);
    socket.destroy();
  }
  for (const other of ["https://evil.example", `${APP}.evil.example`, "null", `http://${host}.evil.example`]) {
    const { status, headers } = await open(server.url, path("origin"), { origin: other });
    assert.deepEqual([status, headers["semel-status"], headers["access-control-allow-origin"]], [403, "forbidden", undefined], other);
  }
  const plain = await server.send("GET", path("origin"), { as: alice });
  assert.deepEqual([plain.status, plain.semel], [404, "not-found"]);
  assert.equal((await server.send("GET", path("origin"))).status, 401);
  const { status } = await open(server.url, "/accounts/origin/socket", { authorization: `Bearer ${alice}` });
  assert.equal(status, 404, "no other path opens one");
});

test("a socket whose first message is invalid or not allowed is closed with a code, and nothing behind it runs", async () => {
  const cases = [
    ["{}", 4401, "unauthorized"],
    [hello("x.y.z"), 4401, "unauthorized"],
    [hello(token("alice", { exp: seconds() - 60 })), 4401, "unauthorized"],
    [hello(signer("ES256").token({ sub: "alice" })), 4401, "unauthorized"],
    [hello(alice, { principal: "bob" }), 4403, "forbidden"],
    [hello(token("alice", { semel: { keys: ["accounts/another"] } })), 4403, "forbidden"],
    [hello(ADMIN_TOKEN), 4403, "forbidden"],
    [JSON.stringify({ authorization: "Basic YTpi" }), 4401, "unauthorized"],
    [JSON.stringify({ authorization: `Bearer ${alice}`, more: 1 }), 4400, "body-invalid"],
    ["hello", 4400, "body-invalid"],
    [frame(1, []), 4400, "body-invalid"],
    [Buffer.from(hello()), 4400, "body-invalid"],
    [hello(alice) + " ".repeat(1 << 14), 4413, "too-large"],
    [" ".repeat((1 << 20) + 1), 4413, "too-large"],
  ];
  for (const [first, code, reason] of cases) {
    const socket = await connect("shut", first);
    for (let number = 0; number < 3; number += 1) socket.send(frame(number, [deposit("shut")]));
    socket.send(hello());
    socket.send(frame(9, [deposit("shut")]));
    assert.deepEqual(await socket.closed, [code, reason], String(first).slice(0, 80));
    socket.destroy();
  }
  assert.equal((await account("shut")).balance, 0);
  const bob = await connect("shut", hello(alice, { principal: "alice" }));
  assert.deepEqual(statuses(await bob.ask(1, [deposit("shut")])), ["executed"]);
  bob.destroy();
});

test("on a socket of its own another principal learns and changes nothing, and a token for reads changes nothing", async () => {
  const id = randomUUID();
  await server.deposit("private", 1, { id, as: alice });
  const control = (what) => `/semel/v1/keys/accounts%2Fprivate/${what}`;
  const probing = [deposit("private", 1, id), { method: "GET", path: control(`outcomes/${id}`) }, { id: randomUUID(), method: "POST", path: control("cancel"), body: JSON.stringify({ id }) }];
  const mallory = await connect("private", hello(token("mallory")));
  assert.deepEqual(statuses(await mallory.ask(1, probing, { acks: [id] })), ["fingerprint-mismatch", "not-seen", "fingerprint-mismatch"]);
  const reader = await connect("private", hello(token("alice", { semel: { methods: ["GET"] } })));
  assert.deepEqual(statuses(await reader.ask(1, [deposit("private"), { method: "GET", path: "/accounts/private" }])), ["forbidden", "read"]);
  assert.deepEqual(statuses(await reader.ask(2, [{ method: "GET", path: "/accounts/private" }], { acks: [id] })), ["forbidden"]);
  assert.deepEqual(statuses(await reader.ask(3, [], { acks: [id] })), ["forbidden"], "somebody has to be told");
  assert.deepEqual(statuses(await reader.ask(4, [deposit("another")])), ["key-mismatch"]);
  assert.equal((await server.deposit("private", 1, { id, as: alice })).semel, "replayed");
  assert.equal((await account("private")).balance, 1);
  for (const socket of [mallory, reader]) socket.destroy();
});

test("a frame that can't be read closes its socket with a code, and nothing of it runs", async () => {
  const good = deposit("garbage");
  const bad = [
    ["", 4400],
    ["x", 4400],
    ["[]", 4400],
    ["null", 4400],
    ['{"frame":1}', 4400],
    [frame("1", [good]), 4400],
    [frame(-1, [good]), 4400],
    [frame(1, [good, {}]), 4400],
    [frame(1, [good], { acks: [1] }), 4400],
    [frame(1, [good], { more: 1 }), 4400],
    [frame(1, [good]).slice(0, -1), 4400],
    [hello(), 4400],
    [Buffer.from(frame(1, [good])), 4400],
    ["[".repeat(100_000), 4400],
    [frame(1, Array(257).fill(good)), 4413],
    [frame(1, [good, "x".repeat(1 << 20)]), 4413],
  ];
  for (const [message, code] of bad) {
    const socket = await connect("garbage");
    assert.deepEqual(statuses(await socket.ask(0, [{ method: "GET", path: "/accounts/garbage" }])), ["read"]);
    socket.send(message);
    socket.send(frame(2, [good]));
    assert.deepEqual(await socket.closed, [code, code === 4413 ? "too-large" : "body-invalid"], String(message).slice(0, 60));
    socket.destroy();
  }
  // Bytes that are no WebSocket, and a connection that ends in the middle of a frame.
  for (const bytes of [Buffer.alloc(1000, 0xff), Buffer.from([0x81, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3, 4, 5]), "GET / HTTP/1.1\r\n\r\n"]) {
    const socket = await connect("garbage");
    socket.raw(bytes);
    socket.destroy();
  }
  assert.deepEqual(await account("garbage"), { id: "garbage", balance: 0, entries: 0 });
});

test("a socket is closed when its token ends, whether it is idle or busy", { timeout: 30_000 }, async (t) => {
  const { ours, put, runs } = await probing(t);
  // The probe's clock is an hour behind until all have arrived, however slowly. Its alarms go by the machine's clock.
  const hourMs = 3_600_000;
  await put("clock", -hourMs);
  const exp = seconds() - LEEWAY_S + 3;
  const [idle, busy, lasting] = [await ours("ends", hello(token("alice", { exp }))), await ours("ends", hello(token("alice", { exp }))), await ours("ends")];
  for (const socket of [idle, busy, lasting]) assert.deepEqual(statuses(await socket.ask(1, [echo()])), ["executed"]);
  await put("clock", hourMs);
  const endsMs = Math.max((exp + LEEWAY_S) * 1000, Date.now());
  const ended = busy.closed.then((closed) => [closed, Date.now()]);
  const asks = async (number = 2) => (await busy.ask(number, [{ method: "GET", path: "/echo" }]), asks(number + 1));
  await assert.rejects(asks(), /4401/);
  const [closed, atMs] = await ended;
  assert.deepEqual(closed, [4401, "unauthorized"]);
  assert.deepEqual(await idle.closed, [4401, "unauthorized"]);
  assert.ok(atMs - endsMs > -100 && atMs - endsMs < 5_000, `${atMs - endsMs} ms late`);
  assert.deepEqual(statuses(await lasting.ask(2, [echo()])), ["executed"]);
  assert.equal(await runs("ends"), 4);
  lasting.destroy();
});

test("a token may last longer than the platform's alarms can, and the log has nothing about an alarm", async (t) => {
  const server = await serve((end) => t.after(end), "ledger", { ...vars, SEMEL_LOG_SAMPLE: "1" }, { reachesLocal: true });
  const { socket } = await open(server.url, path("lasting"));
  socket.send(hello(token("alice", { exp: 9_999_999_999 })));
  const id = randomUUID();
  socket.send(frame(1, [deposit("lasting", 1, id)]));
  assert.deepEqual(statuses(JSON.parse(await socket.next())), ["executed"]);
  // Nor may the log say anything of it after this request.
  const last = randomUUID();
  assert.equal((await server.deposit("lasting", 1, { id: last, as: alice })).semel, "executed");
  await server.lineOf(last);
  assert.ok(server.log.includes(id) && !server.log.includes("alarm"), server.log);
  socket.destroy();
});

test("a client that reads no answers holds nobody up, takes bounded memory, and has each frame executed once", { timeout: 60_000 }, async () => {
  const before = await server.memory();
  const greedy = await connect("greedy");
  greedy.pause();
  const reads = Array(200).fill({ method: "GET", path: "/accounts/greedy" });
  const [frames, ids] = [100, []];
  for (let number = 0; number < frames; number += 1) {
    ids.push(randomUUID());
    greedy.send(frame(number, [...reads, deposit("greedy", 1, ids.at(-1))]));
  }
  const polite = await connect("greedy");
  for (let number = 0; number < 20; number += 1) assert.deepEqual(statuses(await polite.ask(number, [deposit("greedy")])), ["executed"]);
  const grownBytes = (await server.memory()) - before;
  assert.ok(grownBytes < 300 << 20, `${grownBytes} bytes`);
  greedy.resume();
  for (let number = 0; number < frames; number += 1) {
    const answer = JSON.parse(await greedy.next());
    assert.deepEqual([answer.frame, statuses(answer).at(-1)], [number, "executed"]);
  }
  assert.equal((await account("greedy")).balance, frames + 20);
  for (const socket of [greedy, polite]) socket.destroy();
});

test("frames wait until their sender is known; a socket that sends more than may wait is closed, and known ones go on", { timeout: 60_000 }, async (t) => {
  const { ours, runs, asked } = await withoutKeys(t);
  const late = () => hello(LATE.token({ sub: "alice" }));
  const padding = " ".repeat(1_000_000);
  const [patient, flood] = [await ours("patient", late()), await ours("flood", late())];
  for (let number = 0; number < 7; number += 1) patient.send(`${frame(number, [echo()])}${padding}`);
  for (let number = 0; number < 9; number += 1) flood.send(`${frame(number, [echo()])}${padding}`);
  assert.deepEqual(await flood.closed, [4429, "rate-limited"]);
  // All sockets without a known sender together have no more room than one socket. They are in the way neither of known senders nor of new ones.
  const known = await ours("crowd");
  assert.deepEqual(statuses(await known.ask(1, [echo()])), ["executed"]);
  const crowd = await Promise.all(Array.from({ length: 5 }, () => ours("crowd", late())));
  // Each message counts as 1 KiB, so these fill all the room.
  for (const socket of crowd) for (let number = 0; number < 8_000; number += 1) socket.send("x");
  assert.deepEqual(await Promise.any(crowd.map(({ closed }) => closed)), [4429, "rate-limited"]);
  assert.deepEqual(statuses(await known.ask(2, [echo()])), ["executed"]);
  const newcomer = await ours("crowd");
  assert.deepEqual(statuses(await newcomer.ask(1, [echo()])), ["executed"]);
  for (const socket of [known, newcomer, ...crowd]) socket.destroy();
  (await asked).end(jwks(LATE));
  for (let number = 0; number < 7; number += 1) {
    const answer = JSON.parse(await patient.next());
    assert.deepEqual([answer.frame, statuses(answer)], [number, ["executed"]]);
  }
  assert.deepEqual([await runs("patient"), await runs("flood")], [7, 0]);
  for (const socket of [patient, flood]) socket.destroy();
});

test("while a hundred senders are being checked, one more socket is refused with 503 and Retry-After", { timeout: 30_000 }, async (t) => {
  const { opened, asked } = await withoutKeys(t);
  const another = () => opened("full", { origin: APP });
  const waiting = await Promise.all(Array.from({ length: STRANGERS }, async () => (await another()).socket));
  for (const socket of waiting) socket.send(hello(LATE.token({ sub: "alice" })));
  const response = await asked;
  // The first frames of a hundred connections arrive in any order. Until all are there, a silent socket still makes room, and the key is not full.
  let refused;
  for (let tries = 0; tries < 100 && refused?.status !== 503; tries += 1) {
    refused = await another();
    refused.socket?.send(hello(LATE.token({ sub: "alice" })));
    if (refused.socket) waiting.push(refused.socket);
  }
  assert.deepEqual([refused.status, refused.headers["semel-status"], refused.headers["retry-after"], refused.headers["access-control-allow-origin"]], [503, "unavailable", "1", APP]);
  response.end(jwks(LATE));
  const last = waiting.at(-1);
  last.send(frame(1, [echo()]));
  assert.deepEqual(statuses(JSON.parse(await last.next())), ["executed"]);
  assert.equal((await another()).status, 101);
  for (const socket of waiting) socket.destroy();
});

test("a socket is not compressed, even if the client offers permessage-deflate", async () => {
  const { status, headers, socket } = await open(server.url, path("plain"), { "sec-websocket-extensions": "permessage-deflate; client_max_window_bits" });
  assert.deepEqual([status, headers["sec-websocket-extensions"]], [101, undefined]);
  socket.send(hello());
  socket.send(frame(1, [deposit("plain")]));
  assert.deepEqual(statuses(JSON.parse(await socket.next())), ["executed"]);
});

test("a client that closes its socket gets a close frame back", { timeout: 30_000 }, async () => {
  const before = await connect("leaves");
  assert.deepEqual(statuses(await before.ask(1, [deposit("leaves")])), ["executed"]);
  const { socket: stranger } = await open(server.url, path("leaves"));
  for (const socket of [before, stranger]) {
    socket.raw(CLOSE);
    assert.notEqual((await socket.closed)[0], 1006, "its connection ended without a word");
  }
});

test("many sockets of one key, opened and dropped at any moment, make each deposit once", { timeout: 60_000 }, async () => {
  const ids = Array.from({ length: 60 }, () => randomUUID());
  const waiting = new Map(ids.map((id) => [id, deposit("dropped", 1, id)]));
  for (let round = 0; waiting.size > 0; round += 1) {
    assert.ok(round < 100);
    const socket = await connect("dropped");
    const sent = [...waiting.values()].slice(0, 10);
    socket.send(frame(1, sent));
    if (round % 2 === 0) {
      const answer = JSON.parse(await socket.next());
      for (const [index, { headers }] of answer.answers.entries()) {
        assert.ok(["executed", "replayed"].includes(headers["semel-status"]));
        waiting.delete(sent[index].id);
      }
    }
    socket.destroy();
  }
  assert.equal((await account("dropped")).balance, ids.length);
});

test("silent sockets are closed after ten seconds, the oldest earlier if its key is crowded, and a new one may speak", { timeout: 30_000 }, async () => {
  assert.ok([evicted, ...strangers, crowded].every(({ status }) => status === 101));
  assert.deepEqual(await evicted.socket.closed, [4503, "unavailable"]);
  // Each was let in and closed later, not refused: the network may have held up what it sent.
  for (const { socket } of strangers) assert.deepEqual(await socket.closed, [4503, "unavailable"]);
  // The one that comes last may still speak, however many are silent.
  const quiet = await Promise.all(Array.from({ length: STRANGERS }, () => open(server.url, path("silent"))));
  const late = await connect("silent");
  assert.deepEqual(statuses(await late.ask(1, [deposit("silent")])), ["executed"]);
  for (const { socket } of quiet) socket.destroy();
  late.destroy();
});

test("a client that opens a hundred sockets loses its own oldest, and not the silent socket of another address", { timeout: 30_000 }, async (t) => {
  const { opened, put } = await probing(t);
  // The timers never ring, so nobody is silent for too long, however long it takes to open a hundred.
  await put("timers", 2_000);
  const from = (address) => opened("besieged", { "cf-connecting-ip": address });
  const { socket: slow } = await from("192.0.2.1");
  const besiegers = [];
  // One more than fits beside the slow one, so one socket has to be closed.
  while (besiegers.length < STRANGERS) besiegers.push(await from("192.0.2.2"));
  assert.ok(besiegers.every(({ status }) => status === 101));
  slow.send(hello());
  slow.send(frame(1, [echo()]));
  assert.deepEqual(statuses(JSON.parse(await slow.next())), ["executed"]);
  assert.deepEqual(await besiegers[0].socket.closed, [4503, "unavailable"]);
  for (const { socket } of besiegers) socket.destroy();
  slow.destroy();
});

test("after its object has slept, a socket keeps its sender, and counts towards the limit of the key", { timeout: 60_000 }, async () => {
  /** How many requests the object has answered since it started. */
  const counted = async () => Object.values((await server.admin("GET", "keys/accounts%2Fsleeper")).json.counters).reduce((sum, count) => sum + count, 0);
  // workerd puts an object to sleep after ten seconds without a request. The only sign of that is that it starts anew.
  const asleepMs = sleeperSinceMs + 13_000;
  await new Promise((resolve) => setTimeout(resolve, Math.max(0, asleepMs - Date.now())));
  const woken = await sleeper.ask(2, [deposit("sleeper", 5, sleeperId), deposit("sleeper", 5)]);
  assert.deepEqual(statuses(woken), ["replayed", "executed"]);
  assert.deepEqual(woken.answers[0].body, sleeperFirst.answers[0].body);
  assert.equal(await counted(), 2, "the one that answered before is gone");
  sleeper.destroy();
  // The object still counts the sockets from before it slept. So one more has the oldest socket closed of the principal with the most.
  const [bobs, first, ...others] = crowd;
  const more = await heard("full");
  assert.deepEqual(await first.closed, [4503, "unavailable"]);
  for (const socket of [bobs, others[0], others.at(-1), more]) assert.deepEqual((await socket.ask(1, [])).answers, []);
  // A socket that breaks the rules of WebSocket is closed, and takes no room.
  more.raw(BROKEN);
  await more.closed;
  const last = await heard("full");
  for (const socket of [bobs, ...others, last]) assert.deepEqual((await socket.ask(2, [])).answers, []);
  for (const socket of [...crowd, more, last]) socket.destroy();
});
