// The lab's journal in Chromium: what it records, in whichever tab, and what the tabs tell each other.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { build } from "esbuild";
import { chromium } from "playwright-core";
import { findBrowser } from "../../scripts/setup/browser.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { AMOUNT, CLICKS_MAX } from "../../www/lab/limits.js";
import { until } from "./lossy.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 60_000 };
const SITE = "http://lab.test";

const { outputFiles } = await build({ absWorkingDir: ROOT, entryPoints: ["www/lab/journal.js"], bundle: true, format: "iife", globalName: "lab", write: false });
const PAGE = `<!doctype html><meta charset="utf-8"><script>${outputFiles[0].text}</script>`;
const browser = await chromium.launch({ executablePath: process.env.SEMEL_CHROMIUM ?? (await findBrowser()).chromium, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
after(() => browser.close());

/** A visitor. Resolves to a function that opens another tab, with the journal of one account as `journal`. */
async function visitor(t) {
  const context = await browser.newContext();
  t.after(() => context.close());
  await context.route(`${SITE}/**`, (route) => route.fulfill({ contentType: "text/html", body: PAGE }));
  let tabs = 0;
  return async () => {
    const tab = await context.newPage();
    await tab.goto(SITE);
    await open(tab, (tabs += 1), `page-${tabs}`);
    return tab;
  };
}

/** Opens the journal in a tab. The changes that it reports are collected in `told`. */
function open(tab, number, page) {
  return tab.evaluate(
    async ([number, page]) => {
      window.journal = await lab.openJournal({ account: "a", tab: number, page });
      window.told = [];
      journal.onchange = (kind, value) => told.push([kind, value]);
    },
    [number, page],
  );
}

const clicks = (tab) => tab.evaluate(() => [...journal.clicks.values()]);
const click = (tab) => tab.evaluate(() => journal.click());

test("all that the journal records is there after a reload, in its last state", LIMIT, async (t) => {
  const tab = await (await visitor(t))();
  const startMs = Date.now();
  await tab.evaluate(async () => {
    await journal.startRun({ id: "run", total: 2, made: 0, kill: 1 });
    await journal.click();
    await journal.click({ ofRun: true });
    await journal.change(1, { naive: "answered", naiveMs: 5 });
    await journal.attempt({ id: "1-naive-x", fate: "sent" });
    await journal.attempt({ id: "1-naive-x", fate: "lost" });
    await journal.event("left", { naive: 1 });
    await journal.sample({ atMs: 7, records: 1, tombstones: 0 });
  });
  const read = () => tab.evaluate(() => ({ clicks: [...journal.clicks], attempts: [...journal.attempts], events: journal.events, samples: journal.samples, run: journal.run }));
  const before = await read();
  const [[, first], [, second]] = before.clicks;
  const own = { tab: 1, page: "page-1" };
  assert.ok(first.atMs >= startMs && first.atMs <= Date.now());
  assert.deepEqual(first, { ...own, n: 1, amount: AMOUNT, atMs: first.atMs, naive: "answered", naiveMs: 5, semel: "waiting" });
  assert.deepEqual(second, { ...own, n: 2, amount: AMOUNT, atMs: second.atMs, naive: "waiting", semel: "waiting", ofRun: "run" });
  assert.deepEqual(before.attempts, [["1-naive-x", { ...own, id: "1-naive-x", fate: "lost" }]]);
  assert.deepEqual(before.events, [{ ...own, at: 1, kind: "left", atMs: before.events[0].atMs, naive: 1 }]);
  assert.deepEqual([before.samples, before.run], [[{ atMs: 7, records: 1, tombstones: 0 }], { id: "run", total: 2, made: 1, kill: 1 }]);
  await tab.reload();
  await open(tab, 1, "page-again");
  assert.deepEqual(await read(), before);
});

test("two tabs share all that either records, and each click has a number of its own", LIMIT, async (t) => {
  const another = await visitor(t);
  const [one, two] = [await another(), await another()];
  await Promise.all([one, two].map((tab) => tab.evaluate(() => Promise.all(Array.from({ length: 20 }, () => journal.click())))));
  await one.evaluate(async () => {
    await journal.attempt({ id: "1-semel-x", fate: "sent" });
    await journal.event("kill");
    await journal.sample({ atMs: 1, records: 1, tombstones: 1 });
    await journal.startRun({ id: "run", total: 0, made: 0 });
  });
  await until(() => two.evaluate(() => journal.run !== undefined), "the run is told");
  const all = (tab) => tab.evaluate(() => [[...journal.clicks.values()].sort((one, other) => one.n - other.n), [...journal.attempts], journal.events, journal.samples, journal.run]);
  const known = await all(one);
  assert.deepEqual(await all(two), known);
  assert.deepEqual(known[0].map(({ n }) => n), Array.from({ length: 40 }, (_, k) => k + 1));
  for (const tab of [1, 2]) assert.equal(known[0].filter((click) => click.tab === tab && click.page === `page-${tab}`).length, 20);
  assert.equal(await two.evaluate(() => told.filter(([kind]) => kind === "event").length), 1);
});

test("a run has exactly its number of clicks, whichever tabs make them, and there is one run at a time", LIMIT, async (t) => {
  const another = await visitor(t);
  const tabs = [await another(), await another()];
  const start = (id) => Promise.all(tabs.map((tab, k) => tab.evaluate((id) => journal.startRun({ id, total: 30, made: 0 }), `${id}-${k}`)));
  const make = (times) => Promise.all(tabs.map((tab) => tab.evaluate((times) => Promise.all(Array.from({ length: times }, () => journal.click({ ofRun: true }))), times)));
  assert.equal(await click(tabs[0]).then(({ run }) => run), undefined);
  assert.deepEqual(await make(1), [[undefined], [undefined]], "there is none");
  const isStarted = await start("one");
  assert.deepEqual(isStarted.toSorted(), [false, true]);
  const made = (await make(25)).flat().filter((clicked) => clicked !== undefined);
  assert.deepEqual(made.map(({ run }) => run.made).sort((one, other) => one - other), Array.from({ length: 30 }, (_, k) => k + 1));
  assert.ok(made.every(({ click }) => click.ofRun === `one-${isStarted.indexOf(true)}`));
  assert.ok((await start("two")).includes(true), "the next may begin");
  await make(2);
  await tabs[1].evaluate(() => journal.stopRun());
  assert.deepEqual(await make(1), [[undefined], [undefined]]);
  for (const tab of tabs) await until(() => tab.evaluate(() => journal.run.total === 4 && journal.run.made === 4), "it is stopped after what it made");
  assert.ok((await start("three")).includes(true));
});

test("a conditional change goes by the click on record, so of two tabs that want it one gets it", LIMIT, async (t) => {
  const another = await visitor(t);
  const tabs = [await another(), await another()];
  await click(tabs[0]);
  const wanted = await Promise.all(tabs.map((tab, k) => tab.evaluate((page) => journal.change(1, { page, semel: "mine" }, (click) => click.semel === "waiting"), `page-new-${k}`)));
  assert.deepEqual(wanted.toSorted(), [false, true]);
  const page = `page-new-${wanted.indexOf(true)}`;
  for (const tab of tabs) await until(async () => (await clicks(tab))[0].page === page, "it is told");
  // A tab with a wrong copy of the click learns the truth when it asks for a change, even if no other tab tells it.
  const stale = await tabs[1].evaluate(async () => {
    journal.clicks.set(1, { ...journal.clicks.get(1), semel: "waiting" });
    const isChanged = await journal.change(1, { semel: "answered" }, () => false);
    return [isChanged, journal.clicks.get(1).semel];
  });
  assert.deepEqual(stale, [false, "mine"]);
  assert.equal(await tabs[0].evaluate(() => journal.change(1, { naive: "answered" })), true);
});

test("a change of a click that is not on record changes nothing, and does not make the click", LIMIT, async (t) => {
  const tab = await (await visitor(t))();
  assert.deepEqual(await tab.evaluate(async () => [await journal.change(7, { semel: "answered" }), journal.clicks.size, told]), [false, 0, []]);
  assert.equal((await click(tab)).click.n, 1);
});

test("the attempts of a click are found by lane in their last state, also after a reload and in the other tab", LIMIT, async (t) => {
  const another = await visitor(t);
  const [one, two] = [await another(), await another()];
  await one.evaluate(async () => {
    for (const [id, click, lane, sentMs] of [["1-semel-a", 1, "semel", 2], ["1-naive-a", 1, "naive", 2], ["1-semel-b", 1, "semel", 1], ["2-naive-a", 2, "naive", 1]]) {
      await journal.attempt({ id, click, lane, sentMs, fate: "sent", isCopy: false });
    }
    await journal.attempt({ id: "1-semel-a", click: 1, lane: "semel", sentMs: 2, fate: "lost", isCopy: false });
  });
  const read = (tab) => tab.evaluate(() => [1, 2, 3].map((n) => Object.values(journal.attemptsOf(n)).map((lane) => lane.map(({ id, fate }) => `${id} ${fate}`))));
  const all = [[["1-naive-a sent"], ["1-semel-b sent", "1-semel-a lost"]], [["2-naive-a sent"], []], [[], []]];
  assert.deepEqual(await read(one), all);
  await until(async () => JSON.stringify(await read(two)) === JSON.stringify(all), "the other tab has them");
  await one.reload();
  await open(one, 1, "page-again");
  assert.deepEqual(await read(one), all);
});

test("an account takes a limited number of clicks, and a run that finds no room is over", LIMIT, async (t) => {
  const tab = await (await visitor(t))();
  await tab.evaluate((most) => Promise.all(Array.from({ length: most - 1 }, () => journal.click())), CLICKS_MAX);
  await tab.evaluate(() => journal.startRun({ id: "run", total: 10, made: 0 }));
  assert.equal((await tab.evaluate(() => journal.click({ ofRun: true }))).click.n, CLICKS_MAX);
  assert.deepEqual(await tab.evaluate(() => journal.click({ ofRun: true })), { isFull: true });
  assert.equal(await tab.evaluate(() => journal.click({ ofRun: true })), undefined);
  assert.deepEqual(await tab.evaluate(() => journal.click()), { isFull: true });
  assert.deepEqual(await tab.evaluate(() => [journal.clicks.size, journal.run]), [CLICKS_MAX, { id: "run", total: 1, made: 1 }]);
  await tab.reload();
  await open(tab, 1, "page-again");
  assert.deepEqual(await tab.evaluate(() => journal.run), { id: "run", total: 1, made: 1 });
});

test("a sample is kept only if its counts differ from the last one, and 2,000 at most are kept", LIMIT, async (t) => {
  const tab = await (await visitor(t))();
  const kept = await tab.evaluate(async () => {
    for (const [atMs, records, tombstones] of [[1, 0, 0], [2, 0, 0], [3, 1, 0], [4, 1, 0], [5, 1, 1], [6, 0, 0]]) await journal.sample({ atMs, records, tombstones });
    return journal.samples.map(({ atMs }) => atMs);
  });
  assert.deepEqual(kept, [1, 3, 5, 6]);
  const full = await tab.evaluate(async () => {
    journal.samples = Array.from({ length: 2_000 }, (_, atMs) => ({ atMs, records: atMs, tombstones: 0 }));
    await journal.sample({ atMs: 5_000, records: 0, tombstones: 1 });
    return journal.samples.length;
  });
  assert.equal(full, 2_000, "and not without end");
});

test("what other tabs tell while a journal loads counts as newer than what it reads, and none of it is lost", LIMIT, async (t) => {
  const another = await visitor(t);
  const [one, two] = [await another(), await another()];
  await click(one);
  await one.evaluate(() => journal.sample({ atMs: 1, records: 1, tombstones: 0 }));
  await two.evaluate(async () => {
    // This tab knows newer values than the database that it is about to read.
    journal.clicks.set(1, { ...journal.clicks.get(1), semel: "answered" });
    journal.attempts.set("1-semel-x", { id: "1-semel-x", fate: "lost" });
    journal.samples = [{ atMs: 1, records: 1, tombstones: 0 }, { atMs: 2, records: 0, tombstones: 1 }];
    journal.events = [{ at: 9, kind: "kill" }];
    journal.run = { id: "newer" };
  });
  await one.evaluate(async () => {
    await journal.attempt({ id: "1-semel-y", fate: "sent" });
    await journal.startRun({ id: "older", total: 0, made: 0 });
    await journal.event("left");
  });
  await until(() => two.evaluate(() => journal.run.id === "older"), "it is told");
  const [semel, attempts, samples, events, run] = await two.evaluate(async () => {
    journal.run = { id: "newer" };
    await journal.load();
    return [journal.clicks.get(1).semel, [...journal.attempts.keys()].sort(), journal.samples.map(({ atMs }) => atMs), journal.events.map(({ at }) => at), journal.run.id];
  });
  assert.deepEqual([semel, attempts, samples, events, run], ["answered", ["1-semel-x", "1-semel-y"], [1, 2], [1, 9], "newer"]);
});

test("an event that is told after it was read is not told again", LIMIT, async (t) => {
  const tab = await (await visitor(t))();
  await tab.evaluate(() => journal.event("kill"));
  await tab.evaluate(() => {
    const channel = new BroadcastChannel("semel lab a");
    channel.postMessage(["event", journal.events[0]]);
    channel.postMessage(["event", { ...journal.events[0], at: 2 }]);
  });
  await until(() => tab.evaluate(() => journal.events.length === 2), "the other one is told");
  assert.deepEqual(await tab.evaluate(() => told.map(([, { at }]) => at)), [1, 2]);
});

test("a journal that is left tells the other tabs, records nothing more, and its database can be deleted", LIMIT, async (t) => {
  const another = await visitor(t);
  const [one, two] = [await another(), await another()];
  await click(one);
  const result = await one.evaluate(async () => {
    await journal.leave();
    return new Promise((resolve) => {
      const request = indexedDB.deleteDatabase("semel lab a");
      for (const outcome of ["success", "blocked", "error"]) request.addEventListener(outcome, () => resolve(outcome));
    });
  });
  assert.equal(result, "success");
  // The journal takes nothing more, and its promises stay pending: neither an answer nor an error may trigger anything.
  const taken = await one.evaluate(() => {
    const all = [journal.click(), journal.change(1, {}), journal.attempt({ id: "1-semel-x" }), journal.event("kill"), journal.startRun({}), journal.stopRun()];
    const settled = all.map((each) => each.then(() => "taken", String));
    return Promise.race([...settled, new Promise((resolve) => setTimeout(() => resolve("nothing"), 200))]);
  });
  assert.equal(taken, "nothing");
  await until(() => two.evaluate(() => told.some(([kind]) => kind === "over")), "the other is told");
});
