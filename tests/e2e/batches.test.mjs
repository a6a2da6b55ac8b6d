// Batches and frames whose requests run one by one: the order in which the host makes them durable, counts and runs them, and the answers if the
// module crashes. The test provides engine and storage; `batch.test.mjs` has the same on workerd.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { natively } from "./natively.mjs";

const { Batches } = await natively("batches.js");
const { Turns } = await natively("turns.js");

const STARTED = 5;
const bytesOf = (text) => new TextEncoder().encode(text);
const crash = () => {
  throw new WebAssembly.RuntimeError("unreachable");
};

/**
 * The batches of a key, with an engine of the test's. `all(isAlone)`: the engine's answer to a whole batch; with `isAlone`, to the batch without its
 * requests. `one(element, …)`: its answer to one request. `log`: what was done, in order; `took`: the bytes of what waits; `looks`: the times for
 * which the engine was asked whether a request is a suspect, that is, whether it may have crashed the object before.
 */
function key(t, { all, one = (element) => [`"${element} ran"`, 0] }) {
  t.mock.method(console, "log", () => {});
  const its = { log: [], took: [], looks: [], isSuspect: () => false, synced: () => {} };
  const its_one = (to, asker, text, deadlineMs, sinceMs, isAgain, isAfter, room, nowMs) => {
    const element = JSON.parse(text);
    const what = sinceMs === undefined ? (isAgain ? "crashed" : "run") : isAgain ? "count" : "look";
    its.log.push(`${what} ${element.id}`);
    if (what === "look") its.looks.push(nowMs);
    if (what === "look" && its.crashing === element.id) crash();
    if (what === "look" && its.uncounted === element.id) return [`"${element.id} is not counted"`, room - 10];
    if (what === "look") return its.isSuspect(element.id) ? [] : undefined;
    if (what === "count") return undefined;
    return one(element.id, { what, isAfter, room, nowMs, sinceMs, deadlineMs });
  };
  const engine = { batch: (_router, _key, _asker, isAlone) => (its.log.push(isAlone ? "shell" : "all"), all(isAlone)), one: its_one };
  const host = {
    engine: () => engine,
    router: () => "the router",
    wake: () => its.log.push("wake"),
    sync: async () => {
      its.log.push("sync");
      its.synced();
      await turn();
      its.log.push("durable");
    },
    startedMs: STARTED,
    crashed: () => [503, "semel-status:unavailable\n", bytesOf("{}")],
  };
  const turns = new Turns(async () => {});
  its.turns = turns;
  const counted = { together: (work, brought, bytes) => (its.took.push(bytes), turns.together(work, brought, bytes)), alone: (work, bytes) => (its.took.push(bytes), turns.alone(work, bytes)) };
  const batches = new Batches(host, counted);
  const requests = (ids) => JSON.stringify(ids.map((id) => ({ id, method: "POST" })));
  its.lines = "";
  its.batch = async (...ids) => {
    const [status, , body] = await batches.batch("k", "alice", its.lines, bytesOf(requests(ids)));
    return [status, new TextDecoder().decode(body)];
  };
  its.frame = (...ids) => batches.frame("k", "alice", `{"frame":1,"requests":${requests(ids)}}`);
  return its;
}

const apart = (shell) => (isAlone) => (isAlone ? shell : undefined);
const SHELL = [200, "content-type:application/json\n", undefined, undefined];

test("a batch that can be in one commit is one call to the engine, and the alarm is set after it", async (t) => {
  const { log, batch } = key(t, { all: () => [200, "", bytesOf("[1,2]"), undefined] });
  assert.deepEqual([await batch("a", "b"), log], [[200, "[1,2]"], ["all", "wake"]]);
});

test("requests of a batch that can't share a commit run one by one in the room left, and nothing else runs meanwhile", async (t) => {
  const rooms = [];
  const one = (id, { room, isAfter }) => (rooms.push([room, isAfter]), [`"${id}"`, room - 10]);
  for (const all of [apart(SHELL), (isAlone) => (isAlone ? SHELL : crash())]) {
    rooms.length = 0;
    const its = key(t, { all, one });
    its.isSuspect = (id) => id === "b";
    const answer = its.batch("a", "b", "c");
    await undefined;
    const other = its.turns.together(() => its.log.push("another"));
    assert.deepEqual(await answer, [200, '["a","b","c"]']);
    await other;
    assert.deepEqual(its.log, ["all", "wake", "shell", "look a", "run a", "wake", "look b", "wake", "sync", "durable", "count b", "run b", "wake", "sync", "durable", "look c", "run c", "wake", "another"]);
    const most = (4 << 20) - 256 * 640;
    assert.deepEqual(rooms, [[most, false], [most - 10, true], [most - 20, true]]);
    t.mock.reset();
  }
});

test("a request of a batch whose start can't be counted is answered so and does not run, and those after it run", async (t) => {
  const rooms = [];
  const its = key(t, { all: apart(SHELL), one: (id, { room, isAfter }) => (rooms.push([room, isAfter]), [`"${id}"`, room - 10]) });
  its.uncounted = "b";
  assert.deepEqual(await its.batch("a", "b", "c"), [200, '["a","b is not counted","c"]']);
  assert.deepEqual(its.log, ["all", "wake", "shell", "look a", "run a", "wake", "look b", "wake", "look c", "run c", "wake"]);
  const most = (4 << 20) - 256 * 640;
  assert.deepEqual(rooms, [[most, false], [most - 20, true]]);
  const crashing = key(t, { all: apart(SHELL) });
  crashing.crashing = "b";
  const [, text] = await crashing.batch("a", "b", "c");
  assert.deepEqual(JSON.parse(text), ["a ran", { status: 503, headers: { "semel-status": "unavailable" }, body: "{}" }, "c ran"]);
});

test("a batch that can't be in one commit runs one by one even if it comes during another commit", async (t) => {
  const { turns, batch } = key(t, { all: apart(SHELL) });
  turns.together(() => {});
  assert.deepEqual(await batch("a", "b"), [200, '["a ran","b ran"]']);
});

test("a crash in a batch is counted as of its start, or unavailable if counting crashes too, and later requests run", async (t) => {
  const starts = [];
  const one = (id, { what, nowMs }) => {
    starts.push([id, what, nowMs]);
    t.mock.timers.tick(500);
    if (id === "twice" || (id === "once" && what === "run")) crash();
    return [`"${id} ${what}"`, 7];
  };
  t.mock.timers.enable({ apis: ["Date"], now: 1_000 });
  const { batch, looks } = key(t, { all: apart(SHELL), one });
  const [status, text] = await batch("once", "twice", "after");
  assert.deepEqual([status, JSON.parse(text)], [200, ["once crashed", { status: 503, headers: { "semel-status": "unavailable" }, body: "{}" }, "after run"]]);
  assert.deepEqual(starts, [["once", "run", 1_000], ["once", "crashed", 1_000], ["twice", "run", 2_000], ["twice", "crashed", 2_000], ["after", "run", 3_000]]);
  assert.deepEqual(looks, [1_000, 1_000, 1_000], "whether one may have ended the object before goes by when all of them came");
});

test("each request of a batch gets the deadline of the batch and the time right before it runs, even after slow syncs", async (t) => {
  const runs = [];
  const one = (id, { deadlineMs, nowMs }) => (runs.push([id, deadlineMs, nowMs]), [`"${id}"`, 7]);
  t.mock.timers.enable({ apis: ["Date"], now: 1_000 });
  const its = key(t, { all: apart(SHELL), one });
  its.lines = "x-a:1\nsemel-deadline:5000\n";
  its.isSuspect = (id) => id === "suspect";
  its.synced = () => t.mock.timers.tick(300);
  await its.batch("first", "suspect", "last");
  assert.deepEqual(runs, [["first", 5_000, 1_000], ["suspect", 5_000, 1_300], ["last", 5_000, 1_600]]);
  its.lines = "x-a:1\n";
  await its.batch("none");
  assert.deepEqual(runs.at(-1), ["none", undefined, 1_600]);
});

test("a batch or frame that is refused as a whole runs none of its requests, and a crash in what goes along rejects it", async (t) => {
  const { batch, log } = key(t, { all: apart([429, "semel-status:rate-limited\n", bytesOf("why"), undefined]) });
  assert.deepEqual(await batch("a"), [429, "why"]);
  assert.deepEqual(log.filter((what) => / a$/.test(what)), []);
  t.mock.reset();
  const refused = key(t, { all: apart([4429, "rate-limited"]) });
  assert.deepEqual([await refused.frame("a"), refused.log.filter((what) => / a$/.test(what))], [[4429, "rate-limited"], []]);
  t.mock.reset();
  const { batch: broken } = key(t, { all: (isAlone) => (isAlone ? crash() : undefined) });
  await assert.rejects(broken("a"), /what goes along with a batch crashes the module/);
});

test("the answers of a frame are put into its answer unchanged, and a frame that waits counts by its bytes", async (t) => {
  const { frame, took } = key(t, { all: apart(['{"frame":1,"now":5,"answers":[]}']), one: (id) => [`"$& ${id}"`, 0] });
  assert.deepEqual(await frame("a", "b"), ['{"frame":1,"now":5,"answers":["$& a","$& b"]}']);
  const bytes = JSON.stringify({ frame: 1, requests: [{ id: "a", method: "POST" }, { id: "b", method: "POST" }] }).length;
  assert.deepEqual(took, [bytes, bytes]);
  await turn();
});
