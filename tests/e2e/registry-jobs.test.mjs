// Jobs of the registry, which tell all keys something by way of their shards: how long it waits for each, when it goes on, and that it gives up no
// job. The test provides the module's decisions and the time; `registry.test.mjs` has the registry on workerd.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { given, natively } from "./natively.mjs";

const { SemelRegistry } = await natively("registry.js");

const NOW = 1_000_000_000;
const SHARDS = [0, 1];

/**
 * An object of the registry at `NOW`. `glue`: the decisions of the module; `key`: the answer of a key that is told to forget; `shard`: the other
 * shards. `alarms`: the times of its alarms, or "none" where one was deleted.
 */
function registry(t, { glue = {}, key, shard = {} } = {}) {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: NOW });
  const noted = t.mock.method(console, "log", () => {});
  const its = { alarms: [], told: [], asked: [], jobs: [], notes: () => noted.mock.calls.map(({ arguments: [line] }) => JSON.parse(line).message) };
  given.glue.registry = { jobs: () => its.jobs, told: (...told) => its.told.push(told), ...glue };
  const storage = { setAlarm: async (atMs) => void its.alarms.push(atMs), deleteAlarm: async () => void its.alarms.push("none") };
  const objects = (object) => ({ idFromName: (name) => name, get: object });
  const env = { SEMEL: objects((name) => ({ forget: (beforeS) => (its.asked.push([name, beforeS]), key(name)) })), REGISTRY: objects(() => shard) };
  its.object = new SemelRegistry({ storage }, env);
  its.pass = async (ms) => {
    const endMs = Date.now() + ms;
    do {
      for (let turns = 0; turns < 10; turns += 1) await turn();
      t.mock.timers.tick(Math.min(500, endMs - Date.now()));
    } while (Date.now() < endMs);
    for (let turns = 0; turns < 10; turns += 1) await turn();
  };
  return its;
}

const never = () => new Promise(() => {});

test("a shard tells two keys at a time to forget, waits 10 s for each and a minute for all, and leaves the rest", async (t) => {
  const names = Array.from({ length: 20 }, (_, number) => `key ${number}`);
  const SAID = { "key 1": async () => true, "key 3": async () => false, "key 5": () => Promise.reject(new Error("gone")) };
  const visited = [];
  const glue = { visit: (...asked) => [asked.join(), ...names], visited: (...told) => (visited.push(structuredClone(told)), "progress") };
  const its = registry(t, { glue, key: (name) => (SAID[name] ?? never)() });
  const done = its.object.forget(1, "job", 5);
  await its.pass(0);
  assert.deepEqual(its.asked, [["key 0", 5], ["key 1", 5], ["key 2", 5]], "one of them has answered");
  await its.pass(80_000);
  assert.equal(await done, "progress");
  const [[shard, id, visit, tried]] = visited;
  assert.deepEqual([shard, id, visit[0]], [1, "job", "1,job,5"]);
  assert.deepEqual(tried.slice(0, 6), ["failed", "done", "failed", "left", "failed", "failed"]);
  const count = its.asked.length;
  assert.ok(count >= 14 && count <= 16, `${count} in a minute`);
  assert.deepEqual(tried.slice(count), Array(20 - count).fill("left"));
  assert.match(its.notes().join(), /a key could not be told to forget, and will be again: Error: gone/);
});

test("a job is stored with the number of keys of each shard, 0 for one that does not answer, and begins at once", async (t) => {
  const heard = [];
  const its = registry(t, { glue: { handle: (...asked) => (heard.push(asked), its.jobs.push(["job", 5, [0]]), "stored") }, shard: { count: (shard) => (shard === 0 ? Promise.resolve(7) : never()) } });
  const asked = its.object.ask("POST", "/path", "", "lines", undefined);
  await its.pass(2_000);
  assert.equal(await asked, "stored");
  assert.deepEqual([heard, its.alarms], [[["POST", "/path", "", "lines", undefined, [7, 0], NOW, NOW + 2_000]], [NOW + 2_000]]);
});

test("asking for the progress of a job restarts it unless it is worked on, and sets no alarm if there is no job", async (t) => {
  const its = registry(t, { glue: { handle: () => "told" }, shard: { forget: never } });
  await its.object.ask("GET", "/path");
  assert.deepEqual(its.alarms.splice(0), []);
  its.jobs = [["job", 5, SHARDS]];
  await its.object.ask("GET", "/path");
  assert.deepEqual(its.alarms.splice(0), [NOW]);
  its.object.alarm();
  await its.pass(0);
  assert.deepEqual(its.alarms.splice(0), [NOW + 10_000], "should it be cut off");
  await its.object.ask("GET", "/path");
  await its.object.alarm();
  assert.deepEqual(its.alarms, []);
});

test("a job that is done clears the alarm, and one whose shards do not answer is tried again after a minute", async (t) => {
  const its = registry(t, { shard: { forget: async (shard) => ((its.jobs = []), [1, 1, true]) } });
  its.jobs = [["job", 5, SHARDS]];
  await its.object.alarm();
  assert.deepEqual(its.alarms, [NOW + 10_000, "none"]);
  assert.ok(its.told.some(([id, shard]) => id === "job" && shard === 1));
  t.mock.reset();
  const lost = registry(t, { shard: { forget: (shard) => (shard === 0 ? never() : Promise.reject(new Error("gone"))) } });
  lost.jobs = [["job", 5, SHARDS]];
  const done = lost.object.alarm();
  await lost.pass(120_000);
  await done;
  assert.deepEqual([lost.alarms, lost.told], [[NOW + 10_000, NOW + 180_000], []]);
  assert.match(lost.notes().join(), /shard 1 of the registry does not answer: Error: gone,shard 0 of the registry does not answer: Error: no answer in 120000 ms/);
});

test("a job goes on at once while its shard moves on, after 5 s while it sweeps, and after a minute if keys failed", async (t) => {
  for (const [progress, waitMs] of [
    [() => [9, 5, false], 5_000],
    [() => [9, 8, false, "a key"], 60_000],
    [() => [9, 8, true, "a key"], 5_000],
    [() => [30, 5, false, ...Array.from({ length: 20 }, (_, number) => `key ${number}`)], 60_000],
    [() => [30, 5, false, ...Array.from({ length: 19 }, (_, number) => `key ${number}`)], 5_000],
  ]) {
    let steps = 0;
    const its = registry(t, { shard: { forget: async () => ((steps += 1), progress()) } });
    its.jobs = [["job", 5, [0]]];
    await its.object.alarm();
    assert.deepEqual([its.alarms.at(-1) - NOW, steps], [waitMs, 2], `${progress()}`);
    t.mock.reset();
  }
  // A shard that hangs takes all the time there is, in one step or in two.
  for (const hangsMs of [10_000, 20_000, 60_000]) {
    const hanging = registry(t, { shard: { forget: async () => (t.mock.timers.tick(hangsMs), [9, 8, false, "a key"]) } });
    hanging.jobs = [["job", 5, [0]]];
    await hanging.object.alarm();
    assert.equal(hanging.alarms.at(-1), NOW + Math.max(hangsMs, 20_000) + 60_000);
    t.mock.reset();
  }
  // No key failed: all were told, and the shard has only not seen that yet. Or one has, and others are left that were not asked.
  for (const progress of [[9, 9, false], [30, 5, false, "a key"]]) {
    const slow = registry(t, { shard: { forget: async () => (t.mock.timers.tick(20_000), progress) } });
    slow.jobs = [["job", 5, [0]]];
    await slow.object.alarm();
    assert.equal(slow.alarms.at(-1), NOW + 20_000);
    t.mock.reset();
  }
  const moved = registry(t, { shard: { forget: async () => [9, Math.min((moved.steps += 1), 2), false] } });
  Object.assign(moved, { steps: 0, jobs: [["job", 5, [0]]] });
  await moved.object.alarm();
  assert.deepEqual([moved.steps, moved.alarms.at(-1)], [3, NOW], "it has moved, and may again");
  t.mock.reset();
  let steps = 0;
  const its = registry(t, { shard: { forget: async () => (t.mock.timers.tick(1_000), [99, (steps += 1), false]) } });
  its.jobs = [["job", 5, [0]]];
  await its.object.alarm();
  assert.deepEqual([steps, its.alarms.at(-1)], [20, NOW + 20_000]);
});

test("four of many jobs are in hand at a time and the others follow in 5 s, and if the storage fails in a minute", async (t) => {
  const worked = new Set();
  const its = registry(t, { shard: { forget: async (_, id) => (worked.add(id), [9, 8, false, "a key"]) } });
  its.jobs = Array.from({ length: 6 }, (_, number) => [number, 5, [0]]);
  t.mock.method(Math, "random", () => 0.5);
  await its.object.alarm();
  assert.deepEqual([[...worked], its.alarms.at(-1)], [[3, 4, 5, 0], NOW + 5_000], "wherever it begins, so that none waits for ever behind others");
  given.glue.registry.jobs = () => {
    throw "the disk is full";
  };
  await its.object.alarm();
  assert.equal(its.alarms.at(-1), NOW + 60_000);
  assert.match(its.notes().at(-1), /a job waits: Error: the disk is full/);
  given.glue.registry.jobs = () => [];
  await its.object.alarm();
  assert.equal(its.alarms.at(-1), "none");
});

test("the registry passes on errors of the storage in their words, and a trap in any call replaces the instance", async (t) => {
  let fails;
  const failing = () => {
    throw fails;
  };
  const its = registry(t, { glue: { report: failing, list: failing, count: failing, handle: failing, visit: failing }, shard: { forget: async () => [1, 1, true], count: async () => 0 } });
  let restarts = 0;
  given.glue.restarted = () => (restarts += 1);
  t.after(() => delete given.glue.restarted);
  const asked = { report: [1, "report"], list: [1, "/path"], count: [1], forget: [1, "job", 5], ask: ["POST", "/path", "", "", undefined] };
  for (const [name, args] of Object.entries(asked)) {
    fails = "the disk is full";
    await assert.rejects(async () => its.object[name](...args), { message: fails }, name);
    fails = new WebAssembly.RuntimeError("unreachable");
    await assert.rejects(async () => its.object[name](...args), fails, name);
  }
  assert.equal(restarts, Object.keys(asked).length);
  given.glue.registry.told = failing;
  its.jobs = [["job", 5, [0]]];
  await its.object.alarm();
  assert.equal(restarts, Object.keys(asked).length + 1);
});
