// What an object does around one call into its engine: what is durable before and after the call, which request a crash is counted for, and which
// runs alone. The test provides engine, storage and time; `recovery.test.mjs` and `handler.test.mjs` have the same on workerd.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { given, natively } from "./natively.mjs";

const { SemelObject, sendBy } = await natively("host.js");
const { gatherBy, routerOf } = await natively("router.js");

const NOW = 1_000_000_000;
const YOUNG_MS = 60_000;
const trap = () => {
  throw new WebAssembly.RuntimeError("unreachable");
};

/**
 * The object of a key at `NOW`. By default its engine answers every request; `engine` replaces functions of it. `log`: the calls to the engine and the
 * storage, in order; `args`: the arguments of the calls to the engine; `started`: what no request comes before. `alarmMs`: the alarm that is set already.
 */
function object(t, engine = {}, sockets = [], alarmMs = null) {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: NOW });
  const printed = t.mock.method(console, "log", () => {});
  const its = { log: [], args: [], alarms: [], lines: () => printed.mock.calls.map(({ arguments: [line] }) => line) };
  const all = { open: () => false, is_suspect: () => false, start: () => [204, ""], handle: () => [200, "handled"], crashed: () => [500, "counted"], wakes_at: () => NOW + 5_000, count: () => [1, 2], key_hash: () => "hash", woken: () => {}, sweep_page: () => false, drop_name: () => {}, ...engine };
  given.glue.engine = Object.fromEntries(
    Object.entries(all).map(([name, answer]) => [
      name,
      (...asked) => {
        its.log.push(name === "start" ? `start ${asked[0]}` : name);
        its.args.push([name, asked]);
        return answer(...asked);
      },
    ]),
  );
  // This is asked once, when the engine is made.
  given.glue.engine.has_to_send = engine.has_to_send ?? (() => false);
  given.glue.router = { unavailable: (detail) => [503, detail, undefined, `a line: ${detail}`] };
  const sync = async () => {
    its.log.push("sync");
    await turn();
    its.log.push("durable");
  };
  const storage = { sql: {}, sync, getAlarm: async () => alarmMs, setAlarm: async (atMs) => void its.alarms.push(atMs) };
  its.ctx = { storage, getWebSockets: () => sockets, blockConcurrencyWhile: (work) => void (its.started = work()), waitUntil: () => {} };
  its.object = new SemelObject(its.ctx, {});
  its.batch = (text) => its.object.ask("POST", "/batch", "", "semel-key:k\n", new TextEncoder().encode(text), "alice");
  its.ask = async (lines = "") => (await its.object.ask("POST", "/one", "", lines, new Uint8Array())).slice(0, 2);
  return its;
}

test("the start of a suspect is durable before it runs, is counted once more, and its commit has no other request", async (t) => {
  const { log, ask, alarms, object: its } = object(t, { is_suspect: (_, pathname) => pathname === "/one" });
  const alone = ask();
  await undefined;
  assert.deepEqual([log.at(-1), alarms], ["sync", [NOW + 5_000]], "the alarm that its start makes necessary is in the commit of that");
  const other = its.ask("POST", "/other", "", "", undefined);
  assert.deepEqual(await alone, [200, "handled"]);
  await other;
  const done = log.filter((what) => !["open", "is_suspect", "wakes_at"].includes(what));
  assert.deepEqual(done.slice(0, 8), ["start false", "sync", "durable", "start true", "handle", "sync", "durable", "handle"]);
});

test("a suspect whose start can't be counted does not run, and its caller gets that refusal", async (t) => {
  const { log, ask, alarms } = object(t, { is_suspect: () => true, start: () => [503, "not counted"] });
  assert.deepEqual(await ask(), [503, "not counted"]);
  assert.deepEqual([log.filter((what) => what.startsWith("start") || what === "handle"), alarms], [["start false"], [NOW + 5_000]]);
  t.mock.reset();
  const crashing = object(t, { is_suspect: () => true, start: trap });
  assert.deepEqual(await crashing.ask(), [503, "the object crashed"]);
  assert.ok(!crashing.log.includes("handle"));
  t.mock.reset();
  const counted = object(t, { is_suspect: () => true });
  assert.deepEqual(await counted.ask(), [200, "handled"]);
});

test("a young object asks the engine for suspects, an old one only for session requests; if that crashes there is none", async (t) => {
  const { log, ask } = object(t);
  const looks = async (lines) => {
    log.length = 0;
    await ask(lines);
    assert.deepEqual(log.filter((what) => what.startsWith("start")), [], "it runs with others, whoever was not asked");
    return log.includes("is_suspect");
  };
  assert.equal(await looks(), true);
  t.mock.timers.tick(YOUNG_MS - 1);
  assert.equal(await looks(), true);
  t.mock.timers.tick(1);
  assert.deepEqual([await looks(), await looks("semel-session:\"s\";epoch=1;seq=1\n")], [false, true]);
  t.mock.reset();
  const crashing = object(t, { is_suspect: trap });
  assert.deepEqual(await crashing.ask(), [200, "handled"]);
  assert.deepEqual(crashing.log.filter((what) => what.startsWith("start")), []);
});

test("a crash is counted as of the start of its request, and the caller is answered even if counting crashes too", async (t) => {
  const { ask, args } = object(t, { handle: () => (t.mock.timers.tick(500), trap()) });
  assert.deepEqual(await ask(), [500, "counted"]);
  const [[, handled], [, counted]] = args.filter(([name]) => ["handle", "crashed"].includes(name));
  assert.deepEqual([handled, handled.at(-1)], [counted, NOW]);
  t.mock.reset();
  assert.deepEqual(await object(t, { handle: trap, crashed: trap }).ask(), [503, "the object crashed"]);
});

test("an object reads what is stored before its first request, and sets the alarm after it", async (t) => {
  let pages = 3;
  const { log, ask, alarms } = object(t, { open: () => (pages -= 1) > 0 });
  const asked = ask();
  for (let turns = 0; turns < 5; turns += 1) {
    await turn();
    t.mock.timers.tick(1);
  }
  assert.deepEqual(await asked, [200, "handled"]);
  // `open` is called once more after each wait, because the engine may be another one by then.
  assert.deepEqual(log.filter((what) => !["sync", "durable"].includes(what)), ["open", "open", "open", "open", "is_suspect", "handle", "wakes_at"]);
  assert.deepEqual(alarms, [NOW + 5_000]);
});

test("an object lets no request in before it knows the alarm that an earlier object has set, and lets that stand", async (t) => {
  const { started, ask, alarms } = object(t, {}, [], NOW + 3_000);
  await started;
  await ask();
  assert.deepEqual(alarms, []);
});

test("an object that has nothing to wait for answers at once, and makes no promise", (t) => {
  const { object: its } = object(t);
  assert.deepEqual(its.ask("POST", "/one", "", "", new Uint8Array()), [200, "handled", undefined, undefined, 0]);
});

test("requests that wait for the start of an object are limited in bytes, whether alone, gathered or in batches", async (t) => {
  gatherBy(await natively("gathering.js"));
  t.after(() => gatherBy(undefined));
  const body = new Uint8Array(1 << 20);
  const ways = {
    "one by one": (its) => its.object.ask("POST", "/one", "", "", body),
    together: (its) => its.object.askAll([["POST", "/one", "", "", body]]),
    "in batches": (its) => its.object.ask("POST", "/batch", "", "semel-key:k\n", body, "alice"),
  };
  for (const [way, ask] of Object.entries(ways)) {
    let hasMore = true;
    const its = object(t, { open: () => hasMore, batch: () => [200, "answered"] });
    // A body that was too large to be read is undefined: it counts as no bytes, and does not spoil the sum.
    const unread = [undefined, "alice"].map((asker) => its.object.ask("POST", "/batch", "", "semel-key:k\n", undefined, asker));
    const asked = Array.from({ length: 31 }, () => ask(its));
    asked.push(its.object.ask("POST", "/one", "", "", new Uint8Array((1 << 20) - 31 * 100)));
    await assert.rejects(ask(its), /too many requests wait at this key/, way);
    hasMore = false;
    for (let turns = 0; turns < 5; turns += 1) {
      await turn();
      t.mock.timers.tick(1);
    }
    assert.equal((await Promise.all([...unread, ...asked])).length, 34);
    t.mock.reset();
  }
});

test("an object tells how much its key has, and undefined if its engine crashes", (t) => {
  assert.deepEqual(object(t).object.count(), [1, 2]);
  t.mock.reset();
  assert.equal(object(t, { count: trap }).object.count(), undefined);
});

test("a batch or frame runs after the start is read and before the alarm is set, and logs a crash it can't count", async (t) => {
  const sent = [];
  const socket = { readyState: 1, deserializeAttachment: () => ({ key: "k", asker: "alice" }), send: (text) => sent.push(text) };
  for (const way of [(its) => its.batch("[]"), (its) => its.object.webSocketMessage(socket, "{}")]) {
    let pages = 3;
    const its = object(t, { open: () => (pages -= 1) > 0, batch: () => ["answered"] });
    const asked = way(its);
    for (let turns = 0; turns < 5; turns += 1) {
      await turn();
      t.mock.timers.tick(1);
    }
    await asked;
    assert.deepEqual([its.log.filter((what) => !["sync", "durable"].includes(what)), its.alarms], [["open", "open", "open", "batch", "wakes_at"], [NOW + 5_000]]);
    t.mock.reset();
  }
  assert.deepEqual(sent, ["answered"]);
  const crashing = object(t, { batch: (_router, _key, _asker, isAlone) => (isAlone ? [200, "", undefined] : undefined), one: (_key, _asker, _text, sinceMs) => (sinceMs === undefined ? trap() : undefined) });
  const [status, , body] = await crashing.batch('[{"method":"POST"}]');
  assert.deepEqual([status, JSON.parse(new TextDecoder().decode(body)).map(({ status }) => status)], [200, [503]]);
  assert.ok(crashing.lines().includes("a line: the object crashed"));
});

test("a page of the sweep waits for a request that waits for a commit: alone, gathered or on a socket", async (t) => {
  gatherBy(await natively("gathering.js"));
  t.after(() => gatherBy(undefined));
  const socket = { readyState: 1, deserializeAttachment: () => ({ key: "k", asker: "alice" }), send: () => {} };
  for (const way of [(its) => its.ask(), (its) => its.object.askAll([["POST", "/one", "", "", new Uint8Array()]]), (its) => its.object.webSocketMessage(socket, "{}")]) {
    let pages = 3;
    const its = object(t, { forget: () => {}, sweep_page: () => (pages -= 1) > 0, batch: () => ["answered"] });
    const swept = () => its.log.filter((what) => what === "sweep_page").length;
    let durable;
    its.ctx.storage.sync = () => new Promise((resolve) => (durable = resolve));
    const pass = async (ms) => {
      t.mock.timers.tick(ms);
      for (let turns = 0; turns < 5; turns += 1) await turn();
    };
    await its.ask();
    await pass(0);
    // This request comes during a commit.
    const waits = way(its);
    const done = its.object.forget(1);
    await pass(5);
    await pass(900);
    assert.equal(swept(), 1);
    durable();
    await waits;
    for (let times = 0; times < 3; times += 1) await pass(5);
    assert.equal(await done, true);
    assert.equal(swept(), 3);
    t.mock.reset();
  }
});

test("an alarm ends only after its sweep is done and the engine was asked for the next", async (t) => {
  const { object: its, log } = object(t);
  await its.alarm();
  assert.deepEqual(log.filter((what) => what !== "open"), ["woken", "sweep_page", "drop_name", "sweep_page", "wakes_at"]);
});

test("an object whose handler has effects to send refuses requests if index.js has no sendBy(Effects)", async (t) => {
  const { log, ask } = object(t, { has_to_send: () => true });
  await assert.rejects(ask(), (told) => told === "the handler has requests sent, and index.js has no sendBy(Effects)");
  assert.ok(!log.includes("handle"), log.join());
});

test("an object whose storage fails between two writes replaces its module instance before it ends", async (t) => {
  const { run, transact } = await natively("storage.js");
  const { object: its, ctx, ask } = object(t);
  await ask();
  const done = [];
  given.glue.restarted = () => done.push("another instance");
  t.after(() => delete given.glue.restarted);
  ctx.abort = () => done.push("ended");
  const writes = () => {
    run({ exec: () => ({ rowsWritten: 1 }) }, "INSERT", []);
    throw "the disk is full";
  };
  assert.throws(() => transact(its.storage(), true, writes));
  assert.deepEqual(done, ["another instance", "ended"]);
});

test("gathered requests that wait for the start of an object are limited to 4,096", async (t) => {
  gatherBy(await natively("gathering.js"));
  t.after(() => gatherBy(undefined));
  let hasMore = true;
  const its = object(t, { open: () => hasMore, group: (_heads, _bodies, numbers) => Array.from({ length: numbers.length / 3 }, () => [200, "handled"]) });
  const calls = (count) => Array.from({ length: count }, () => ["POST", "/one", "", "", new Uint8Array()]);
  const asked = Array.from({ length: 16 }, () => its.object.askAll(calls(256)));
  await assert.rejects(Promise.race([its.object.askAll(calls(1)), turn("it waits")]), /too many requests wait at this key/);
  hasMore = false;
  for (let turns = 0; turns < 5; turns += 1) {
    await turn();
    t.mock.timers.tick(1);
  }
  for (const [answers] of await Promise.all(asked)) assert.equal(answers.length, 256);
});

test("gathered requests run once in one group, and none of them runs if any may have ended the object before", async (t) => {
  gatherBy(await natively("gathering.js"));
  t.after(() => gatherBy(undefined));
  let suspect;
  const group = (heads) => heads.split("POST").slice(1).map((head) => [200, `together ${head.split("\0")[1]}`]);
  const { object: its, log } = object(t, { is_suspect: (_method, pathname) => pathname === suspect, group });
  const asked = () => its.askAll(["/one", "/two", "/three"].map((pathname) => ["POST", pathname, "", "", new Uint8Array()]));
  const [answers] = await asked();
  assert.deepEqual([answers, log.includes("handle")], [["/one", "/two", "/three"].map((pathname) => [200, `together ${pathname}`]), false]);
  for (suspect of ["/one", "/two", "/three"]) {
    log.length = 0;
    assert.deepEqual([(await asked())[0], log.filter((what) => what === "group" || what === "handle")], [[], []], suspect);
  }
});

test("gathered requests run as of the end of a commit, are told how long they waited, and are limited in bytes", async (t) => {
  gatherBy(await natively("gathering.js"));
  t.after(() => gatherBy(undefined));
  const numbers = [];
  const { object: its, ctx, ask } = object(t, { group: (_heads, _bodies, its) => (numbers.push(...its), [[200, "one"], [200, "two"]]) });
  let durable;
  ctx.storage.sync = () => new Promise((resolve) => (durable = resolve));
  const commits = async () => {
    await ask();
    await turn();
  };
  const call = (body) => ["POST", "/one", "", "", body];
  await commits();
  const together = its.askAll([call(new Uint8Array(3)), call(new Uint8Array(4))]);
  t.mock.timers.tick(500);
  durable();
  assert.deepEqual(await together, [[[200, "one"], [200, "two"]], 500]);
  // Each is told when it came and when it starts, because its deadline may have passed in between.
  assert.deepEqual(numbers, [3, NOW, NOW + 500, 4, NOW, NOW + 500]);
  const large = new Uint8Array(1 << 20);
  const asked = Array.from({ length: 31 }, () => its.askAll([call(large)]));
  await assert.rejects(Promise.race([its.askAll([call(large)]), turn("it waits")]), /too many requests wait at this key/);
  durable();
  assert.equal((await Promise.all(asked)).length, 31);
});

test("gathered requests that run one by one stop once their answers have 4 MiB, and the rest are not run", async (t) => {
  gatherBy(await natively("gathering.js"));
  t.after(() => gatherBy(undefined));
  const { object: its, log } = object(t, { group: () => undefined, handle: (_, pathname) => [200, "", pathname === "/none" ? undefined : new Uint8Array(2 << 20)] });
  const [answers] = await its.askAll(["/none", "/one", "/one", "/one", "/none"].map((pathname) => ["POST", pathname, "", "", new Uint8Array()]));
  assert.deepEqual(answers.map((answer) => answer?.[0]), [200, 200, 200, undefined, undefined]);
  assert.equal(log.filter((what) => what === "handle").length, 3);
});

test("requests that wait for a commit run in one group after it, and each gets its own answer", async (t) => {
  gatherBy(await natively("gathering.js"));
  t.after(() => gatherBy(undefined));
  const group = (heads) => heads.split("POST").slice(1).map((head) => [200, `together ${head.split("\0")[1]}`]);
  const { object: its, log } = object(t, { group });
  const all = await Promise.all(["/one", "/two", "/three"].map((pathname) => its.ask("POST", pathname, "", "", new Uint8Array())));
  assert.deepEqual(all.map(([, said]) => said), ["handled", "together /two", "together /three"]);
  assert.deepEqual(log.filter((what) => what === "group" || what === "handle"), ["handle", "group"]);
});

test("requests that wait for a commit, or for one that runs alone, are limited in bytes", async (t) => {
  for (const isSuspect of [false, true]) {
    const { object: its } = object(t, { is_suspect: () => isSuspect });
    const ask = () => its.ask("POST", "/one", "", "", new Uint8Array(1 << 20));
    const all = Array.from({ length: 33 }, ask);
    await assert.rejects(ask(), /too many requests wait at this key/);
    for (const [status] of await Promise.all(all)) assert.equal(status, 200);
    t.mock.reset();
  }
});

test("a crash of the module while a request waits for one executed elsewhere is answered unavailable, and one that settles that has no answer", (t) => {
  const { object: its } = object(t, { settle: trap, take_call: trap, wait: trap });
  const args = ["POST", "/one", "", "", undefined, NOW, NOW];
  assert.deepEqual(its.waiting(args).slice(0, 2), [503, "the object crashed"]);
  assert.equal(its.settled([1, undefined, false, "one"], "ended", args), undefined);
  assert.equal(its.taken(), undefined);
});

test("the alarm closes a socket whose token has ended, a leaving socket is closed, and a crash replaces the instance", async (t) => {
  const closed = [];
  const socketOf = (name, asker) => ({ readyState: 1, deserializeAttachment: () => ({ key: "k", asker, endsMs: NOW, address: "" }), close: (code) => closed.push(code === undefined ? name : `${name} ${code}`) });
  const [ended, gone, left] = ["ended", "gone", "left"].map((name) => socketOf(name, `its\n${name}`));
  const { object: its } = object(t, {}, [left, gone, ended]);
  its.webSocketError(gone);
  its.webSocketClose(left);
  assert.deepEqual(closed.splice(0), ["left"]);
  await its.alarm();
  assert.deepEqual(closed.splice(0), ["ended 4401"]);
  let restarts = 0;
  given.glue.restarted = () => (restarts += 1);
  t.after(() => delete given.glue.restarted);
  Object.assign(routerOf({}), { admit: trap });
  await its.webSocketMessage(socketOf("stranger"), "{}");
  assert.deepEqual([closed, restarts], [["stranger 4503"], 1]);
});

test("if it is not known in time who sends on a socket, the socket is closed as unavailable, and the log has nothing", async (t) => {
  const closed = [];
  const { object: its, lines } = object(t);
  Object.assign(routerOf({}), { admit: () => [undefined, 8_000], signature_wanted: () => undefined });
  t.after(() => delete routerOf({}).admit);
  const asked = its.webSocketMessage({ readyState: 1, deserializeAttachment: () => ({ key: "k", address: "" }), close: (...why) => closed.push(why) }, "{}");
  for (let passed = 0; passed <= 8_000; passed += 20) await turn(t.mock.timers.tick(20));
  await asked;
  assert.deepEqual([closed, lines()], [[[4503, "unavailable"]], []]);
});

test("a socket is refused with 503 while 100 are open whose clients are not known yet", async (t) => {
  const { ctx, object: its } = object(t);
  const strangers = [];
  ctx.acceptWebSocket = (socket) => strangers.push(socket);
  // Node's Response refuses status 101.
  const { Response } = globalThis;
  globalThis.Response = class {
    constructor(_, { status }) {
      this.status = status;
    }
  };
  globalThis.WebSocketPair = class {
    1 = { readyState: 1, serializeAttachment: () => {}, deserializeAttachment: () => ({ key: "k", address: "" }), close: () => {} };
  };
  t.after(() => {
    globalThis.Response = Response;
    delete globalThis.WebSocketPair;
  });
  const open = () => its.fetch({ headers: new Headers() }).status;
  for (let opened = 0; opened < 100; opened += 1) assert.equal(open(), 101);
  const asked = strangers.map((socket) => its.webSocketMessage(socket, "{}"));
  // Each has sent a frame, and the object does not know yet who each of them is.
  await undefined;
  assert.equal(open(), 503);
  await Promise.all(asked);
});

test("effects of an attempt are sent after it, without an alarm", async (t) => {
  let begun = 0;
  sendBy(
    class {
      begin() {
        begun += 1;
      }
    },
  );
  t.after(() => sendBy(undefined));
  const { ask } = object(t, { has_to_send: () => true });
  assert.deepEqual(await ask(), [200, "handled"]);
  assert.equal(begun, 1);
});
