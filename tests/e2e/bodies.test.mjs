// Reading bodies, whole or not at all, and how much one principal may have under way. `codes.test.mjs` tests the limit of a body over HTTP.

import assert from "node:assert/strict";
import { test } from "node:test";
import { inChunks } from "./chunks.mjs";
import { natively } from "./natively.mjs";

const { bodyOf, decodedBodyOf, drained, roomFor } = await natively("bodies.js");

const MIB = 1 << 20;

/**
 * A message whose body comes in chunks of the given sizes. `length`: its Content-Length. `taken`: bytes read so far; `isCancelled`: whether the rest
 * was let go.
 */
function message(sizes, length) {
  const its = { taken: 0, isCancelled: false };
  const chunks = sizes.map((size, at) => new Uint8Array(size).fill(at + 1));
  const pull = (controller) => {
    const chunk = chunks.shift();
    if (chunk === undefined) return controller.close();
    its.taken += chunk.byteLength;
    controller.enqueue(chunk);
  };
  const body = new ReadableStream({ pull, cancel: () => void (its.isCancelled = true) }, { highWaterMark: 0 });
  return Object.assign(its, { headers: new Headers(length === undefined ? {} : { "content-length": String(length) }), body, arrayBuffer: () => new Response(body).arrayBuffer() });
}

test("a body of up to 1 MiB is read whole, with or without Content-Length, in any number of chunks", async () => {
  for (const sizes of [[], [5], [3, 4], [3, 0, 4], [1, 2, 3, 4, 5], [MIB], [MIB - 1, 1], [1, MIB - 1]]) {
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    const expected = Buffer.concat(sizes.map((size, at) => Buffer.alloc(size, at + 1)));
    for (const length of [undefined, bytes]) assert.ok(expected.equals(await bodyOf(message(sizes, length))), `${sizes} ${length}`);
  }
  assert.equal((await bodyOf({ headers: new Headers(), body: null })).byteLength, 0);
});

test("a body over 1 MiB is undefined: reading it stops past 16 MiB, and none is read if Content-Length says more", async () => {
  for (const [sizes, length] of [[[MIB, 1]], [[MIB, 1], MIB + 1], [Array(16).fill(MIB)], [[MIB + 1], MIB + 1]]) assert.equal(await bodyOf(message(sizes, length)), undefined, `${sizes} ${length}`);
  const endless = message(Array(100).fill(MIB));
  assert.equal(await bodyOf(endless), undefined);
  assert.deepEqual([endless.taken, endless.isCancelled], [17 * MIB, true]);
  const announced = message(Array(100).fill(MIB), 100 * MIB);
  assert.deepEqual([await bodyOf(announced), announced.taken], [undefined, 0]);
});

test("of a body in many chunks only the bytes are kept while it is read, and nothing of one over 1 MiB", async () => {
  for (const [count, size] of [[2_000, 1], [16, MIB]]) {
    const its = inChunks(count, size);
    const body = await bodyOf({ headers: new Headers(), body: its.stream });
    assert.equal(body?.byteLength, size * count > MIB ? undefined : size * count);
    assert.ok(its.kept < 5, `${its.kept} of ${count} chunks are kept`);
  }
});

test("a body of known length is read without a stream, which would cost several times as much", async () => {
  const { headers, arrayBuffer } = message([3, 4], 7);
  const request = { headers, arrayBuffer, get body() { return assert.fail("that makes a stream"); } };
  assert.equal((await bodyOf(request)).byteLength, 7);
});

test("a decoded body is limited by its decoded size, whatever its Content-Length says", async () => {
  assert.equal(await decodedBodyOf(message([MIB, 1], 100)), undefined);
  assert.equal((await decodedBodyOf(message([3, 4], 2))).byteLength, 7);
  const endless = message(Array(100).fill(MIB));
  assert.equal(await decodedBodyOf(endless), undefined);
  assert.deepEqual([endless.taken, endless.isCancelled], [2 * MIB, true], "no more of it is read");
});

test("a body that is thrown away is still read to its end", async () => {
  const thrown = message([MIB, MIB], 2 * MIB);
  assert.deepEqual([await drained(thrown), thrown.taken], [undefined, 2 * MIB]);
});

const NOW_MS = 1_800_000_000_000;
const WAITS_MS = 10_000;
const linesOf = (principal) => `content-type:text/plain
semel-principal:${principal}
`;
const announced = (bytes) => ({ headers: new Headers({ "content-length": String(bytes) }), body: {} });
const chunked = { headers: new Headers(), body: {} };

/** Stops the clock, and returns the function that moves it. */
function stopped(t) {
  t.mock.timers.enable({ apis: ["Date"], now: NOW_MS });
  return (ms) => t.mock.timers.tick(ms);
}

test("a principal may have 32 MiB of requests under way, with 1 MiB for an unknown length, and others have theirs", (t) => {
  stopped(t);
  const room = (principal, request, head = "") => roomFor(request, linesOf(principal) + head, NOW_MS + WAITS_MS);
  const ofHead = linesOf("mallory").length;
  // A body of unknown length, or over the limit, counts as the most that would be read of it.
  const taken = [...Array(29).fill(announced(MIB)), chunked, announced(100 * MIB), announced(MIB - 32 * ofHead)].map((request) => room("mallory", request));
  assert.ok(taken.every((leave) => typeof leave === "function"));
  assert.equal(room("mallory", announced(5_000)), null);
  assert.equal(room("mallory", chunked), null);
  const none = { headers: new Headers(), body: null };
  assert.equal(room("mallory", announced(4_096 - ofHead)), undefined, "small ones do not count");
  assert.equal(room("mallory", announced(4_097 - ofHead)), null, "with their heads");
  assert.equal(room("mallory", none), undefined);
  assert.equal(room("mallory", none, `x-long:${"x".repeat(5_000)}\n`), null, "of which one may be large by itself");
  const other = room("alice", announced(MIB));
  assert.equal(typeof other, "function");
  taken.pop()();
  taken.push(room("mallory", announced(MIB - 32 * ofHead)));
  assert.equal(typeof taken.at(-1), "function", "room is there again once one is answered");
  for (const leave of [...taken, other]) leave();
});

test("a request still counts when all others of its principal have been answered", (t) => {
  stopped(t);
  const room = () => roomFor(announced(MIB - linesOf("trudy").length), linesOf("trudy"), NOW_MS + WAITS_MS);
  const [stays, answered] = [room(), room()];
  answered();
  const taken = [stays, ...Array.from({ length: 31 }, room)];
  assert.ok(taken.every((leave) => typeof leave === "function"));
  assert.equal(room(), null);
  for (const leave of taken) leave();
});

test("messages of queues are never refused for lack of room, however many are under way", () => {
  const message = () => roomFor(chunked, 'semel-principal:"semel:queue"\n', Date.now() + WAITS_MS);
  assert.deepEqual(new Set(Array.from({ length: 100 }, message)), new Set([undefined]));
});

test("the room of a request that is never answered is free again once its caller waits no longer", (t) => {
  const pass = stopped(t);
  const room = (ms) => roomFor(announced(MIB - linesOf("mallory").length), linesOf("mallory"), Date.now() + ms);
  const taken = Array.from({ length: 32 }, (_, n) => room(n < 31 ? WAITS_MS : 2 * WAITS_MS));
  pass(WAITS_MS - 1);
  assert.equal(room(WAITS_MS), null);
  pass(1);
  taken.push(...Array.from({ length: 31 }, () => room(WAITS_MS)));
  assert.ok(taken.every((leave) => typeof leave === "function"));
  assert.equal(room(WAITS_MS), null);
  for (const leave of taken) leave();
});

test("a principal is forgotten once its requests are answered, and over 1,000 with unanswered ones once nobody waits", (t) => {
  const pass = stopped(t);
  const forgotten = t.mock.method(Map.prototype, "delete").mock;
  const room = (principal) => roomFor(announced(MIB), linesOf(principal), NOW_MS + WAITS_MS);
  room("answered")();
  assert.deepEqual(forgotten.calls.map(({ arguments: [principal], result }) => [principal, result]).at(-1), ["answered", true]);
  for (let number = 0; number <= 1_000; number += 1) room(`left ${number}`);
  pass(WAITS_MS);
  forgotten.resetCalls();
  roomFor(announced(MIB), linesOf("next"), Date.now() + WAITS_MS)();
  assert.equal(forgotten.calls.filter(({ result }) => result).length, 1_001 + 1);
});
