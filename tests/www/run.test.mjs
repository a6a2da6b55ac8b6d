// Tests clicks, and runs of clicks that several pages drive.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { RUN_INTERVAL_MS } from "../../www/lab/limits.js";
import { World } from "./world.mjs";

const RUN_LOCK = "semel lab a run";

const numbers = (from, to) => Array.from({ length: to - from + 1 }, (_, k) => from + k);
const made = (world, lane = "semel") => world.handed[lane].map(([, n]) => n);
const makers = (world) => [...new Set(world.handed.semel.map(([page]) => page))];

test("a page that has entered holds its own lock until it is gone", async () => {
  const world = new World();
  const page = await world.open();
  assert.deepEqual(world.lock("semel lab a page page-1"), { held: ["page-1"], waiting: [] });
  await world.clock.pass(60_000);
  assert.deepEqual(world.lock("semel lab a page page-1").held, ["page-1"]);
  page.die();
  assert.deepEqual(world.lock("semel lab a page page-1").held, []);
});

test("a page that can't get its lock can't enter", async () => {
  const world = new World();
  world.request = () => Promise.reject(new Error("no locks here"));
  await assert.rejects(world.open(), /no locks here/);
});

test("a click is recorded before each client makes it once, and none is made if there is no room", async () => {
  const world = new World();
  const page = await world.open();
  const { click } = await page.run.click();
  assert.equal(click.n, 1);
  assert.deepEqual(world.log, [["click", 1], ["naive", 1], ["semel", 1]]);
  world.clicksMax = 1;
  assert.deepEqual(await page.run.click(), { isFull: true });
  assert.deepEqual(world.handed, { naive: [["page-1", 1]], semel: [["page-1", 1]] });
});

describe("a run", () => {
  test("makes its clicks at its interval, each once by each client, and then stops", async () => {
    const world = new World();
    const page = await world.open();
    await page.journal.startRun({ total: 5 });
    let isOver = false;
    const driving = page.run.drive().then(() => (isOver = true));
    await world.clock.pass(RUN_INTERVAL_MS - 1);
    assert.deepEqual(made(world), [1]);
    await world.clock.pass(1);
    assert.deepEqual([made(world), isOver], [[1, 2], false]);
    await world.clock.pass(60_000);
    await driving;
    for (const lane of ["naive", "semel"]) assert.deepEqual(made(world, lane), numbers(1, 5));
    assert.deepEqual([...world.clicks.values()].map(({ atMs }) => atMs - world.clicks.get(1).atMs), numbers(0, 4).map((k) => k * RUN_INTERVAL_MS));
    assert.deepEqual(world.lock(RUN_LOCK), { held: [], waiting: [] });
    await page.run.drive();
    assert.equal(made(world).length, 5);
  });

  test("that finds no room because of other clicks reports that once", async () => {
    const world = new World();
    const page = await world.open();
    world.clicksMax = 3;
    await page.journal.startRun({ total: 3 });
    const driving = page.run.drive();
    await page.run.click();
    await world.clock.pass(60_000);
    await driving;
    assert.deepEqual([made(world), page.fulls], [numbers(1, 3), 1]);
    // A run that makes all its clicks reports nothing.
    world.clicksMax = 5;
    await page.journal.startRun({ total: 2 });
    await world.clock.pass(60_000);
    page.run.drive();
    await world.clock.pass(60_000);
    assert.deepEqual([made(world), page.fulls], [numbers(1, 5), 1]);
  });

  test("that does not exist, or has no clicks left, asks for no lock", async () => {
    const world = new World();
    const asked = [];
    const page = await world.open({ onrequest: (name) => asked.push(name) });
    asked.length = 0;
    await page.run.drive();
    await page.journal.startRun({ total: 0 });
    await page.run.drive();
    assert.deepEqual(asked, []);
  });

  test("is driven by one page at a time, and by another at once when that page is gone", async () => {
    const world = new World();
    const [one, two] = [await world.open(), await world.open()];
    await one.journal.startRun({ total: 20 });
    one.run.drive();
    two.run.drive();
    await world.clock.pass(9 * RUN_INTERVAL_MS);
    assert.deepEqual([makers(world), made(world)], [["page-1"], numbers(1, 10)]);
    one.die();
    await world.clock.pass(60_000);
    assert.deepEqual([makers(world), made(world)], [["page-1", "page-2"], numbers(1, 20)]);
  });

  test("has each page wait for its lock once, not once for each click", async () => {
    const world = new World();
    const pages = [await world.open(), await world.open(), await world.open()];
    for (const page of pages) page.journal.onchange = (kind) => kind === "run" && page.run.drive();
    await pages[0].journal.startRun({ total: 50 });
    await world.clock.pass(20 * RUN_INTERVAL_MS);
    const { held, waiting } = world.lock(RUN_LOCK);
    assert.equal(held.length, 1);
    assert.deepEqual(waiting.toSorted(), ["page-1", "page-2", "page-3"]);
    await world.clock.pass(60_000);
    assert.deepEqual(made(world), numbers(1, 50));
    assert.deepEqual(world.lock(RUN_LOCK), { held: [], waiting: [] });
    // The next run is driven as well.
    await pages[2].journal.startRun({ total: 10 });
    await world.clock.pass(60_000);
    assert.deepEqual(made(world), numbers(1, 60));
  });

  test("that is started just as the page of the last one releases the lock is not missed", async () => {
    const world = new World();
    const page = await world.open();
    await page.journal.startRun({ total: 1 });
    page.run.drive();
    // The page's second look for a click finds none left. At that moment, the next run is started.
    const { click } = page.journal;
    let looks = 0;
    page.journal.click = async function (...options) {
      const clicked = await click.apply(page.journal, options);
      if ((looks += 1) === 2) {
        await page.journal.startRun({ total: 3 });
        page.run.drive();
      }
      return clicked;
    };
    await world.clock.pass(60_000);
    assert.deepEqual(made(world), numbers(1, 4));
  });

  test("kills the server once, after its click was handed over, and waits for the kill", async () => {
    const world = new World();
    const page = await world.open({ kill: () => world.clock.sleep(500) });
    await page.journal.startRun({ total: 6, kill: 3 });
    page.run.drive();
    await world.clock.pass(2 * RUN_INTERVAL_MS + 499);
    assert.deepEqual([world.log.at(-2), world.log.at(-1)], [["semel", 3], ["kill"]]);
    await world.clock.pass(60_000);
    assert.deepEqual([page.kills, made(world)], [1, numbers(1, 6)]);
  });

  test("crashes its page once, after its click was handed over, and that page makes no more clicks until it is gone", async () => {
    const world = new World();
    const crash = (page) => world.clock.sleep(500).then(() => page.die());
    const one = await world.open({ crash });
    one.journal.onchange = (kind) => kind === "run" && one.run.drive();
    await one.journal.startRun({ total: 6, crash: 3 });
    await world.clock.pass(60_000);
    assert.deepEqual([world.log.at(-2), world.log.at(-1)], [["semel", 3], ["crash"]]);
    // The page is loaded again, and Semel has stored the clicks that it made.
    for (const n of numbers(1, 3)) world.stored.add(n);
    const again = await world.open({ tab: 1, crash });
    again.run.watch();
    await world.clock.pass(60_000);
    assert.deepEqual([one.crashes, again.crashes, made(world)], [1, 0, numbers(1, 6)]);
    assert.deepEqual(world.handed.naive.map(([page]) => page), [...Array(3).fill("page-1"), ...Array(3).fill("page-2")]);
  });

  test("whose page is being crashed is not driven by another page before that page is gone", async () => {
    const world = new World();
    const one = await world.open({ crash: (page) => world.clock.sleep(500).then(() => page.die()) });
    const two = await world.open();
    await one.journal.startRun({ total: 6, crash: 3 });
    one.run.drive();
    two.run.drive();
    await world.clock.pass(2 * RUN_INTERVAL_MS + 499);
    assert.deepEqual(made(world), numbers(1, 3));
    await world.clock.pass(1);
    assert.deepEqual(made(world), numbers(1, 4));
  });

  test("kills before it crashes if both come after the same click, and does neither if neither is set", async () => {
    const world = new World();
    const page = await world.open({ crash: (page) => page.die() });
    await page.journal.startRun({ total: 6, kill: 2, crash: 2 });
    page.run.drive();
    await world.clock.pass(60_000);
    assert.deepEqual(world.log.slice(-3), [["semel", 2], ["kill"], ["crash"]]);
    const calm = new World();
    const other = await calm.open();
    await other.journal.startRun({ total: 6, kill: undefined, crash: undefined });
    other.run.drive();
    await calm.clock.pass(60_000);
    assert.deepEqual([other.kills, other.crashes, made(calm).length], [0, 0, 6]);
  });

  test("whose page is gone is found by another page that watches", async () => {
    const world = new World();
    const one = await world.open();
    await one.journal.startRun({ total: 10 });
    one.run.drive();
    await world.clock.pass(3 * RUN_INTERVAL_MS);
    one.die();
    const two = await world.open();
    two.run.watch();
    await world.clock.pass(60_000);
    assert.deepEqual(made(world).slice(0, 10), numbers(1, 10));
    assert.equal(world.run.made, 10);
  });
});
