// The sockets of a key: who is on each, whose frame has its turn, and how much may wait. The test provides time and the platform's sockets;
// `socket.test.mjs` has the same on workerd.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { serialize } from "node:v8";
import { natively } from "./natively.mjs";

const { Sockets } = await natively("sockets.js");

const NOW = 1_000_000_000;
const KIB = 1 << 10;
const MIB = 1 << 20;
const ATTACHMENT_BYTES_MAX = 16 * KIB;
const UNAVAILABLE = [4503, "unavailable"];

/** A socket as the platform provides it. Notes what was sent, the attachment, how it was closed first, and how often. */
class Platforms {
  readyState = 1;
  closed;
  closes = 0;
  sent = [];

  constructor(attachment = null) {
    this.attachment = attachment;
  }

  serializeAttachment(attachment) {
    // workerd limits attachments like this.
    if (serialize(attachment).length > ATTACHMENT_BYTES_MAX) throw new Error("an attachment has at most 16384 bytes");
    this.attachment = attachment;
  }

  deserializeAttachment() {
    return this.attachment;
  }

  send(text) {
    this.sent.push(text);
  }

  close(...closed) {
    this.readyState = 2;
    this.closed ??= closed;
    this.closes += 1;
  }
}

// Node's Response refuses status 101.
const { Response } = globalThis;
globalThis.Response = class {
  constructor(body, { status, webSocket }) {
    Object.assign(this, { status, webSocket });
  }
};
globalThis.WebSocketPair = class {
  0 = "the client's";
  1 = new Platforms();
};
after(() => {
  globalThis.Response = Response;
  delete globalThis.WebSocketPair;
});

/**
 * The sockets of a key at `NOW`. `kept`: sockets that an earlier object had. A first message waits in `admitting` until the test resolves who sent
 * it; a frame waits in `answering` until the test resolves its answer. `woken`: how often the object saw to its alarm.
 */
function key(t, kept = []) {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: NOW });
  const noted = t.mock.method(console, "log", () => {});
  const its = { accepted: [...kept], admitting: [], answering: [], woken: 0, notes: () => noted.mock.calls.map(({ arguments: [line] }) => JSON.parse(line).message) };
  const waits = (list) => (...asked) => new Promise((resolve, reject) => list.push({ asked, resolve, reject }));
  // workerd lists the newest first.
  const ctx = { getWebSockets: () => its.accepted.toReversed(), acceptWebSocket: (socket) => its.accepted.push(socket) };
  its.sockets = new Sockets(ctx, waits(its.admitting), waits(its.answering), () => (its.woken += 1));
  /** Opens a socket, or returns undefined if there is no room. */
  its.open = (address = "1") => {
    const headers = new Headers({ "semel-key": "k", "cf-connecting-ip": address });
    return its.sockets.open({ headers })?.status === 101 ? its.accepted.at(-1) : undefined;
  };
  /** Opens a socket on which the sender is known. */
  its.known = async (endsMs, asker = "alice") => {
    const socket = its.open();
    its.sockets.message(socket, "hello");
    await turn();
    its.admitting.at(-1).resolve([asker, endsMs]);
    await turn();
    return socket;
  };
  return its;
}

test("a restart closes the sockets whose sender is unknown, and knows the first end of a token", (t) => {
  const kept = [{ key: "k", address: "1" }, { key: "k", asker: "alice", endsMs: NOW + 9 }, { key: "k", asker: "bob", endsMs: NOW + 5 }, { key: "k", asker: "carol" }, null].map((attachment) => new Platforms(attachment));
  const { sockets } = key(t, kept);
  assert.deepEqual(kept.map(({ closed }) => closed), [UNAVAILABLE, undefined, undefined, undefined, UNAVAILABLE]);
  assert.equal(sockets.endsMs, NOW + 5);
});

test("a silent socket is closed after ten seconds and takes no room, and one whose sender is being checked stays", async (t) => {
  const { sockets, open, admitting } = key(t);
  const [silent, spoken, gone] = [open(), open(), open()];
  sockets.message(spoken, "hello");
  sockets.left(gone);
  await turn();
  t.mock.timers.tick(9_999);
  assert.equal(silent.closed, undefined);
  t.mock.timers.tick(5_000);
  assert.deepEqual([silent.closed, spoken.closed, gone.closed], [UNAVAILABLE, undefined, []]);
  assert.equal(gone.closes, 1, "nothing waits for one that has gone");
  admitting[0].resolve(["alice", undefined]);
  await turn();
  const others = Array.from({ length: 100 }, () => open());
  assert.ok(others.every((socket) => socket && !socket.closed), "neither takes room any more");
});

test("the oldest silent socket of the address with most makes room; those that spoke stay, and one more is refused", async (t) => {
  const { sockets, open, admitting } = key(t);
  const first = open("1");
  const others = Array.from({ length: 99 }, () => open("2"));
  for (const socket of [others[0], others[2]]) sockets.message(socket, "hello");
  await turn();
  const more = [open("3"), open("3")];
  assert.deepEqual([first, ...others.slice(0, 5)].map(({ closed }) => closed), [undefined, undefined, UNAVAILABLE, undefined, UNAVAILABLE, undefined]);
  const waiting = [first, ...others, ...more].filter(({ closed }) => !closed);
  assert.equal(waiting.length, 100);
  for (const socket of waiting) if (socket !== others[0] && socket !== others[2]) sockets.message(socket, "hello");
  await turn();
  assert.equal(open("4"), undefined);
  assert.ok(waiting.every(({ closed }) => !closed));
  admitting[0].resolve(["alice", undefined]);
  await turn();
  assert.ok(open("4"), "it is known who is on one of them");
  sockets.closed(first);
  assert.ok(open("4"), "one has gone");
});

test("sockets from an address of 30,000 characters can open, and count as from one address", (t) => {
  const { open } = key(t);
  const long = Array.from({ length: 100 }, () => open("x".repeat(30_000)));
  assert.ok(long.every(Boolean));
  assert.ok(open("another"));
  assert.deepEqual([long[0].closed, long[1].closed], [UNAVAILABLE, undefined], "they are known to be of one address");
});

test("IPv6 addresses with the same first 64 bits count as one, however they are written", (t) => {
  for (const written of [["2001:db8:0:1::", "2001:db8:0:1:0:0:0:", "2001:db8:0:1:9::", "2001:db8::1:5:6:7:"], ["2001:db9::", "2001:db9:0:0::", "2001:db9::9:0:0:"]]) {
    const { open } = key(t);
    const other = open("2001:db8:0:2::1");
    const more = ["192.0.2.1", "192.0.2.2", "::ffff:192.0.2.1", "2001:db8::2:0:0:1", "2001:db8::", "::1", "::2:3:4:5:6:7:8"].map(open);
    const host = (number) => written[number % written.length] + (number + 1).toString(16);
    const many = Array.from({ length: 92 }, (_, number) => open(host(number)));
    assert.ok([other, ...more, ...many].every((socket) => socket && !socket.closed));
    for (let number = 0; number < 90; number += 1) assert.ok(open(`2001:db8:1:${number.toString(16)}::1`));
    assert.ok([other, ...more].every(({ closed }) => !closed));
    assert.deepEqual(many.map(({ closed }) => closed), [...Array(90).fill(UNAVAILABLE), undefined, undefined]);
    t.mock.reset();
  }
});

test("an IPv4 address that is written as IPv6 counts as an address of its own", (t) => {
  const { open } = key(t);
  const each = Array.from({ length: 60 }, (_, number) => open(`::ffff:192.0.2.${number}`));
  const many = Array.from({ length: 40 }, (_, number) => open(`2001:db8::${number.toString(16)}`));
  assert.ok(open("192.0.2.1"));
  assert.deepEqual([each.filter(({ closed }) => closed).length, many.map(({ closed }) => closed)], [0, [UNAVAILABLE, ...Array(39).fill(undefined)]]);
});

/** The sender, as the core writes it: the end of the token, the principal, and its rights. */
const askerOf = (principal, endsMs = "") => `${endsMs}\n${principal}\n{}`;

test("a key has a thousand known sockets: one more closes the oldest of the principal with most, whatever its token", async (t) => {
  const { sockets, open, known, accepted } = key(t);
  const bobs = [await known(undefined, askerOf("bob")), await known(undefined, askerOf("bob"))];
  const mallorys = [];
  for (let number = 0; number < 998; number += 1) mallorys.push(await known(NOW + 60_000 + number, askerOf("mallory", NOW + 60_000 + number)));
  const strangers = Array.from({ length: 100 }, () => open());
  assert.ok(accepted.every(({ closed }) => !closed), "who has yet to say who it is takes no room from those who have");
  for (const stranger of strangers) sockets.closed(stranger);
  const carol = await known(undefined, askerOf("carol"));
  const closed = () => [...bobs, carol, ...mallorys].flatMap((socket) => (socket.closed ? [[mallorys.indexOf(socket), socket.closed]] : []));
  assert.deepEqual(closed(), [[0, UNAVAILABLE]]);
  mallorys.push(await known(undefined, askerOf("mallory")));
  assert.deepEqual(closed(), [[0, UNAVAILABLE], [1, UNAVAILABLE]], "their own");
  // A socket that has left, was closed or whose token has ended takes no room.
  for (const gone of [carol, mallorys[2]]) sockets.left(gone);
  sockets.message(mallorys[3], new ArrayBuffer(8));
  sockets.message(mallorys[4], "x".repeat(9 * MIB));
  await turn();
  sockets.end(NOW + 60_005);
  assert.equal(closed().length, 7);
  for (let number = 0; number < 5; number += 1) await known(undefined, askerOf("carol"));
  assert.equal(closed().length, 7);
  await known(undefined, askerOf("carol"));
  assert.deepEqual(closed().at(-1), [6, UNAVAILABLE]);
});

test("a socket that left before its sender is known takes no room", async (t) => {
  const { sockets, open, known, admitting, accepted } = key(t);
  const gone = Array.from({ length: 10 }, () => open());
  for (const socket of gone) sockets.message(socket, "hello");
  await turn();
  for (const socket of gone) sockets.left(socket);
  // Each has a principal of its own. If one principal had many, its oldest would make room, and those are the ones that have left.
  for (const [number, { resolve }] of admitting.entries()) resolve([askerOf(`mallory ${number}`), NOW + 1_000]);
  await turn();
  assert.equal(sockets.endsMs, Infinity, "nor is the end of its token waited for");
  for (let number = 0; number < 1_000; number += 1) await known(undefined, askerOf(`user ${number % 500}`));
  assert.ok(accepted.slice(10).every(({ closed }) => !closed));
});

test("an object that starts counts its sockets and their order, but not those that its predecessor closed", async (t) => {
  const kept = (principal) => new Platforms({ key: "k", asker: askerOf(principal) });
  // The closed sockets belong to others than the principal with the most, whose oldest would make room first.
  const closed = [kept("carol"), kept("dave")];
  for (const socket of closed) socket.close(...UNAVAILABLE);
  const all = [...closed, ...Array.from({ length: 999 }, () => kept("mallory")), kept("bob")];
  const { known } = key(t, all);
  assert.ok(all.slice(2).every(({ closed }) => !closed));
  await known(undefined, askerOf("bob"));
  assert.deepEqual(all.flatMap(({ closed }, number) => (closed ? [number] : [])), [0, 1, 2]);
});

test("a socket that is closed before its first frame has its turn takes no room", async (t) => {
  const { sockets, open } = key(t);
  for (let number = 0; number < 100; number += 1) {
    const socket = open();
    sockets.message(socket, "hello");
    sockets.closed(socket);
  }
  await turn();
  const one = open();
  assert.ok(one);
  const others = Array.from({ length: 99 }, () => open());
  assert.ok([one, ...others].every((socket) => socket && !socket.closed));
});

test("a socket whose first frame fails takes no room, even if its peer never confirms the close", async (t) => {
  const { sockets, open, admitting } = key(t);
  const failed = Array.from({ length: 100 }, () => open());
  for (const socket of failed) sockets.message(socket, "hello");
  await turn();
  for (const { reject } of admitting) reject("the settings can't be read");
  await turn();
  assert.ok(failed.every(({ closed }) => closed));
  const others = Array.from({ length: 100 }, () => open());
  assert.ok(others.every((socket) => socket && !socket.closed));
});

test("a refused sender is closed with the reason; an admitted one is known, and the alarm is seen to for its token", async (t) => {
  const its = key(t);
  const { sockets, open, admitting, answering } = its;
  const [refused, one, other] = [open(), open(), open()];
  for (const socket of [refused, one, other]) sockets.message(socket, "hello");
  await turn();
  assert.deepEqual(admitting.map(({ asked }) => asked), [["hello", "k"], ["hello", "k"], ["hello", "k"]]);
  admitting[0].resolve([4401, "unauthorized"]);
  await turn();
  assert.deepEqual([refused.closed, refused.attachment.asker, its.woken], [[4401, "unauthorized"], undefined, 0]);
  admitting[1].resolve(["alice", NOW + 7_000]);
  admitting[2].resolve(["bob", undefined]);
  await turn();
  assert.deepEqual([its.woken, sockets.endsMs, one.sent, one.closed], [2, NOW + 7_000, [], undefined]);
  sockets.message(one, "a frame");
  await turn();
  assert.deepEqual(answering[0].asked, ["k", "alice", "a frame"]);
});

test("sockets whose token has ended are closed, and the next end is known", async (t) => {
  const { sockets, known } = key(t);
  const all = [await known(NOW + 1_000), await known(NOW + 2_000), await known(NOW + 3_000), await known()];
  sockets.end(NOW + 2_000);
  const ended = [4401, "unauthorized"];
  assert.deepEqual([all.map(({ closed }) => closed), sockets.endsMs], [[ended, ended, undefined, undefined], NOW + 3_000]);
  sockets.end(NOW + 3_000);
  assert.deepEqual([all[2].closed, all[3].closed, sockets.endsMs], [ended, undefined, Infinity]);
});

test("a frame is answered before the next of its socket begins; one that fails closes its socket only", async (t) => {
  const { sockets, known, answering, notes } = key(t);
  const [one, other] = [await known(), await known()];
  one.send = () => {
    throw new Error("its peer has gone");
  };
  for (const [socket, text] of [[one, "1"], [one, "2"], [other, "3"], [one, "4"], [one, "5"]]) sockets.message(socket, text);
  await turn();
  const begun = () => answering.map(({ asked }) => asked[2]);
  assert.deepEqual(begun(), ["1", "3"]);
  answering[0].resolve(["not heard"]);
  await turn();
  delete one.send;
  assert.deepEqual([begun(), one.closed], [["1", "3", "2"], undefined]);
  answering[2].resolve(["heard"]);
  await turn();
  assert.deepEqual([begun(), one.sent], [["1", "3", "2", "4"], ["heard"]]);
  answering[3].reject(new Error("it failed"));
  await turn();
  assert.deepEqual([begun().length, one.closed, other.closed], [4, UNAVAILABLE, undefined], "nothing runs on what was closed");
  sockets.message(one, "6");
  await turn();
  assert.equal(begun().length, 4);
  assert.deepEqual(notes(), ["a frame's answer was not sent: Error: its peer has gone", "a frame failed: Error: it failed"]);
});

test("a socket that leaves while its frame is answered is sent nothing, and a binary message closes its socket", async (t) => {
  const { sockets, known, answering } = key(t);
  const [one, other] = [await known(), await known()];
  sockets.message(one, "1");
  sockets.message(other, new ArrayBuffer(8));
  await turn();
  sockets.left(one);
  answering[0].resolve(["too late"]);
  await turn();
  assert.deepEqual([one.sent, other.closed, answering.length], [[], [4400, "body-invalid"], 1]);
});

/** Sends until the socket is closed because too much waits on it. Returns how many messages were taken. */
function taken(sockets, socket, text) {
  for (let count = 0; count < 100_000; count += 1) {
    sockets.message(socket, text);
    if (socket.closed) return count;
  }
  throw new Error("it has no end");
}

test("on one socket 8 MiB may wait, each frame counted as 1 KiB at least, and answered frames count no more", async (t) => {
  const { sockets, known, answering } = key(t);
  const [large, small, again, binary] = [await known(), await known(), await known(), await known()];
  assert.equal(taken(sockets, large, "x".repeat(MIB)), 8);
  assert.deepEqual(large.closed, [4429, "rate-limited"]);
  assert.equal(taken(sockets, binary, new ArrayBuffer(MIB)), 8, "bytes count, though they are no frame");
  assert.equal(taken(sockets, small, "x"), 8 * KIB);
  for (let round = 0; round < 10; round += 1) {
    sockets.message(again, "x".repeat(8 * MIB));
    await turn();
    answering.at(-1).resolve(["answered"]);
    await turn();
  }
  assert.deepEqual([again.sent.length, again.closed], [10, undefined]);
});

test("on all sockets of a key 32 MiB may wait, and there is room again once a frame is answered", async (t) => {
  const { sockets, known, answering } = key(t);
  const all = [];
  for (let number = 0; number < 6; number += 1) all.push(await known());
  for (const socket of all.slice(0, 4)) for (let number = 0; number < 8; number += 1) sockets.message(socket, "x".repeat(MIB));
  await turn();
  answering[0].resolve(["answered"]);
  await turn();
  sockets.message(all[4], "x".repeat(MIB));
  assert.equal(all[4].closed, undefined, "one of them is answered");
  assert.deepEqual([taken(sockets, all[4], "x"), taken(sockets, all[5], "x")], [0, 0]);
});

test("frames on sockets that the object has closed take no room from the others", async (t) => {
  const { sockets, known, answering } = key(t);
  const ended = [];
  for (let number = 0; number < 4; number += 1) ended.push(await known(NOW + 1_000));
  const friend = await known();
  for (const socket of ended) sockets.message(socket, "under way");
  await turn();
  sockets.end(NOW + 1_000);
  for (const socket of ended) for (let number = 0; number < 8; number += 1) sockets.message(socket, "x".repeat(MIB - KIB));
  sockets.message(friend, "x".repeat(MIB));
  await turn();
  assert.deepEqual([friend.closed, answering.length], [undefined, 5]);
});

test("unknown senders share the room of one socket plus 64 KiB each, and take none from known ones", async (t) => {
  const { sockets, open, known, admitting } = key(t);
  const friend = await known();
  for (let round = 0; round < 2; round += 1) {
    const [one, other, late] = [open(), open(), open()];
    sockets.message(one, "x".repeat(7 * MIB));
    sockets.message(one, "x".repeat(MIB - 64 * KIB));
    assert.equal(one.closed, undefined);
    assert.equal(taken(sockets, other, "x".repeat(KIB)), 64 + 64);
    assert.equal(taken(sockets, late, "x".repeat(KIB)), 64);
    await turn();
    // The first frame is refused, so what waits behind it takes no room any more.
    for (const { resolve } of admitting.splice(0)) resolve([4401, "unauthorized"]);
    await turn();
  }
  const stranger = open();
  sockets.message(stranger, "x".repeat(8 * MIB));
  for (let number = 0; number < 8; number += 1) sockets.message(friend, "x".repeat(MIB));
  assert.deepEqual([stranger.closed, friend.closed], [undefined, undefined]);
});
