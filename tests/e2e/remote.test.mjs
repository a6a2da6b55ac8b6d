// Turns in front of other code: one request of a key is sent at a time, and each request that waits is answered before its client gives up. The test
// provides engine, time and the other side; `upstream.test.mjs` has the same on workerd.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { given, natively } from "./natively.mjs";

const { Remote } = await natively("upstream/remote.js");

const NOW = 1_000_000_000;

/**
 * A key at `NOW`, in front of another side. Each attempt has a name, and the time in ms that its client waits. The engine answers it with the outcome
 * once it was sent, with what `says` has for it, or with `waits`. `log`: what was done, in order. `end(name)` has the other side answer.
 */
function key(t) {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: NOW });
  given.glue.wait_ms = (lines) => Number(lines);
  const its = { log: [], says: {}, waits: "locked", calls: [], ends: new Map(), syncs: [], failures: 0, crashes: 0 };
  const answer = (status) => [200, `semel-status:${status}\n`, undefined, undefined];
  const nameOf = ([, pathname]) => pathname.split("/").at(-1);
  const object = {
    answered: (args) => {
      const name = nameOf(args);
      its.log.push(`ask ${name}`);
      if (its.says[name] !== undefined) return answer(its.says[name]);
      its.calls.push([1, undefined, false, name]);
      return answer("in-flight");
    },
    taken: () => its.calls.shift(),
    settled: ([, , , name], ended, args) => {
      its.log.push(`settle ${name} ${ended}`);
      its.settledMs = args.at(-1) - NOW;
      if (its.crashes > 0) return (its.crashes -= 1), undefined;
      // As the engine and the router answer: only an answer of the key itself has its name.
      if (its.failures > 0) return (its.failures -= 1), [503, "semel-status:unavailable\n", undefined, "storage failed"];
      return its.settles ?? answer("executed");
    },
    goesOn: (name) => its.log.push(`${name} goes on`),
    waiting: (args) => (its.log.push(`wait ${nameOf(args)}`), answer(its.waits)),
  };
  const send = ([, , , name], _answer, _attempt, sinceMs) => new Promise((resolve) => (its.log.push(`send ${name}`), its.ends.set(name, resolve), (its.sinceMs = sinceMs - NOW)));
  const sync = () => new Promise((resolve, reject) => (its.log.push("sync"), its.syncs.push({ resolve, reject })));
  its.remote = new Remote(object, send, sync);
  /** Resolves to the answer's `Semel-Status`. `bytes`: the length of the body, or `body`: the body itself. */
  its.ask = async (name, { waitMs = 30_000, bytes = 0, body = { byteLength: bytes }, method = "POST", path = "/" } = {}) => {
    const [, lines] = await its.remote.answer(() => [method, `${path}${name}`, "", String(waitMs), body, Date.now()]);
    return lines.slice("semel-status:".length, -1);
  };
  its.durable = async () => {
    its.syncs.shift().resolve();
    await turn();
  };
  its.end = async (name) => {
    its.ends.get(name)("ended");
    await turn();
  };
  its.pass = async (ms) => {
    t.mock.timers.tick(ms);
    await turn();
  };
  return its;
}

test("a request leaves after its start is durable, is under way until it is settled, and then the next has its turn", async (t) => {
  const { log, remote, ask, durable, end } = key(t);
  const all = ["one", "two", "three"].map((name) => ask(name));
  assert.deepEqual([log.splice(0), remote.underWay], [["ask one", "sync", "wait two", "wait three"], "one"]);
  for (const [name, ...next] of [["one", "two"], ["two", "three"], ["three"]]) {
    await durable();
    await end(name);
    assert.equal(await all.shift(), "executed");
    assert.deepEqual([log.splice(0), remote.underWay], [[`send ${name}`, `settle ${name} ended`, ...next.flatMap((its) => [`ask ${its}`, "sync"])], next[0]]);
  }
});

test("a request that takes a second call before its answer keeps its turn", async (t) => {
  const { log, calls, ask, durable, end } = key(t);
  const one = ask("one");
  calls.push([2, "/probe", true, "probe"]);
  const other = ask("other");
  await durable();
  await end("one");
  assert.deepEqual(log.slice(-3), ["send one", "settle one ended", "sync"]);
  await durable();
  await end("probe");
  assert.equal(await one, "executed");
  await durable();
  await end("other");
  assert.equal(await other, "executed");
});

test("the time of a call begins with its start, even if that takes long to be durable", async (t) => {
  const its = key(t);
  const one = its.ask("one");
  its.calls.push([2, undefined, false, "again"]);
  await its.pass(3_000);
  await its.durable();
  assert.equal(its.sinceMs, 0);
  await its.pass(500);
  await its.end("one");
  await its.pass(2_000);
  await its.durable();
  assert.equal(its.sinceMs, 3_500);
  await its.pass(1_000);
  await its.end("again");
  assert.deepEqual([await one, its.settledMs], ["executed", 6_500], "what came of it is as of then");
});

test("a waiting caller is answered a quarter of its time, but at most two seconds, before its client gives up", async (t) => {
  for (const [waitMs, atMs] of [[4_000, 3_000], [60_000, 58_000], [0, 0]]) {
    const its = key(t);
    its.ask("one");
    let heard;
    const other = its.ask("other", { waitMs }).then((status) => (heard = status));
    if (atMs > 0) {
      await its.pass(atMs - 1);
      assert.equal(heard, undefined, `${waitMs}`);
    }
    its.waits = "in-flight";
    await its.pass(1);
    assert.equal(await other, "in-flight", "as it is by then");
    assert.ok(!its.log.includes("ask other"));
    t.mock.reset();
  }
});

test("a replay or a read does not wait while another request is under way", async (t) => {
  const its = key(t);
  its.ask("one");
  its.waits = "replayed";
  its.says.read = "read";
  assert.deepEqual([await its.ask("other"), await its.ask("read", { method: "GET" }), await its.ask("read", { method: "HEAD" })], ["replayed", "read", "read"]);
});

test("256 requests and 16 MiB of bodies wait at most, and there is room again once one is done or gives up", async (t) => {
  for (const [count, bytes] of [[256, 0], [16, 1 << 20]]) {
    for (const isLate of [false, true]) {
      const its = key(t);
      const first = its.ask("first");
      const all = Array.from({ length: count }, (_, number) => its.ask(`${number}`, { bytes, waitMs: 4_000 }));
      assert.equal(await its.ask("beyond", { bytes: 1 }), "locked");
      assert.equal(await Promise.race([...all, turn("all wait")]), "all wait");
      if (isLate) {
        await its.pass(3_000);
        assert.deepEqual(await Promise.all(all), all.map(() => "locked"));
      } else {
        await its.durable();
        await its.end("first");
        assert.equal(await first, "executed");
      }
      assert.equal(await Promise.race([its.ask("more", { bytes }), turn("waits")]), "waits", `${count} ${bytes} ${isLate}`);
      if (!isLate) assert.equal(await Promise.race([its.ask("beyond that", { bytes: 1 }), turn("waits")]), "locked", "there is room for one more only");
      t.mock.reset();
    }
  }
});

test("a body that was too large to be read counts as no bytes among those that wait", async (t) => {
  const its = key(t);
  its.ask("first");
  its.ask("unread", { body: null });
  for (let number = 0; number < 16; number += 1) its.ask(`${number}`, { bytes: 1 << 20 });
  assert.equal(await Promise.race([its.ask("beyond", { bytes: 1 }), turn("waits")]), "locked");
});

test("a request whose start can't be stored fails, and the next has its turn", async (t) => {
  const { ask, syncs, durable, end } = key(t);
  const [one, other] = [ask("one"), ask("other")];
  syncs.shift().reject(new Error("the disk is full"));
  await assert.rejects(one, /the disk is full/);
  await turn();
  await durable();
  await end("other");
  assert.equal(await other, "executed");
});

test("a control request takes no turn; if it is locked it waits less than four seconds, and is asked again", async (t) => {
  const control = { path: "/semel/v1/keys/k/" };
  const its = key(t);
  its.says.cancel = "executed";
  its.says.resolve = "locked";
  assert.equal(await its.ask("resolve", control), "locked", "nothing is under way");
  its.ask("one");
  assert.equal(await its.ask("cancel", control), "executed");
  let heard;
  const late = its.ask("resolve", { ...control, waitMs: 60_000 }).then((status) => (heard = status));
  await its.pass(3_749);
  assert.equal(heard, undefined);
  await its.pass(1);
  assert.equal(await late, "locked");
  its.ask("two");
  const waits = its.ask("resolve", control);
  for (const name of ["one", "two"]) {
    await its.durable();
    its.says.resolve = name === "two" ? "executed" : "locked";
    assert.equal(await Promise.race([waits, turn("waits")]), "waits");
    await its.end(name);
  }
  assert.equal(await waits, "executed");
});

test("a locked control request is answered at once if too many requests wait", async (t) => {
  const its = key(t);
  its.says.resolve = "locked";
  for (let number = 0; number <= 256; number += 1) its.ask(`${number}`);
  assert.equal(await Promise.race([its.ask("resolve", { path: "/semel/v1/keys/k/" }), turn("waits")]), "locked");
});

test("an outcome that the storage fails to record is given again once a second, ten times at most, and the next request waits for that", async (t) => {
  const its = key(t);
  const { log, ask, durable, end, pass } = its;
  const lines = [];
  t.mock.method(console, "log", (line) => lines.push(line));
  its.failures = 2;
  const [one, two] = ["one", "two"].map((name) => ask(name));
  await durable();
  await end("one");
  for (const _ of [1, 2]) {
    assert.deepEqual(log.splice(0).slice(-2), ["settle one ended", "one goes on"]);
    await pass(999);
    assert.deepEqual([log, its.remote.underWay], [[], "one"], "nobody is told that no outcome came");
    await pass(1);
  }
  assert.deepEqual([await one, its.settledMs, lines], ["executed", 2_000, ["storage failed", "storage failed"]]);
  assert.deepEqual(log.splice(0), ["settle one ended", "ask two", "sync"]);
  // It is given up, and stays in doubt.
  its.failures = 100;
  await durable();
  await end("two");
  for (let second = 0; second < 10; second += 1) await pass(1_000);
  assert.equal(await two, "unavailable");
  assert.equal(log.filter((what) => what === "settle two ended").length, 11);
  assert.deepEqual([log.at(-1), its.remote.underWay], ["settle two ended", undefined]);
  // An answer of the key itself is final, whatever it says.
  its.failures = 0;
  its.settles = [503, 'semel-status:unavailable\nsemel-key:"k"\n', undefined, undefined];
  const three = ask("three");
  await durable();
  await end("three");
  assert.equal((await three).split("\n")[0], "unavailable");
});

test("a call that follows an outcome which could be recorded only the second time is sent too, before the answer", async (t) => {
  const its = key(t);
  const { log, ask, durable, end, pass } = its;
  its.failures = 1;
  const one = ask("one");
  await durable();
  await end("one");
  its.calls.push([2, undefined, false, "again"]);
  await pass(1_000);
  assert.deepEqual(log.slice(-2), ["settle one ended", "sync"]);
  await durable();
  await end("again");
  assert.equal(await one, "executed");
  assert.deepEqual(log.slice(-2), ["send again", "settle again ended"]);
});

test("an outcome that crashes the module is given once more, then as unknown, and at last the caller hears how it is; nothing is tried a second later", async (t) => {
  const unknown = "settle one false,to record what came of it crashes the module";
  for (const [crashes, heard, given] of [[1, "executed", ["settle one ended"]], [2, "executed", ["settle one ended", unknown]], [3, "in-flight", ["settle one ended", unknown, "wait one"]]]) {
    const its = key(t);
    its.crashes = crashes;
    its.waits = "in-flight";
    const one = its.ask("one");
    await its.durable();
    await its.end("one");
    assert.equal(await Promise.race([one, turn("waits")]), heard, `${crashes}`);
    assert.deepEqual(its.log.slice(3), ["settle one ended", ...given]);
    t.mock.reset();
  }
});

test("an outcome that the storage fails to record leaves nothing under way if no timer can be had", async (t) => {
  const its = key(t);
  its.failures = 1;
  const one = its.ask("one");
  await its.durable();
  t.mock.method(globalThis, "setTimeout", () => {
    throw new Error("no timer");
  });
  await its.end("one");
  assert.equal(await one, "unavailable");
  assert.deepEqual([its.log.at(-1), its.remote.underWay], ["settle one ended", undefined]);
});

test("a control request whose request is in flight is answered so at once", async (t) => {
  const its = key(t);
  its.ask("one");
  its.says.cancel = "in-flight";
  assert.equal(await Promise.race([its.ask("cancel", { path: "/semel/v1/keys/k/" }), turn("waits")]), "in-flight");
});

test("a request whose start can't be stored is not under way any more", async (t) => {
  const { remote, ask, syncs } = key(t);
  const one = ask("one");
  syncs.shift().reject(new Error("the disk is full"));
  await assert.rejects(one, /the disk is full/);
  assert.equal(remote.underWay, undefined);
});

/** An object in front of another side, whose engine has one call to send. `knows`: for each engine that was made, what it was told is under way. */
async function front(sync = async () => {}) {
  const { SemelObject } = await natively("upstream/index.js");
  const its = { knows: [], background: [] };
  const calls = [[1, undefined, false, "one"]];
  const engine = { has_to_send: () => false, open: () => false, is_suspect: () => true, wakes_at: () => undefined, handle: () => [200, "semel-status:in-flight\n"], take_call: () => calls.shift(), settle: () => [200, "semel-status:executed\n"] };
  given.glue.engine = (_storage, _settings, underWay) => (its.knows.push(underWay), engine);
  const ctx = { storage: { sql: {}, sync, getAlarm: async () => null }, getWebSockets: () => [], blockConcurrencyWhile: (work) => work(), waitUntil: (work) => its.background.push(work) };
  const object = new SemelObject(ctx, { SEMEL_UPSTREAM: "https://api.example" });
  its.ask = async (method, pathname) => object.ask(method, pathname, "", "", undefined);
  return its;
}

test("a request under way is known to an engine made meanwhile, is kept alive, and keeps no other from its answer", async (t) => {
  const { restart } = await natively("module.js");
  const { knows, background, ask } = await front();
  let answer;
  t.mock.method(globalThis, "fetch", () => new Promise((resolve) => (answer = resolve)));
  const one = ask("POST", "/orders");
  await turn();
  // This stands for another object of the isolate that crashes the module.
  restart();
  const looks = async () => assert.notEqual(await Promise.race([ask("GET", "/semel/v1/keys/k/outcomes/one"), turn("waits")]), "waits");
  await looks();
  assert.deepEqual(knows, [undefined, "one"]);
  assert.equal(await Promise.race([background[0], turn("is kept")]), "is kept");
  answer(new Response("made"));
  assert.deepEqual((await one).slice(0, 2), [200, "semel-status:executed\n"]);
  restart();
  await looks();
  assert.deepEqual(knows, [undefined, "one", undefined]);
});

test("a failure of a call is told only to its caller", async () => {
  const { background, ask } = await front(() => Promise.reject(new Error("the disk is full")));
  await assert.rejects(ask("POST", "/orders"), /the disk is full/);
  await Promise.all(background);
});
