// The parts of a run that decide something: the schedule, what must have happened, the verdict on memory and what is weighed for it, the journal, and
// the check of the files.

import assert from "node:assert/strict";
import { appendFile, mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { browse } from "../e2e/browser.mjs";
import { missing } from "./dealt.mjs";
import { buildHelper, inspect } from "./files.mjs";
import { keptBytes } from "./heap.mjs";
import { Journal } from "./journal.mjs";
import { isLevel, weigh } from "./memory.mjs";
import { EVERYTHING } from "./run.mjs";
import { scheduleOf } from "./schedule.mjs";
import { makeState } from "./state.mjs";
import { startServer } from "./server.mjs";
import { SessionBook } from "./session-book.mjs";
import { startTabs } from "./tab-caller.mjs";

const MINUTE_MS = 60_000;
const MB = 1 << 20;

const scratch = await mkdtemp(join(tmpdir(), "semel-chaos-parts-"));
after(() => rm(scratch, { recursive: true, force: true }));

test("a seed always gives the same schedule, with every kind of kill in each minute, and the next seed another", () => {
  for (let seed = 0; seed < 50; seed += 1) {
    const schedule = scheduleOf(seed, MINUTE_MS);
    assert.deepEqual(scheduleOf(seed, MINUTE_MS), schedule);
    assert.notDeepEqual(scheduleOf(seed + 1, MINUTE_MS), schedule);
    assert.deepEqual(scheduleOf(seed, 2 * MINUTE_MS).server.slice(0, schedule.server.length), schedule.server);
    for (const kind of ["server", "browser", "node", "tab", "disk"]) assert.ok(schedule[kind].length >= 2, `${kind} of seed ${seed}`);
  }
});

test("memory that warms up and then stays counts as level, even with noise; a leak never does, even in a large process", async () => {
  const bound = { requests: 400, bytesARequest: 400 };
  const weighed = async (bytesAt) => {
    let round = 0;
    return weigh({ load: async () => void (round += 1), usedBytes: async () => bytesAt(round), ...bound });
  };
  assert.equal(isLevel([], bound), false);
  assert.equal((await weighed(() => 100 * MB)).isLevel, true);
  // What still grows ten rounds before the last counts as a leak, because two windows are compared.
  assert.equal((await weighed((round) => (100 + 100 * Math.min(1, round / 15)) * MB)).isLevel, true);
  assert.equal((await weighed((round) => (200 + (round % 3) * 10) * MB)).isLevel, true);
  // A round has 400 requests, each of which leaves 400 bytes behind; then 8 kB; then 200 kB. A large process is no excuse.
  for (const leaked of [400 * 400, 3 * MB, 80 * MB]) {
    for (const base of [100 * MB, 4_000 * MB]) assert.equal((await weighed((round) => base + leaked * round)).isLevel, false);
  }
  // Memory that is released when the load begins hides no leak.
  assert.equal((await weighed((round) => (round < 5 ? 200 : 100 + round) * MB)).isLevel, false);
});

test("a whole run fails, and names what, if some fault never happened; a shorter run need not have all", () => {
  const faults = ["requestsCut", "answersCut", "requestsTruncated", "answersTruncated", "requestsStalled", "answersStalled", "duplicates", "unreachable"];
  const others = ["serverKills", "browserKills", "nodeKills", "fills", "refusedByFullDisk", "batches", "madeInSessions", "fenced", "tabKills", "sockets"];
  const ofSockets = { socketsCut: 0, socketsTruncated: 0, socketsStalled: 1 };
  const figures = { ...Object.fromEntries([...faults, ...others].map((name) => [name, 1])), ...ofSockets, answered: { page: 1, "node-0": 1 } };
  const whole = { durationMs: MINUTE_MS, parts: EVERYTHING, isSmallDisk: true };
  assert.deepEqual(missing(figures, whole), []);
  for (const name of [...faults, ...others]) {
    const [line, ...more] = missing({ ...figures, [name]: 0 }, whole);
    assert.match(line, new RegExp(`never happened: ${name}$`));
    assert.deepEqual(more, []);
    assert.deepEqual(missing({ ...figures, [name]: 0 }, { ...whole, durationMs: MINUTE_MS - 1 }), []);
    // A count that is missing is an error too.
    assert.equal(missing({ ...figures, [name]: undefined }, whole).length, 1);
  }
  assert.match(missing({ ...figures, socketsStalled: 0 }, whole)[0], /faults of sockets$/);
  assert.match(missing({ ...figures, answered: { page: 0, "node-0": 1 } }, whole)[0], /answers to page$/);
  assert.deepEqual(missing({ ...figures, fills: 0, refusedByFullDisk: 0 }, { ...whole, isSmallDisk: false }), []);
});

test("a tab that is killed with its browser does not count as a tab killed alone", async () => {
  const tab = { evaluate: async () => [], once: (event, told) => told(), goto: async () => {}, close: async () => {} };
  const browser = { errors: [], tab: async () => tab, kill: async () => {}, start: async () => {} };
  const book = new SessionBook({ seed: 1, name: "tabs", first: 0, isContended: true });
  const tabs = await startTabs({ book, atATime: 1, options: {}, transports: ["http", "http"], after: () => {}, browsing: async () => browser });
  await tabs.kill();
  await tabs.start();
  assert.deepEqual([tabs.kills, tabs.killsAlone], [1, 0]);
  await tabs.callers[1].kill();
  await tabs.callers[1].start();
  assert.deepEqual([tabs.kills, tabs.killsAlone], [1, 1]);
});

test("the weighing of a page counts what it keeps on the heap, beside it and in wasm, and not what it drops", async (t) => {
  const ends = [];
  t.after(async () => {
    for (const end of ends) await end();
  });
  const browser = await browse((end) => ends.unshift(end));
  const tab = await browser.tab();
  await assert.rejects(keptBytes(tab), /no wasm/);
  await tab.evaluate(() => void (window.wasm = new WebAssembly.Memory({ initial: 1 })));
  const before = await keptBytes(tab);
  for (const keep of [
    () => void (window.kept = Array.from({ length: 40_000 }, (_, n) => ({ text: `answer ${n}` }))),
    () => void (window.kept = new Uint8Array(2 << 20)),
    () => void (window.kept = new WebAssembly.Memory({ initial: 32 })),
  ]) {
    await tab.evaluate(keep);
    const kept = (await keptBytes(tab)) - before;
    assert.ok(kept > MB && kept < 8 * MB, `${kept} bytes for ${keep}`);
    await tab.evaluate(() => void delete window.kept);
    const left = (await keptBytes(tab)) - before;
    assert.ok(Math.abs(left) < MB / 8, `${left} bytes are left of ${keep}`);
  }
});

test("a journal keeps what was changed before the process died, without the torn last line", async () => {
  const path = join(scratch, "journal");
  const bytes = (...values) => Uint8Array.from(values);
  const first = new Journal(path);
  await first.change("kept", () => bytes(1, 2));
  await first.change("changed", () => bytes(3));
  await first.change("changed", (row) => bytes(...row, 4));
  await first.change("left", () => null);
  await first.change("deleted", () => bytes(5));
  await first.change("deleted", () => undefined);
  await first.change("removed", () => bytes(6));
  await first.remove(["removed"]);
  await appendFile(path, '["torn","AQ');
  const second = new Journal(path);
  assert.deepEqual(await second.load(), [["kept", bytes(1, 2)], ["changed", bytes(3, 4)]]);
  await second.change("after", () => bytes(7));
  second.close();
  assert.deepEqual((await new Journal(path).load()).map(([id]) => id), ["kept", "changed", "after"]);
});

test("the inspection of files finds unacknowledged records, sessions, and damaged files", async (t) => {
  await buildHelper();
  const ends = [];
  t.after(async () => {
    for (const end of ends) await end();
  });
  const state = await makeState((end) => ends.unshift(end));
  const server = await startServer(state);
  ends.unshift(() => server.kill());
  const post = (id) => fetch(new URL("/accounts/a/deposit", server.address), { method: "POST", headers: { "idempotency-key": id }, body: '{"amount":5}' });
  await post("one");
  await post("two");
  await server.acknowledge("accounts/a", ["one"]);
  const lasts = [await server.endSession("b", "till"), await server.endSession("b", "till"), await server.endSession("b", "other")];
  assert.deepEqual(lasts, [0, 1, 0]);
  await server.kill();
  const of = async () => (await inspect(state.objects)).find(({ account }) => account !== null);
  const { file, ...found } = await of();
  assert.deepEqual(found, { integrity: "ok", unacknowledged: 1, account: [10, 2], kept: { epoch: 0, sessions: [] } });
  const { kept, unacknowledged } = (await inspect(state.objects)).find(({ kept }) => kept.epoch > 0);
  // One place of each session with its outcome, and the records of the take-overs.
  assert.deepEqual([kept, unacknowledged], [{ epoch: 3, sessions: [[1, 1], [1, 1]] }, 3]);
  const damaged = await open(file, "r+");
  await damaged.write(Buffer.alloc(600, 0xff), 0, 600, 4096 + 8);
  await damaged.close();
  await writeFile(join(state.objects, "none.sqlite"), "this is no database, and long enough to look like one".repeat(40));
  const integrities = (await inspect(state.objects)).filter(({ file: name }) => name === file || name.endsWith("none.sqlite")).map(({ integrity }) => integrity);
  assert.equal(integrities.length, 2);
  for (const integrity of integrities) assert.notEqual(integrity, "ok");
});
