// Tests the lab's network where the browser has fewer connections to the server than there are attempts.

import assert from "node:assert/strict";
import { test } from "node:test";
import { seeded, settled } from "./fakes.mjs";
import { BROKEN_MS, LANES, Net, isBroken } from "./net.mjs";

/** A network with two connections, over which an answer takes as long as the real one is slow. */
function slow(ms, settings = {}) {
  const net = new Net(settings, seeded(1), 2);
  net.answer = async () => (await net.clock.sleep(ms), new Response("{}", { headers: { "semel-status": "executed" } }));
  return net;
}

/** A signal that the test's clock aborts, as a client's timeout does. */
function timeout(net, ms) {
  const giveUp = new AbortController();
  net.clock.sleep(ms).then(() => giveUp.abort(new Error("no more")));
  return giveUp.signal;
}

test("no more attempts are on the way at a time than there are connections, and each that waits gets its turn", async () => {
  const net = slow(800);
  const sent = [1, 2, 3, 4, 5].map((click) => net.send("naive", click));
  await settled();
  assert.equal(net.calls.length, 2);
  await net.clock.pass(800);
  assert.equal(net.calls.length, 4);
  await net.clock.pass(1_600);
  assert.equal(net.calls.length, 5);
  for (const { told } of sent) assert.equal(told.status, 200);
  await net.see();
  assert.equal(net.calls.length, 6, "a free connection is used at once");
});

test("of attempts that wait for a connection the newest goes first, because its client waits the longest from then on", async () => {
  const net = slow(800);
  for (const click of [1, 2, 3, 4]) net.send("naive", click);
  await settled();
  await net.clock.pass(800);
  assert.deepEqual(net.calls.map(({ url }) => url), ["/naive?n=1", "/naive?n=2", "/naive?n=4", "/naive?n=3"]);
});

test("a copy that the network makes keeps no attempt waiting for a connection", async () => {
  const net = slow(800, { twice: 100 });
  for (const click of [1, 2, 3]) net.send("naive", click);
  await settled();
  await net.clock.pass(10_000);
  const isCopy = new Map(net.last.map((attempt) => [attempt.id, attempt.isCopy]));
  assert.deepEqual(net.calls.map(({ headers }) => isCopy.get(headers.get("lab-attempt"))), [false, false, false, true, true, true]);
});

test("an attempt whose client stops waiting before it has a connection, and its copy, never leave, and are lost", async () => {
  for (const lane of LANES) {
    const net = slow(3_000, { twice: 100 });
    net.send("semel", 1);
    await settled();
    assert.equal(net.calls.length, 2, "it and its copy have both connections");
    const sent = net.send(lane, 2, { method: "POST", signal: timeout(net, 2_000) });
    await net.clock.pass(2_000);
    assert.equal(sent.told.message, "no more");
    await net.clock.pass(10_000);
    assert.equal(net.calls.length, 2);
    assert.deepEqual(net.last.slice(2).map(({ fate, why, answer, endMs }) => ({ fate, why, answer, endMs })), Array(2).fill({ fate: "lost", why: "busy", answer: "lost", endMs: 1_002_000 }));
  }
});

test("an attempt that finds no connection after its client has stopped waiting is lost, and one that finds a free one arrives late", async () => {
  const net = slow(9_000, { delay: 4_000 });
  const late = net.send("naive", 1, { method: "POST", signal: timeout(net, 1) });
  await net.clock.pass(4_000);
  assert.equal(late.told.message, "no more");
  assert.equal(net.calls.length, 1);
  net.send("naive", 2);
  await net.clock.pass(4_000);
  assert.equal(net.calls.length, 2);
  net.send("naive", 3, { method: "POST", signal: timeout(net, 1) });
  await net.clock.pass(20_000);
  assert.deepEqual([net.calls.length, net.last[2].why], [2, "busy"]);
});

test("an attempt that waits for a connection while the network goes offline is lost, and leaves the connection to the next", async () => {
  const net = slow(800);
  const sent = [1, 2, 3].map((click) => net.send("naive", click));
  await settled();
  net.settings.offline = 1;
  await net.clock.pass(800 + BROKEN_MS);
  isBroken(sent[2].told);
  assert.deepEqual([net.calls.length, net.last[2].why], [2, "offline"]);
  net.settings.offline = 0;
  assert.equal((await net.see()).status, 200);
});

test("clicks that come faster than a browser's connections take them are all answered in the end", async () => {
  const net = slow(800);
  const { answer } = net;
  // As a browser does: what finds no connection waits in order, whether or not anybody still waits for its answer.
  const line = [];
  let free = 2;
  net.answer = async () => {
    if (free === 0) await new Promise((resolve) => line.push(resolve));
    else free -= 1;
    const answered = await answer();
    const next = line.shift();
    if (next) next();
    else free += 1;
    return answered;
  };
  let answered = 0;
  const client = async (click) => {
    for (;;) {
      const sent = net.send("naive", click, { method: "POST", signal: timeout(net, 2_000) });
      while (sent.told === undefined) await net.clock.sleep(10);
      if (sent.told instanceof Response) return (answered += 1);
      await net.clock.sleep(300);
    }
  };
  for (let click = 1; click <= 60; click += 1) client(click);
  // Two connections take 2.5 attempts a second.
  await net.clock.pass(60_000);
  assert.equal(answered, 60);
});
