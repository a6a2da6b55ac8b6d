// Tests each fault of the lab's network, and what is then recorded of an attempt.

import assert from "node:assert/strict";
import { test } from "node:test";
import { DELAY_MS_MAX } from "../../www/lab/limits.js";
import { fateByStatus } from "../../www/lab/network.js";
import { gate, seeded, settled } from "./fakes.mjs";
import { BROKEN_MS, LANES, Net, isBroken } from "./net.mjs";

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

test("an attempt is recorded as sent before it leaves, and so is its copy", async () => {
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
  assert.deepEqual(net.log[0].slice(0, 3), ["record", first, "sent"]);
  assert.equal(net.calls.length, 1, "the copy waits");
  gates[1].open();
  await settled();
  assert.deepEqual(net.calls.map(({ headers }) => headers.get("lab-attempt")), [first, copy]);
});

test("a lost request never reaches the server, and its client sees a broken connection a while later", async () => {
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

test("the fate of an attempt whose answer is lost is recorded, and its client sees a broken connection", async () => {
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

test("without a Semel-Status, as at the naive server, the fate of an attempt is read from its HTTP status", async () => {
  for (const [status, fate] of [[200, "executed"], [204, "executed"], [400, "refused"], [503, "refused"]]) {
    const net = new Net();
    net.answer = () => new Response(null, { status });
    assert.equal((await net.see()).status, status);
    assert.equal(net.last[0].fate, fate);
  }
  assert.deepEqual(["executed", "replayed", "attempt-expired", "failed", "unavailable"].map(fateByStatus), ["executed", "replayed", "late", "refused", "refused"]);
});

test("an answer with a status that allows no body has none", async () => {
  for (const status of [204, 205, 304]) {
    const net = new Net();
    net.answer = () => new Response(null, { status });
    const told = await net.see();
    assert.deepEqual([told.status, await told.text()], [status, ""]);
  }
});

test("if the server is down or its answer breaks off, the attempt is recorded as lost by the server", async () => {
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

test("a request that is sent twice has the fates that the server tells, and nobody hears the answer to the copy", async () => {
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

test("a copy arrives even if its original is lost, and a copy that fails causes no error of its own", async () => {
  const lost = new Net({ twice: 100, loseRequests: 100 });
  isBroken(await lost.see());
  assert.deepEqual(lost.last.map(({ isCopy, fate }) => [isCopy, fate]), [[false, "lost"], [true, "executed"]]);
  const down = new Net({ twice: 100 });
  down.answer = () => Promise.reject(new TypeError("refused"));
  isBroken(await down.see());
  assert.deepEqual(down.last.map(({ why }) => why), ["server", "server"]);
});

test("a client that sees a broken connection while its copy is being recorded has one error, and none follows", async () => {
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

test("each attempt and each copy has a delay of its own, at most that of the settings, and never beyond the limit", async () => {
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

test("of many attempts about as many are lost, unanswered or sent twice as the settings say", async () => {
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

test("with all faults at 0 an attempt is sent once and answered, whatever the random numbers", async () => {
  for (const chance of [0, 1 - 2 ** -32]) {
    const net = new Net({}, () => chance);
    assert.equal((await net.see()).status, 200);
    assert.equal(net.calls.length, 1);
  }
});

test("under one seed both clients have the same faults", async () => {
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

test("while it is offline neither an attempt nor its copy arrives, and online again the next one does", async () => {
  const net = new Net({ offline: 1, twice: 100 });
  isBroken(await net.see());
  assert.deepEqual(net.calls, []);
  assert.deepEqual(net.last.map(({ fate, why, answer }) => [fate, why, answer]), Array(2).fill(["lost", "offline", "lost"]));
  net.settings.offline = 0;
  assert.equal((await net.see()).status, 200);
});

test("a delayed attempt is lost if it is offline at the end of its delay, and sent if it is online then", async () => {
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

test("an answer that arrives after the network went offline is lost", async () => {
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
