// What a key's object does without a request: when it sets its alarm, and what happens when a chore fails, hangs or takes long. The test provides
// engine, storage and time.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { natively } from "./natively.mjs";

const { Chores, inTime, within } = await natively("chores.js");

const NOW = 1_000_000_000;
const MINUTE = 60_000;

/**
 * The chores of a key at `NOW`. By default the engine has nothing to do; `engine`, `storage`, `registry` and `effects` replace that. `log`: what the
 * chores called; `alarms`: the times of the alarms that were set; `background`: the work that the object stays alive for. `due(ms)` sets when the
 * engine has something to do next.
 */
function key(t, { engine, storage, registry, effects, endsMs = Infinity } = {}) {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: NOW });
  const noted = t.mock.method(console, "log", () => {});
  const its = { log: [], alarms: [], background: [], dueMs: undefined, notes: () => noted.mock.calls.map(({ arguments: [line] }) => JSON.parse(line).message) };
  const asked = (name, answer) => (...given) => {
    its.log.push(name);
    return answer(...given);
  };
  const all = { open: () => false, wakes_at: () => its.dueMs, woken: () => {}, sweep_page: () => false, report: () => undefined, reported: () => {}, drop_name: () => {}, forget: () => {}, key_hash: () => "hash", ...engine };
  const its_engine = Object.fromEntries(Object.entries(all).map(([name, answer]) => [name, asked(name, answer)]));
  const setAlarm = async (atMs) => void its.alarms.push(atMs);
  its.sockets = { endsMs };
  const ctx = { storage: { getAlarm: async () => null, setAlarm, sql: { databaseSize: 4_096 }, ...storage }, waitUntil: (work) => its.background.push(work) };
  const env = registry === undefined ? {} : { REGISTRY: { idFromName: (name) => name, get: (shard) => ({ report: (...told) => registry(shard, ...told) }) } };
  its.chores = new Chores(ctx, env, () => its_engine, its.sockets, effects);
  its.due = (dueMs) => {
    its.dueMs = dueMs;
    its.chores.wake();
  };
  /** Lets this much time pass, 5 ms at a time. */
  its.pass = async (ms) => {
    for (const endMs = Date.now() + ms; Date.now() < endMs; ) {
      t.mock.timers.tick(5);
      await turn();
    }
  };
  return its;
}

const failing = (message = "the disk is full") => () => {
  // The module throws the storage's message as a string.
  throw message;
};

test("an alarm that finds unreadable settings does not fail, logs them, and is set again a minute later", async (t) => {
  const unreadable = failing("SEMEL_KEY_RULES: not JSON");
  const { chores, alarms, notes } = key(t, { engine: { open: unreadable, woken: unreadable, wakes_at: unreadable, key_hash: unreadable }, effects: { wakesMs: Infinity, begin: unreadable } });
  await chores.alarm();
  assert.deepEqual(alarms, [NOW + MINUTE]);
  assert.ok(notes().some((note) => note.includes("SEMEL_KEY_RULES")));
});

test("an alarm is set only if it is needed sooner than the one set; a past time becomes now, and a far one is capped", async (t) => {
  const { chores, due, alarms } = key(t);
  due(undefined);
  assert.deepEqual(alarms.splice(0), []);
  for (const atMs of [NOW + 5_000, NOW + 5_000, NOW + 6_000, NOW + 4_000, NOW - 1, undefined]) due(atMs);
  assert.deepEqual(alarms.splice(0), [NOW + 5_000, NOW + 4_000, NOW]);
  await chores.alarm();
  due(NOW + 1e13);
  due(NOW + 9_000);
  assert.deepEqual(alarms, [NOW + 1e12, NOW + 9_000]);
});

test("the end of a token of a socket sets the alarm too, where the engine needs none sooner or crashes", async (t) => {
  const { due, alarms, sockets } = key(t, { endsMs: NOW + 7_000 });
  due(undefined);
  due(NOW + 8_000);
  sockets.endsMs = NOW + 6_000;
  due(NOW + 8_000);
  assert.deepEqual(alarms, [NOW + 7_000, NOW + 6_000]);
  t.mock.reset();
  const broken = key(t, { endsMs: NOW + 7_000, engine: { wakes_at: () => assert.fail("it crashed") } });
  broken.chores.wake();
  assert.deepEqual(broken.alarms, [NOW + 7_000]);
});

test("an alarm that an earlier object has set stands; if it can't be read, the alarm is set without it", async (t) => {
  const { chores, due, alarms } = key(t, { storage: { getAlarm: async () => NOW + 3_000 } });
  await chores.start();
  due(NOW + 4_000);
  assert.deepEqual(alarms, []);
  due(NOW + 2_000);
  assert.deepEqual(alarms, [NOW + 2_000]);
  t.mock.reset();
  const unknown = key(t, { storage: { getAlarm: () => Promise.reject(new Error("not now")) } });
  await unknown.chores.start();
  unknown.due(NOW + 4_000);
  assert.deepEqual(unknown.alarms, [NOW + 4_000]);
});

test("an alarm that could not be set is set again at the next need, and the log says so", async (t) => {
  for (const setAlarm of [() => Promise.reject(new Error("not now")), failing("not now")]) {
    let asked = 0;
    const { due, notes } = key(t, { storage: { setAlarm: () => ((asked += 1), setAlarm()) } });
    for (let times = 1; times <= 2; times += 1) {
      due(NOW + 4_000);
      await turn();
      assert.equal(asked, times);
    }
    assert.match(notes()[0], /a key's alarm could not be set: .*not now/);
    t.mock.reset();
  }
});

test("an alarm that is a minute overdue is set anew by the next request, which also does its work in the background", async (t) => {
  const { due, alarms, log, background, pass } = key(t);
  due(NOW + 1_000);
  await pass(1_000 + MINUTE);
  due(NOW + 1_000);
  assert.deepEqual([alarms, log.includes("woken")], [[NOW + 1_000], false]);
  await pass(5);
  due(NOW + 1_000);
  assert.deepEqual([alarms, background.length], [[NOW + 1_000, NOW + 1_005 + MINUTE], 1]);
  await Promise.all(background);
  assert.ok(log.includes("woken"));
});

test("an alarm sweeps, reports to the registry, sweeps what that has freed, and asks the engine for the next alarm", async (t) => {
  let pages = 2;
  const told = [];
  const { chores, log, alarms, pass } = key(t, {
    engine: { sweep_page: () => (pages -= 1) > 0, report: (bytes) => [3, `of ${bytes}`], reported: (report, answer) => ((pages = 2), told.push([report, answer])) },
    registry: async (...report) => report.join(),
  });
  const done = chores.alarm();
  await pass(50);
  await done;
  assert.deepEqual(log.filter((name) => name !== "open"), ["woken", "sweep_page", "sweep_page", "report", "reported", "sweep_page", "sweep_page", "wakes_at"]);
  assert.deepEqual([told, alarms], [[["of 4096", "3,3,of 4096"]], []]);
});

test("a failed run is logged and repeated after a minute, or sooner if a request needs an alarm sooner", async (t) => {
  const { chores, due, alarms, notes } = key(t, { engine: { sweep_page: failing() } });
  await chores.alarm();
  assert.deepEqual(alarms, [NOW + MINUTE]);
  assert.match(notes()[0], /a key's sweep waits: Error: the disk is full/);
  due(NOW + 2 * MINUTE);
  due(NOW + 1_000);
  assert.deepEqual(alarms, [NOW + MINUTE, NOW + 1_000]);
  await chores.alarm();
  assert.deepEqual(alarms.slice(2), [NOW + MINUTE], "it is no longer running");
});

test("the end of a token that comes before the repetition of a failed run still sets its own alarm", async (t) => {
  const { chores, alarms, sockets } = key(t, { engine: { woken: failing() }, endsMs: NOW + 5_000 });
  await chores.alarm();
  sockets.endsMs = NOW + 2 * MINUTE;
  await chores.alarm();
  assert.deepEqual(alarms, [NOW + 5_000, NOW + MINUTE]);
});

test("a registry that fails or does not answer stops neither the sweep of a key nor its next alarm", async (t) => {
  for (const [registry, said] of [[() => Promise.reject(new Error("gone")), /the registry: Error: gone/], [() => new Promise(() => {}), /the registry: Error: no answer in 10000 ms/]]) {
    const its = key(t, { registry, engine: { report: () => [0, "it"] } });
    its.dueMs = NOW + MINUTE;
    const done = its.chores.alarm();
    await its.pass(11_000);
    await done;
    assert.deepEqual([its.log.filter((name) => name === "sweep_page").length, its.log.includes("reported"), its.alarms], [2, false, [NOW + MINUTE]]);
    assert.match(its.notes()[0], said);
    t.mock.reset();
  }
});

test("without a registry nothing is reported, the engine is told so, and the name of a deleted key goes", async (t) => {
  const heard = [];
  const { chores, log, notes } = key(t, { engine: { wakes_at: (hasRegistry) => void heard.push(hasRegistry) } });
  await chores.alarm();
  assert.deepEqual([heard, log.includes("report"), log.includes("drop_name"), notes()], [[false], false, true, []]);
});

test("within and inTime leave no timer behind once their work has ended", async () => {
  const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
  const before = timers();
  assert.deepEqual([await within(MINUTE, Promise.resolve("answered")), await inTime(MINUTE, async () => "done")], ["answered", "done"]);
  await assert.rejects(within(MINUTE, Promise.reject(new Error("its own"))), /its own/);
  await assert.rejects(inTime(MINUTE, () => Promise.reject(new Error("its own"))), /its own/);
  assert.equal(timers(), before);
});

test("a sweep that takes more than one run goes on with the next alarm at once", async (t) => {
  const { chores, alarms, pass, log } = key(t, { engine: { sweep_page: () => true } });
  const done = chores.alarm();
  await pass(11_000);
  await done;
  const pages = log.filter((name) => name === "sweep_page").length;
  assert.ok(pages >= 1_990 && pages <= 2_010, `${pages} pages, in two times five seconds`);
  assert.equal(alarms.length, 1);
  assert.ok(alarms[0] >= NOW + 10_000 && alarms[0] <= NOW + 10_020, `${alarms[0] - NOW} ms`);
});

test("a sweep ends after 2,000 pages even if the clock stands still", async (t) => {
  const { chores, log } = key(t, { engine: { sweep_page: () => true } });
  t.mock.method(Date, "now", () => NOW);
  let isSwept;
  chores.forget(5).then((its) => (isSwept = its));
  for (let turns = 0; turns < 2_100 && isSwept === undefined; turns += 1) {
    t.mock.timers.tick(5);
    await turn();
  }
  assert.deepEqual([isSwept, log.filter((name) => name === "sweep_page").length], [false, 2_000]);
});

test("only one alarm sweeps at a time: another one waits for its end, and requests leave the next alarm to it", async (t) => {
  let pages = 2;
  const { chores, due, alarms, log, pass } = key(t, { engine: { sweep_page: () => (pages -= 1) > 0 } });
  const done = chores.alarm();
  due(NOW + 1_000);
  const again = chores.alarm();
  await turn();
  assert.deepEqual([alarms, log.filter((name) => name === "woken").length], [[], 1]);
  await pass(20);
  await Promise.all([done, again]);
  assert.deepEqual([alarms, log.filter((name) => name === "woken").length], [[NOW + 1_000], 1]);
});

test("an alarm that comes while overdue work runs in the background ends only after that work", async (t) => {
  for (const effects of [undefined, { wakesMs: NOW + 5 * MINUTE, begin: () => {} }]) {
    const { chores, due, alarms, background, pass } = key(t, { effects, registry: () => new Promise(() => {}), engine: { report: () => [0, "it"] } });
    due(NOW + 1_000);
    await pass(2_000 + MINUTE);
    due(NOW + 10 * MINUTE);
    assert.deepEqual([alarms.length, background.length], [2, 1]);
    let isOver = false;
    const alarm = Promise.resolve(chores.alarm()).then(() => (isOver = true));
    // What a request needs meanwhile sets no alarm.
    due(NOW + 5 * MINUTE);
    await pass(9_000);
    assert.deepEqual([isOver, alarms.length], [false, 2]);
    await pass(2_000);
    await Promise.all([alarm, ...background]);
    assert.deepEqual(alarms.slice(2), [NOW + 5 * MINUTE]);
    t.mock.reset();
  }
});

test("a page of the sweep waits at most a second for requests in hand, and not for answered ones", async (t) => {
  let pages = 3;
  const { chores, log, pass } = key(t, { engine: { sweep_page: () => (pages -= 1) > 0 } });
  const swept = () => log.filter((name) => name === "sweep_page").length;
  let answer;
  const request = chores.during(new Promise((resolve) => (answer = resolve)));
  const fails = chores.during(Promise.reject(new Error("its own"))).catch(({ message }) => message);
  const done = chores.alarm();
  await pass(500);
  assert.equal(swept(), 1);
  await pass(600);
  assert.equal(swept(), 2, "it may be slow");
  answer("answered");
  assert.deepEqual([await request, await fails], ["answered", "its own"]);
  await pass(20);
  await done;
  assert.equal(swept(), 4);
});

test("nothing is kept of requests in hand once they are answered", async (t) => {
  let pages = 2;
  const { chores, pass } = key(t, { engine: { sweep_page: () => (pages -= 1) > 0 } });
  for (let number = 0; number < 10; number += 1) await chores.during(Promise.resolve());
  const { mock } = t.mock.method(Promise, "allSettled");
  const done = chores.alarm();
  await pass(20);
  await done;
  assert.deepEqual(mock.calls.map(({ arguments: [inHand] }) => inHand), [[]]);
});

test("what an object reads at its start is read page by page, once for all callers, and nobody waits if it fails", async (t) => {
  let pages = 4;
  const { chores, log, pass } = key(t, { engine: { open: () => (pages -= 1) > 0 } });
  const [one, other] = [chores.ready(), chores.ready()];
  assert.ok(one !== undefined && one === other);
  await turn();
  assert.equal(log.length, 1, "others are let in between");
  await pass(20);
  await one;
  assert.deepEqual([log.length, chores.ready()], [4, undefined]);
  for (const [work, first] of [[() => chores.alarm(), "woken"], [() => chores.forget(5), "forget"]]) {
    log.length = 0;
    pages = 4;
    const done = work();
    await pass(20);
    await done;
    assert.equal(log.indexOf(first), 4, first);
  }
  t.mock.reset();
  const broken = key(t, { engine: { open: failing() } });
  assert.equal(broken.chores.ready(), undefined);
  assert.equal(await broken.chores.alarm(), undefined);
  assert.ok(broken.log.includes("woken"));
});

test("a forget says whether the sweep is complete, and sets an alarm for what is left", async (t) => {
  let pages = 2;
  const { chores, log, alarms, pass } = key(t, { engine: { sweep_page: () => (pages -= 1) > 0 } });
  let forgotten = chores.forget(5);
  await pass(20);
  assert.deepEqual([await forgotten, log.filter((name) => name !== "open"), alarms], [true, ["forget", "sweep_page", "sweep_page", "wakes_at"], []]);
  pages = Infinity;
  forgotten = chores.forget(5);
  await pass(6_000);
  assert.deepEqual([await forgotten, alarms.length], [false, 1]);
});

test("an alarm that is due only for effects sends them without a sweep, and one that starts its object does everything", async (t) => {
  const effects = { wakesMs: NOW + 2_000, begun: 0, begin: () => void (effects.begun += 1) };
  const { chores, due, alarms, log, pass } = key(t, { effects });
  due(NOW + 9_000);
  assert.deepEqual(alarms, [NOW + 2_000]);
  await pass(2_000);
  effects.wakesMs = NOW + 4_000;
  await chores.alarm();
  assert.deepEqual([effects.begun, log.includes("woken"), alarms], [1, false, [NOW + 2_000, NOW + 4_000]]);
  await pass(7_000);
  await chores.alarm();
  assert.deepEqual([effects.begun, log.includes("woken")], [2, true]);
  t.mock.reset();
  const woken = key(t, { effects });
  await woken.chores.alarm();
  assert.ok(woken.log.includes("woken"));
});

test("an alarm whose object could not read its effects is repeated after a minute, else only as the engine needs", async (t) => {
  for (const [dueMs, hasFailed, alarms] of [
    [undefined, true, [NOW + MINUTE]],
    [NOW + 24 * 60 * MINUTE, true, [NOW + MINUTE]],
    [NOW + 24 * 60 * MINUTE, false, [NOW + 24 * 60 * MINUTE]],
    [undefined, undefined, []],
  ]) {
    const its = key(t, { effects: { wakesMs: Infinity, begin: async () => hasFailed } });
    its.dueMs = dueMs;
    await its.chores.alarm();
    assert.deepEqual(its.alarms, alarms);
    t.mock.reset();
  }
});

test("the alarm of an object that a request started is repeated after a minute too if its effects could not be read", async (t) => {
  for (const [dueMs, begin, alarms] of [
    [undefined, async () => true, [NOW + MINUTE]],
    [undefined, failing("SEMEL_KEY_RULES: not JSON"), [NOW + MINUTE]],
    [undefined, async () => failing("SEMEL_KEY_RULES: not JSON")(), [NOW + MINUTE]],
    [undefined, async () => undefined, []],
    [NOW + 24 * 60 * MINUTE, async () => true, [NOW + 24 * 60 * MINUTE, NOW + MINUTE]],
    [NOW + 5_000, async () => true, [NOW + 5_000]],
  ]) {
    const its = key(t, { effects: { wakesMs: Infinity, begin } });
    its.due(dueMs);
    its.alarms.length = 0;
    await its.chores.alarm();
    assert.deepEqual(its.alarms, alarms);
    t.mock.reset();
  }
});

test("after a failed sweep the alarm is set at once, and effects that are found later can still have it sooner", async (t) => {
  const begin = async () => {
    await turn();
    its.due(NOW + 5_000);
  };
  const its = key(t, { engine: { sweep_page: failing() }, effects: { wakesMs: Infinity, begin } });
  const run = its.chores.alarm();
  await turn();
  assert.deepEqual(its.alarms, [NOW + MINUTE], "nobody has waited for what there is to send");
  await turn();
  await run;
  assert.deepEqual(its.alarms, [NOW + MINUTE, NOW + 5_000]);
});

test("the log says once that no registry is bound, and nothing if one is", async (t) => {
  const { Chores } = await natively("chores.js?another");
  const noted = t.mock.method(console, "log", () => {}).mock;
  const says = [{ REGISTRY: {} }, {}, {}, { REGISTRY: {} }].map((env) => (new Chores({ storage: {} }, env), noted.callCount()));
  assert.deepEqual(says, [0, 1, 1, 1]);
  assert.match(noted.calls[0].arguments[0], /REGISTRY is not bound/);
});

test("a key that has nothing to report tells the registry nothing, and writes nothing to the log", async (t) => {
  const { chores, log, notes, pass } = key(t, { registry: () => assert.fail("it is told something") });
  const done = chores.alarm();
  await pass(100);
  await done;
  assert.deepEqual([log.includes("report"), log.includes("reported"), notes()], [true, false, []]);
});
