// Sockets as raw WebSockets on workerd: the order of answers, what closes a socket, sleep, and clients that mean harm. `socket-senders.test.mjs` has
// who may be on one, and `batch.test.mjs` has kills and crashes.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { STRANGERS, TEXT, alice, deposit, echo, frame, hello, path, sockets, statuses, token } from "./socket.mjs";
import { open } from "./websocket.mjs";

const { server, account, connect, probing } = await sockets(after);

/** A frame that closes the connection, masked with zeros. */
const CLOSE = Buffer.from([0x88, 0x80, 0, 0, 0, 0]);
/** A frame with an opcode that does not exist. */
const BROKEN = Buffer.from([0xf3, 0x80, 0, 0, 0, 0]);

/** Opens a socket, and waits until it is known who is on it. */
async function heard(name, as = alice) {
  const socket = await connect(name, hello(as));
  await socket.ask(0, []);
  return socket;
}

// What takes ten seconds is begun first, and looked at last.
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
