// The lab's network: what becomes of an attempt, and what is on record of it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ATTEMPTS_MAX, DELAY_MS_MAX } from "../../www/lab/limits.js";
import { fateByStatus, makeNetwork } from "../../www/lab/network.js";
import { Clock, gate, seeded, settled } from "./fakes.mjs";

const LANES = ["naive", "semel"];
/** How long a broken connection takes to be seen. */
const BROKEN_MS = 60;

/** A network with faults, before a server that counts. */
class Net {
  clock = new Clock();
  settings = { loseRequests: 0, loseAnswers: 0, twice: 0, delay: 0, offline: 0 };
  /** What happened, in its order: `["record", id, fate, answer]` or `["fetch", id]`. */
  log = [];
  /** All that was recorded, by attempt. */
  records = new Map();
  /** `{ url, init, headers, atMs }` of each request that reached the server. */
  calls = [];
  answer = () => new Response("{}", { headers: { "semel-status": "executed" } });
  record = async () => {};

  constructor(settings = {}, random = seeded(1)) {
    Object.assign(this.settings, settings);
    const record = (attempt) => {
      this.log.push(["record", attempt.id, attempt.fate, attempt.answer]);
      this.records.set(attempt.id, [...(this.records.get(attempt.id) ?? []), attempt]);
      return this.record(attempt);
    };
    const fetch = async (url, init) => {
      const headers = new Headers(init.headers);
      this.log.push(["fetch", headers.get("lab-attempt") ?? undefined]);
      this.calls.push({ url, init, headers, atMs: this.clock.now() });
      return this.answer(url, init);
    };
    const { now, sleep } = this.clock;
    this.network = makeNetwork({ settings: this.settings, record, fetch, random, now, sleep });
  }

  /** Sends one; `told` is what its client has been told so far. */
  send(lane = "naive", click = 1, init = { method: "POST" }) {
    const sent = { told: undefined };
    const of = click === NO_DEPOSIT ? undefined : click;
    this.network.send(lane, of, `/${lane}?n=${of}`, init).then(
      (response) => (sent.told = response),
      (error) => (sent.told = error),
    );
    return sent;
  }

  /** Sends one, and lets it come to its end. */
  async see(lane, click, init) {
    const sent = this.send(lane, click, init);
    await this.clock.pass(2 * DELAY_MS_MAX);
    return sent.told;
  }

  /** Each attempt as it stands. */
  get last() {
    return [...this.records.values()].map((all) => all.at(-1));
  }
}

const NO_DEPOSIT = Symbol("no deposit");
const isBroken = (told) => assert.ok(told instanceof TypeError, String(told));

test("without a fault an attempt is sent, executed and answered, and the client has the answer as it is", async () => {
  for (const lane of LANES) {
    const net = new Net();
    net.answer = () => new Response("body", { status: 201, headers: { "semel-status": "executed", "x-own": "1" } });
    const sent = net.send(lane, 7, { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
    await settled();
    const { told } = sent;
    assert.deepEqual([told.status, told.headers.get("x-own"), await told.text()], [201, "1", "body"]);
    const [[first, second], ...others] = net.records.values();
    assert.deepEqual(others, []);
    const { id } = first;
    assert.match(id, new RegExp(`^7-${lane}-[a-z0-9]+$`));
    assert.deepEqual(first, { id, click: 7, lane, sentMs: 1_000_000, fate: "sent", answer: "waiting", isCopy: false });
    assert.deepEqual(second, { ...first, fate: "executed", answer: "came", endMs: 1_000_000 });
    const [{ url, init, headers }] = net.calls;
    assert.deepEqual([net.calls.length, url, init.method, init.body], [1, `/${lane}?n=7`, "POST", "{}"]);
    assert.deepEqual(Object.fromEntries(headers), { "content-type": "application/json", "lab-attempt": id });
  }
});

test("an attempt is on record as sent before anything of it leaves, a copy as well", async () => {
  const net = new Net({ twice: 100 });
  const gates = [gate(), gate()];
  let saved = 0;
  net.record = ({ fate }) => (fate === "sent" ? gates[saved++].opened : undefined);
  net.send();
  await net.clock.pass(100);
  assert.deepEqual(net.log.map(([what]) => what), ["record"]);
  gates[0].open();
  await settled();
  const [first, copy] = net.records.keys();
  assert.deepEqual(net.log.slice(0, 3).map(([what, id]) => [what, id]).sort(), [["fetch", first], ["record", copy], ["record", first]].sort());
  assert.deepEqual(net.calls.length, 1, "the copy waits");
  gates[1].open();
  await settled();
  assert.deepEqual(net.calls.map(({ headers }) => headers.get("lab-attempt")), [first, copy]);
});

test("a lost request never reaches the server, and its client sees a broken connection some time after", async () => {
  for (const lane of LANES) {
    const net = new Net({ loseRequests: 100 });
    const sent = net.send(lane);
    await net.clock.pass(BROKEN_MS - 1);
    assert.equal(sent.told, undefined);
    await net.clock.pass(1);
    isBroken(sent.told);
    assert.deepEqual(net.calls, []);
    const { fate, why, answer, endMs } = net.last[0];
    assert.deepEqual({ fate, why, answer, endMs }, { fate: "lost", why: "request", answer: "lost", endMs: 1_000_000 });
  }
});

test("of a lost answer the fate is known, and the client sees a broken connection", async () => {
  for (const [status, fate] of [["executed", "executed"], ["replayed", "replayed"], ["attempt-expired", "late"], ["unauthorized", "refused"]]) {
    const net = new Net({ loseAnswers: 100 });
    net.answer = () => new Response("{}", { headers: { "semel-status": status } });
    const sent = net.send();
    await settled();
    assert.equal(sent.told, undefined);
    await net.clock.pass(BROKEN_MS);
    isBroken(sent.told);
    assert.deepEqual([net.calls.length, net.last[0].fate, net.last[0].answer], [1, fate, "lost"]);
  }
});

test("the naive server has no Semel-Status: its status says what became of an attempt", async () => {
  for (const [status, fate] of [[200, "executed"], [204, "executed"], [400, "refused"], [503, "refused"]]) {
    const net = new Net();
    net.answer = () => new Response(null, { status });
    assert.equal((await net.see()).status, status);
    assert.equal(net.last[0].fate, fate);
  }
  assert.deepEqual(["executed", "replayed", "attempt-expired", "failed", "unavailable"].map(fateByStatus), ["executed", "replayed", "late", "refused", "refused"]);
});

test("an answer that may have no body has none", async () => {
  for (const status of [204, 205, 304]) {
    const net = new Net();
    net.answer = () => new Response(null, { status });
    const told = await net.see();
    assert.deepEqual([told.status, await told.text()], [status, ""]);
  }
});

test("where the server is down or the answer breaks off, that is why, and the log may know better", async () => {
  for (const answer of [
    () => Promise.reject(new TypeError("refused")),
    () => new Response(new ReadableStream({ pull: (controller) => controller.error(new TypeError("broke off")) })),
  ]) {
    const net = new Net();
    net.answer = answer;
    const sent = net.send();
    await settled();
    assert.equal(sent.told, undefined);
    await net.clock.pass(BROKEN_MS);
    isBroken(sent.told);
    const { fate, why, answer: heard, endMs } = net.last[0];
    assert.deepEqual({ fate, why, heard, endMs }, { fate: "lost", why: "server", heard: "lost", endMs: 1_000_000 });
  }
});

test("what is sent twice is executed as often as the server says, and nobody hears the answer to the copy", async () => {
  for (const lane of LANES) {
    const net = new Net({ twice: 100 });
    let served = 0;
    net.answer = () => new Response(String((served += 1)), { headers: { "semel-status": served === 1 ? "executed" : "replayed" } });
    const told = await net.see(lane, 3, { method: "POST", headers: { "x-own": "1" }, body: "same" });
    assert.equal(await told.text(), "1");
    const [first, copy] = net.last;
    assert.deepEqual([first.isCopy, first.fate, first.answer], [false, "executed", "came"]);
    assert.deepEqual([copy.isCopy, copy.fate, copy.answer, copy.click, copy.lane], [true, "replayed", "lost", 3, lane]);
    assert.ok(net.records.get(copy.id).every(({ answer }) => answer === "lost"), "at no time does anybody wait for it");
    assert.notEqual(first.id, copy.id);
    const [one, other] = net.calls;
    assert.deepEqual([other.url, other.init.method, other.init.body, other.headers.get("x-own")], [one.url, "POST", "same", "1"]);
  }
});

test("a copy arrives where its original is lost, and a copy that fails is nobody's error", async () => {
  const lost = new Net({ twice: 100, loseRequests: 100 });
  isBroken(await lost.see());
  assert.deepEqual(lost.last.map(({ isCopy, fate }) => [isCopy, fate]), [[false, "lost"], [true, "executed"]]);
  const down = new Net({ twice: 100 });
  down.answer = () => Promise.reject(new TypeError("refused"));
  isBroken(await down.see());
  assert.deepEqual(down.last.map(({ why }) => why), ["server", "server"]);
});

test("a client that is told of a broken connection while its copy is still being recorded has one error, and nobody another", async () => {
  const net = new Net({ twice: 100, loseRequests: 100 });
  const { open, opened } = gate();
  net.record = ({ isCopy }) => (isCopy ? opened : undefined);
  const sent = net.send();
  await net.clock.pass(BROKEN_MS);
  isBroken(sent.told);
  open();
  await settled();
  assert.equal(net.calls.length, 1);
});

test("each attempt waits as the settings say, each copy by itself, and none longer than the limit", async () => {
  const delays = [];
  for (let seed = 0; seed < 40; seed += 1) {
    const net = new Net({ twice: 100, delay: 4_000 }, seeded(seed));
    await net.see();
    const [one, other] = net.calls.map(({ atMs }) => atMs - 1_000_000);
    assert.equal(net.calls.length, 2);
    assert.notEqual(one, other);
    delays.push(one, other);
    for (const { sentMs, endMs } of net.last) assert.ok(sentMs === 1_000_000 && endMs > sentMs);
  }
  assert.ok(Math.min(...delays) < 400 && Math.max(...delays) > 3_600 && Math.max(...delays) <= 4_000, "they are spread");
  for (let seed = 0; seed < 40; seed += 1) {
    const net = new Net({ twice: 100, delay: 1_000_000 }, seeded(seed));
    await net.see();
    assert.ok(net.clock.slept.every((ms) => ms <= DELAY_MS_MAX), String(net.clock.slept));
    assert.equal(net.calls.length, 2);
  }
  const none = new Net();
  await none.see();
  assert.deepEqual(none.clock.slept, [], "no delay is none");
});

test("a third is a third: of many attempts as many are lost, unheard and sent twice as the settings say", async () => {
  for (const [name, share] of [
    ["loseRequests", ({ fate }) => fate === "lost"],
    ["loseAnswers", ({ answer, isCopy }) => answer === "lost" && !isCopy],
    ["twice", ({ isCopy }) => isCopy],
  ]) {
    const net = new Net({ [name]: 33 });
    for (let click = 1; click <= 2_000; click += 1) net.send("naive", click);
    await net.clock.pass(1_000);
    const hits = net.last.filter(share).length;
    assert.ok(hits > 580 && hits < 740, `${name}: ${hits} of 2000`);
  }
});

test("where nothing goes wrong, nothing does, whatever chance says", async () => {
  for (const chance of [0, 1 - 2 ** -32]) {
    const net = new Net({}, () => chance);
    assert.equal((await net.see()).status, 200);
    assert.equal(net.calls.length, 1);
  }
});

test("both clients have the same faults: under one seed, the same becomes of the same attempts", async () => {
  const seen = [];
  for (const lane of LANES) {
    const net = new Net({ loseRequests: 30, loseAnswers: 30, twice: 30, delay: 500 }, seeded(7));
    const told = [];
    for (let k = 0; k < 60; k += 1) told.push(await net.see(lane, 1 + (k % 5)));
    const story = net.last.map(({ id, lane: _, ...rest }) => ({ id: id.replace(lane, ""), ...rest }));
    seen.push({ story, told: told.map((one) => one instanceof Error), calls: net.calls.map(({ atMs }) => atMs) });
  }
  assert.deepEqual(seen[0], seen[1]);
  assert.ok(new Set(seen[0].story.map(({ fate, answer }) => `${fate} ${answer}`)).size >= 3);
});

test("offline nothing arrives, no copy either, and as long as it lasts", async () => {
  const net = new Net({ offline: 1, twice: 100 });
  isBroken(await net.see());
  assert.deepEqual(net.calls, []);
  assert.deepEqual(net.last.map(({ fate, why, answer }) => [fate, why, answer]), Array(2).fill(["lost", "offline", "lost"]));
  net.settings.offline = 0;
  assert.equal((await net.see()).status, 200);
});

test("a delay may end offline or online, and that decides", async () => {
  const off = new Net({ delay: 4_000 });
  const lost = off.send();
  await settled();
  off.settings.offline = 1;
  await off.clock.pass(4_000 + BROKEN_MS);
  isBroken(lost.told);
  assert.deepEqual([off.calls.length, off.last[0].why], [0, "offline"]);

  const on = new Net({ delay: 4_000, offline: 1 });
  const sent = on.send();
  await settled();
  on.settings.offline = 0;
  await on.clock.pass(4_000);
  assert.equal(sent.told.status, 200);
  assert.equal(on.last[0].fate, "executed");
});

test("an answer that comes when the connection is gone is lost", async () => {
  const net = new Net();
  const { open, opened } = gate();
  net.answer = async () => (await opened, new Response("{}", { headers: { "semel-status": "executed" } }));
  const sent = net.send();
  await settled();
  net.settings.offline = 1;
  open();
  await net.clock.pass(BROKEN_MS);
  isBroken(sent.told);
  assert.deepEqual([net.last[0].fate, net.last[0].answer], ["executed", "lost"]);
});

test("a client that stops waiting takes nothing back: the attempt arrives, and its late answer is unheard", async () => {
  for (const lane of LANES) {
    const net = new Net({ delay: 4_000 });
    const giveUp = new AbortController();
    const sent = net.send(lane, 1, { method: "POST", signal: giveUp.signal });
    await settled();
    assert.equal(net.calls.length, 0);
    const reason = new Error("no more");
    giveUp.abort(reason);
    await settled();
    assert.equal(sent.told, reason, "at once, and with the signal's own reason");
    assert.deepEqual([net.last[0].fate, net.last[0].answer], ["sent", "lost"], "nobody waits for it any more");
    await net.clock.pass(4_000);
    assert.equal(net.calls.length, 1);
    assert.equal(net.calls[0].init.signal, undefined);
    assert.deepEqual([net.last[0].fate, net.last[0].answer, sent.told], ["executed", "lost", reason]);
  }
});

test("a client that stopped waiting before sends nothing", async () => {
  const net = new Net();
  const reason = new Error("no more");
  const sent = net.send("naive", 1, { method: "POST", signal: AbortSignal.abort(reason) });
  await settled();
  assert.deepEqual([sent.told, net.log], [reason, []]);
});

test("a client that stops waiting while its attempt is being recorded is told so at once", async () => {
  const net = new Net({ delay: 4_000 });
  const { open, opened } = gate();
  net.record = ({ fate, answer }) => (fate === "sent" && answer === "waiting" ? opened : undefined);
  const giveUp = new AbortController();
  const sent = net.send("naive", 1, { method: "POST", signal: giveUp.signal });
  await settled();
  giveUp.abort(new Error("no more"));
  open();
  await settled();
  assert.equal(sent.told.message, "no more");
  await net.clock.pass(4_000);
  assert.deepEqual([net.calls.length, net.last[0].answer], [1, "lost"]);
});

test("a signal that aborts after the answer changes nothing, and is no longer listened to", async () => {
  const net = new Net();
  const giveUp = new AbortController();
  let listeners = 0;
  const { signal } = giveUp;
  const [add, remove] = [signal.addEventListener.bind(signal), signal.removeEventListener.bind(signal)];
  signal.addEventListener = (...listener) => (listeners += 1, add(...listener));
  signal.removeEventListener = (...listener) => (listeners -= 1, remove(...listener));
  const sent = net.send("naive", 1, { method: "POST", signal });
  await settled();
  assert.equal(sent.told.status, 200);
  assert.equal(listeners, 0);
  giveUp.abort();
  await settled();
  assert.deepEqual([net.last[0].fate, net.last[0].answer, net.log.length], ["executed", "came", 3]);
});

test("of what is no deposit nothing is recorded and nothing marked, and the network treats it the same", async () => {
  const net = new Net({ twice: 100 });
  assert.equal((await net.see("semel", NO_DEPOSIT, { headers: { "x-own": "1" } })).status, 200);
  assert.deepEqual(net.calls.map(({ headers }) => Object.fromEntries(headers)), Array(2).fill({ "x-own": "1" }));
  for (const settings of [{ loseRequests: 100 }, { loseAnswers: 100 }, { offline: 1 }]) {
    const faulty = new Net(settings);
    isBroken(await faulty.see("semel", NO_DEPOSIT));
    assert.equal(faulty.calls.length, settings.loseAnswers ? 1 : 0);
    assert.deepEqual(faulty.log.filter(([what]) => what === "record"), []);
  }
  assert.deepEqual(net.log.filter(([what]) => what === "record"), []);
  const slow = new Net({ delay: 4_000 });
  await slow.see("semel", NO_DEPOSIT);
  assert.ok(slow.calls[0].atMs > 1_000_000);
  const giveUp = new AbortController();
  const late = new Net({ delay: 4_000 });
  const sent = late.send("semel", NO_DEPOSIT, { signal: giveUp.signal });
  await settled();
  giveUp.abort();
  await late.clock.pass(4_000);
  assert.deepEqual([sent.told.name, late.calls.length, late.log.length], ["AbortError", 1, 1]);
});

test("what is no deposit counts for no click: after many of them, a lost attempt is still recorded", async () => {
  const net = new Net({ loseRequests: 100 });
  for (let k = 0; k <= ATTEMPTS_MAX; k += 1) await net.see("semel", NO_DEPOSIT);
  await net.see("semel", 1);
  assert.equal(net.records.size, 1);
});

for (const [name, settings, what] of [
  ["offline", { offline: 1 }, "and offline for hours"],
  ["offline and twice", { offline: 1, twice: 100 }, "with copies"],
  ["lost on the way", { loseRequests: 100 }, "by chance"],
]) {
  test(`past so many attempts of a click by one client those that are ${name} are not recorded, ${what}`, async () => {
    const net = new Net(settings);
    for (let k = 0; k < ATTEMPTS_MAX + 20; k += 1) for (const lane of LANES) await net.see(lane, 1);
    assert.equal(net.records.size, 2 * ATTEMPTS_MAX, "each lane for itself");
    assert.equal(net.log.length, 4 * ATTEMPTS_MAX, "each sent, and lost");
    await net.see("naive", 2);
    assert.ok(net.last.some(({ click }) => click === 2), "and each click for itself");
  });
}

test("however many there were, what reaches the server is on record before, though it was sent offline", async () => {
  for (const lane of LANES) {
    const net = new Net({ offline: 1 });
    for (let k = 0; k < ATTEMPTS_MAX; k += 1) await net.see(lane);
    Object.assign(net.settings, { delay: 4_000, twice: 100 });
    net.log.length = 0;
    const giveUp = new AbortController();
    const sent = net.send(lane, 1, { method: "POST", signal: giveUp.signal });
    await settled();
    assert.deepEqual(net.log, [], "whether it will be lost is not known yet");
    net.settings.offline = 0;
    await net.clock.pass(4_000);
    assert.equal(sent.told.status, 200);
    for (const { headers } of net.calls) {
      const id = headers.get("lab-attempt");
      const story = net.log.filter(([, of]) => of === id).map(([what, , fate]) => fate ?? what);
      assert.deepEqual(story, ["sent", "fetch", "executed"]);
      assert.equal(net.records.get(id)[0].sentMs, net.last.at(-1).sentMs);
    }
    assert.equal(net.calls.length, 2);
  }
});

test("however many there were, one leaves only once it is on record", async () => {
  const net = new Net({ offline: 1 });
  for (let k = 0; k < ATTEMPTS_MAX; k += 1) await net.see();
  const { open, opened } = gate();
  net.settings.offline = 0;
  net.record = ({ fate }) => (fate === "sent" ? opened : undefined);
  const sent = net.send();
  await settled();
  assert.deepEqual([net.records.size, net.calls.length], [ATTEMPTS_MAX + 1, 0]);
  open();
  await settled();
  assert.equal(sent.told.status, 200);
});

test("past so many attempts one that is given up and arrives is on record as unheard", async () => {
  const net = new Net({ offline: 1 });
  for (let k = 0; k < ATTEMPTS_MAX; k += 1) await net.see();
  Object.assign(net.settings, { delay: 4_000, offline: 0 });
  const giveUp = new AbortController();
  net.send("naive", 1, { method: "POST", signal: giveUp.signal });
  await settled();
  giveUp.abort();
  await net.clock.pass(4_000);
  assert.deepEqual([net.calls.length, net.last.at(-1).fate, net.last.at(-1).answer], [1, "executed", "lost"]);
});
