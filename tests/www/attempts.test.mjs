// Tests the lab's network: clients that stop waiting, requests that are no deposits, and clicks with very many attempts.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ATTEMPTS_MAX } from "../../www/lab/limits.js";
import { gate, settled } from "./fakes.mjs";
import { LANES, NO_DEPOSIT, Net, isBroken } from "./net.mjs";

test("an attempt whose client stops waiting still arrives, and its late answer is lost", async () => {
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

test("a client whose signal was aborted before sends nothing", async () => {
  const net = new Net();
  const reason = new Error("no more");
  const sent = net.send("naive", 1, { method: "POST", signal: AbortSignal.abort(reason) });
  await settled();
  assert.deepEqual([sent.told, net.log], [reason, []]);
});

test("a client that stops waiting while its attempt is being recorded is told so at once, and the attempt still arrives", async () => {
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

test("a signal that aborts after the answer changes nothing, and has no listener left", async () => {
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

test("a request that is no deposit is not recorded or marked, and the network treats it like any other", async () => {
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

test("requests that are no deposits do not count as attempts of a click", async () => {
  const net = new Net({ loseRequests: 100 });
  for (let k = 0; k <= ATTEMPTS_MAX; k += 1) await net.see("semel", NO_DEPOSIT);
  await net.see("semel", 1);
  assert.equal(net.records.size, 1);
});

for (const [name, settings, what] of [
  ["offline", { offline: 1 }, "while the page stays offline"],
  ["offline and duplicated", { offline: 1, twice: 100 }, "with copies"],
  ["lost on the way", { loseRequests: 100 }, "by chance"],
]) {
  test(`past the limit of attempts of a click by one client, those that are ${name} are not recorded, ${what}`, async () => {
    const net = new Net(settings);
    for (let k = 0; k < ATTEMPTS_MAX + 20; k += 1) for (const lane of LANES) await net.see(lane, 1);
    assert.equal(net.records.size, 2 * ATTEMPTS_MAX, "each lane for itself");
    assert.equal(net.log.length, 4 * ATTEMPTS_MAX, "each sent, and lost");
    await net.see("naive", 2);
    assert.ok(net.last.some(({ click }) => click === 2), "and each click for itself");
  });
}

test("past the limit of attempts, one that was sent offline and reaches the server is recorded before it does", async () => {
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

test("past the limit of attempts, one that arrives leaves only once it is recorded", async () => {
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

test("past the limit of attempts, one that is given up and arrives is recorded as executed, with its answer lost", async () => {
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
