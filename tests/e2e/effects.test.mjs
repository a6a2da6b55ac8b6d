// What a key's handlers emit to other keys and to the outside: when the host asks the engine for it, how long it waits for an answer, and what it
// tells the engine. The test provides engine, time and network; `transfers.test.mjs` has the same on workerd.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { natively } from "./natively.mjs";

const { Effects } = await natively("effects.js");

const NOW = 1_000_000_000;
const TO_KEY = ["other", "POST", "/deposit?a=1", "x-one:1\n", new TextEncoder().encode("body")];
const OUTSIDE = [undefined, "POST", "https://api.example/hook", "idempotency-key:\"x\"\n", new TextEncoder().encode("body")];

/**
 * A key at `NOW` that has `next` to send, each on a lane of its own. `key`: the answer of the other key's object; `outside`: the network's. `told`:
 * what the engine was told of the answers; `asked`: how often it was asked what to send; `background`: how often the object was kept alive for the
 * sending; `works`: until when.
 */
function sender(t, { next = [], key = async () => [200, "semel-status:executed\n", undefined], outside } = {}) {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: NOW });
  const noted = t.mock.method(console, "log", () => {});
  const its = { next: [...next], told: [], asked: 0, chances: new Set(), woken: 0, background: 0, works: [], wakesMs: undefined, calls: [], turns: { taken: undefined }, ready: undefined, notes: () => noted.mock.calls.map(({ arguments: [line] }) => JSON.parse(line).message) };
  const engine = {
    has_to_send: () => its.next.length > 0,
    wakes_to_send_at: () => its.wakesMs,
    send_next: (_now, chance) => {
      its.asked += 1;
      its.chances.add(chance);
      if (its.fails) throw its.fails;
      const what = its.next.shift();
      return what && [its.asked, its.asked * 10, ...what];
    },
    sent: (lane, token, status, text, body) => {
      assert.ok(body instanceof Uint8Array);
      if (its.failsToHear) throw its.failsToHear;
      its.told.push([lane, token, status, text, new TextDecoder().decode(body)]);
    },
    key_hash: () => "hash",
  };
  t.mock.method(globalThis, "fetch", (request, init) => (its.calls.push(request), outside(request, init)));
  const SEMEL = { idFromName: (name) => name, get: (name) => ({ ask: (...call) => (its.calls.push([name, ...call]), key(...call)) }) };
  const ctx = { waitUntil: (work) => ((its.background += 1), its.works.push(work)) };
  its.effects = new Effects({ ctx, env: { SEMEL }, engine: () => engine, ready: () => its.ready, wake: () => (its.woken += 1) }, its.turns);
  its.begin = async () => {
    its.effects.begin();
    await its.pass(0);
  };
  its.pass = async (ms) => {
    t.mock.timers.tick(ms);
    // Timers of 0 ms that begin meanwhile are due in the next turn.
    for (let turns = 0; turns < 5; turns += 1) {
      await turn();
      t.mock.timers.tick(0);
    }
    await turn();
  };
  return its;
}

test("all effects that may leave are sent at once, and the engine is told each answer and asked again", async (t) => {
  let answer;
  const answered = new Promise((resolve) => (answer = resolve));
  const its = sender(t, { next: [TO_KEY, TO_KEY], key: () => answered });
  await its.begin();
  assert.deepEqual([its.calls.length, its.background], [2, 3], "who asks, and both that are sent");
  answer([409, "semel-status:locked\n", new TextEncoder().encode("why")]);
  await its.pass(0);
  assert.deepEqual(its.calls.map(([name, method, pathname, search, lines, body]) => [name, method, pathname, search, lines, body]), Array(2).fill(["other", "POST", "/deposit", "?a=1", "x-one:1\n", TO_KEY[4]]));
  assert.deepEqual(its.told, [[1, 10, 409, "locked", "why"], [2, 20, 409, "locked", "why"]]);
  assert.ok(its.asked > 3 && its.woken > 0);
  // The host asks with a new random number each time, so an object that was put back to an earlier state asks with others.
  assert.deepEqual([its.chances.size, [...its.chances].every(Number.isSafeInteger)], [its.asked, true]);
});

test("the object stays alive until what may leave after an answer is taken up", async (t) => {
  let looked;
  const its = sender(t, { next: [TO_KEY], key: async () => ((its.ready = new Promise((resolve) => (looked = resolve))), [200, "semel-status:executed\n", undefined]) });
  await its.begin();
  assert.deepEqual([its.told.length, await Promise.race([Promise.all(its.works), turn("it is kept")])], [1, "it is kept"]);
  looked();
  await its.pass(0);
  await Promise.all(its.works);
});

test("the log line that comes with the answer of another key is written by the object that sent the effect", async (t) => {
  const its = sender(t, { next: [TO_KEY, TO_KEY], key: async () => [200, "semel-status:executed\n", undefined, ...its.lines.splice(0, 1)] });
  its.lines = ['{"message":"its line"}'];
  await its.begin();
  assert.deepEqual([its.told.length, its.notes()], [2, ["its line"]]);
});

test("if nothing is to be sent, the engine is not asked what to send", async (t) => {
  const its = sender(t);
  await its.begin();
  assert.deepEqual([its.asked, its.woken], [0, 0]);
});

test("effects are sent and answers told only after the start was read and while nobody has the object to itself", async (t) => {
  let looked;
  let through;
  let answer;
  const its = sender(t, { next: [TO_KEY], key: () => new Promise((resolve) => (answer = resolve)) });
  its.ready = new Promise((resolve) => (looked = resolve));
  await its.begin();
  assert.equal(its.asked, 0);
  const taken = () => (its.turns.taken = new Promise((resolve) => (through = resolve)));
  taken();
  looked();
  await its.pass(0);
  through();
  // By then another caller has taken the object.
  taken();
  await its.pass(0);
  assert.equal(its.asked, 0);
  its.turns.taken = undefined;
  through();
  await its.pass(0);
  assert.equal(its.calls.length, 1);
  taken();
  answer([200, "semel-status:executed\n", undefined]);
  await its.pass(0);
  assert.deepEqual(its.told, []);
  its.turns.taken = undefined;
  through();
  await its.pass(0);
  assert.deepEqual(its.told, [[1, 10, 200, "executed", ""]]);
});

test("a target that fails, or gives no answer in 30 s, is told to the engine as without an answer", async (t) => {
  for (const [what, more, says] of [
    [TO_KEY, { key: () => new Promise(() => {}) }, /no answer in 30000 ms/],
    [TO_KEY, { key: () => Promise.reject(new Error("overloaded")) }, /overloaded/],
    [OUTSIDE, { outside: (_, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))) }, /no answer in 30000 ms/],
    [OUTSIDE, { outside: () => Promise.reject(new Error("lost")) }, /lost/],
  ]) {
    const its = sender(t, { next: [what], ...more });
    await its.begin();
    await its.pass(29_999);
    await its.pass(1);
    assert.deepEqual(its.told.map(([lane, token, status]) => [lane, token, status]), [[1, 10, undefined]]);
    assert.match(its.told[0][3], says);
    t.mock.reset();
  }
});

test("an effect that can't be made into a request is told to the engine as such, and not sent", async (t) => {
  const its = sender(t, { next: [[undefined, "TRACE", "https://api.example/", "", new Uint8Array()]] });
  await its.begin();
  assert.deepEqual([its.told.map(([, , status]) => status), its.calls], [[null], []]);
});

test("an answer from outside counts by its status and first 4 KiB; no redirect is followed, and the rest is cancelled", async (t) => {
  for (const [body, ms, text] of [["x".repeat(5_000), 0, "x".repeat(4_096)], [undefined, 5_000, ""], [null, 0, ""]]) {
    let isEnded = false;
    const stream = body !== null && new ReadableStream({ pull: (controller) => body && controller.enqueue(new TextEncoder().encode(body)), cancel: () => void (isEnded = true) });
    const its = sender(t, { next: [OUTSIDE], outside: async () => new Response(stream || null, { status: 202, headers: { "semel-status": "locked" } }) });
    await its.begin();
    await its.pass(ms);
    // What an address outside says of itself in a header of this layer's is nothing.
    assert.deepEqual(its.told, [[1, 10, 202, "", text]]);
    const [{ url, redirect, headers }] = its.calls;
    assert.deepEqual([isEnded, url, redirect, headers.get("idempotency-key")], [body !== null, OUTSIDE[2], "manual", '"x"']);
    t.mock.reset();
  }
  // A connection that breaks in the body: that can't be cancelled either, which nobody needs to know.
  const its = sender(t, { next: [OUTSIDE], outside: async () => new Response(new ReadableStream({ pull: (controller) => controller.error(new Error("gone")) }), { status: 202 }) });
  await its.begin();
  await its.pass(0);
  assert.deepEqual(its.told, [[1, 10, 202, "", ""]]);
});

test("effects that wait are asked for again after a second, by a single timer; if none waits there is no timer", async (t) => {
  const its = sender(t, { next: [TO_KEY] });
  its.wakesMs = NOW + 60_000;
  await its.begin();
  const [before, background] = [its.asked, its.background];
  await its.pass(1_009);
  assert.equal(its.asked, before);
  await its.pass(1);
  assert.deepEqual([its.asked, its.background], [before + 1, background + 1]);
  its.wakesMs = undefined;
  await its.pass(1_010);
  await its.pass(10_000);
  assert.equal(its.asked, before + 2);
});

test("if the storage fails as effects are looked up, the log says so, and they are looked up again", async (t) => {
  const its = sender(t, { next: [TO_KEY] });
  Object.assign(its, { wakesMs: NOW, fails: "the disk is full" });
  await its.begin();
  assert.match(its.notes()[0], /what a key has to send can't be looked at: Error: the disk is full/);
  assert.deepEqual([its.asked, its.woken], [1, 1]);
  its.fails = undefined;
  await its.pass(1_010);
  assert.equal(its.told.length, 1);
});

test("if the storage fails as an answer is told, the log says so, and the engine is asked again", async (t) => {
  const its = sender(t, { next: [TO_KEY], key: async () => ((its.failsToHear = "the disk is full"), [200, "semel-status:executed\n", undefined]) });
  its.wakesMs = NOW;
  await its.begin();
  assert.match(its.notes()[0], /is asked for once more: Error: the disk is full/);
  const before = its.asked;
  await its.pass(1_010);
  assert.ok(its.asked > before);
});

test("effects that are added while another begin is under way are sent too", async (t) => {
  const its = sender(t);
  let looked;
  its.ready = new Promise((resolve) => (looked = resolve));
  its.next.push(TO_KEY);
  its.effects.begin();
  its.next.length = 0;
  await its.pass(0);
  its.next.push(TO_KEY);
  its.effects.begin();
  its.next.push(TO_KEY);
  looked();
  await its.pass(0);
  assert.equal(its.told.length, 2);
});

test("two calls of begin at once ask the engine once, and both hear that it failed", async (t) => {
  const its = sender(t, { next: [TO_KEY] });
  its.fails = "the disk is full";
  assert.deepEqual(await Promise.all([its.effects.begin(), its.effects.begin()]), [true, true]);
  assert.equal(its.asked, 1);
});

test("begin tells whether the engine could not be asked for what is to be sent", async (t) => {
  const its = sender(t, { next: [TO_KEY] });
  its.fails = "the disk is full";
  assert.equal(await its.effects.begin(), true);
  its.fails = undefined;
  assert.equal(await its.effects.begin(), undefined);
  its.next.length = 0;
  assert.equal(its.effects.begin(), false);
});
