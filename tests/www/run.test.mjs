// Runs of clicks by several pages, and what becomes of clicks whose page is gone.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { RUN_INTERVAL_MS } from "../../www/lab/limits.js";
import { World } from "./world.mjs";

/** So often a page looks for what others have left. */
const LOOK_MS = 2_000;
const RUN_LOCK = "semel lab a run";

const numbers = (from, to) => Array.from({ length: to - from + 1 }, (_, k) => from + k);
const made = (world, lane = "semel") => world.handed[lane].map(([, n]) => n);
const makers = (world) => [...new Set(world.handed.semel.map(([page]) => page))];

test("a page can be seen by all once it has entered, for as long as it is there", async () => {
  const world = new World();
  const page = await world.open();
  assert.deepEqual(world.lock("semel lab a page page-1"), { held: ["page-1"], waiting: [] });
  await world.clock.pass(60_000);
  assert.deepEqual(world.lock("semel lab a page page-1").held, ["page-1"]);
  page.die();
  assert.deepEqual(world.lock("semel lab a page page-1").held, []);
});

test("a page that can't lock can't enter", async () => {
  const world = new World();
  world.request = () => Promise.reject(new Error("no locks here"));
  await assert.rejects(world.open(), /no locks here/);
});

test("a click is on record before both clients make it, once each; without room there is none", async () => {
  const world = new World();
  const page = await world.open();
  const { click } = await page.run.click();
  assert.equal(click.n, 1);
  assert.deepEqual(world.log, [["click", 1], ["naive", 1], ["semel", 1]]);
  page.journal.click = async () => undefined;
  assert.equal(await page.run.click(), undefined);
  assert.deepEqual(world.handed, { naive: [["page-1", 1]], semel: [["page-1", 1]] });
});

describe("a run", () => {
  test("makes its clicks at its interval, each once by each client, and then no more", async () => {
    const world = new World();
    const page = await world.open();
    await page.journal.startRun({ total: 5 });
    const driving = page.run.drive();
    await world.clock.pass(RUN_INTERVAL_MS - 1);
    assert.deepEqual(made(world), [1]);
    await world.clock.pass(1);
    assert.deepEqual(made(world), [1, 2]);
    await world.clock.pass(60_000);
    await driving;
    for (const lane of ["naive", "semel"]) assert.deepEqual(made(world, lane), numbers(1, 5));
    assert.deepEqual([...world.clicks.values()].map(({ atMs }) => atMs - world.clicks.get(1).atMs), numbers(0, 4).map((k) => k * RUN_INTERVAL_MS));
    assert.deepEqual(world.lock(RUN_LOCK), { held: [], waiting: [] });
    await page.run.drive();
    assert.equal(made(world).length, 5);
  });

  test("is asked for no lock where there is none, or none left", async () => {
    const world = new World();
    const asked = [];
    const page = await world.open({ onrequest: (name) => asked.push(name) });
    asked.length = 0;
    await page.run.drive();
    await page.journal.startRun({ total: 0 });
    await page.run.drive();
    assert.deepEqual(asked, []);
  });

  test("is driven by one page at a time; when that is gone, another makes the rest at once", async () => {
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

  test("of a page that is told of every click waits in one place, not in one for each", async () => {
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
    // The next one is driven as well.
    await pages[2].journal.startRun({ total: 10 });
    await world.clock.pass(60_000);
    assert.deepEqual(made(world), numbers(1, 60));
  });

  test("that is started while the last one's page lets go is not missed", async () => {
    const world = new World();
    const page = await world.open();
    await page.journal.startRun({ total: 1 });
    page.run.drive();
    // Its last look finds nothing left.
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

  test("kills the server once, after its click was handed over, and waits for that", async () => {
    const world = new World();
    const page = await world.open({ kill: () => world.clock.sleep(500) });
    await page.journal.startRun({ total: 6, kill: 3 });
    page.run.drive();
    await world.clock.pass(2 * RUN_INTERVAL_MS + 499);
    assert.deepEqual([world.log.at(-2), world.log.at(-1)], [["semel", 3], ["kill"]]);
    await world.clock.pass(60_000);
    assert.deepEqual([page.kills, made(world)], [1, numbers(1, 6)]);
  });

  test("crashes its page once, after its click was handed over, and the page makes no more though it takes a while to go", async () => {
    const world = new World();
    const crash = (page) => world.clock.sleep(500).then(() => page.die());
    const one = await world.open({ crash });
    one.journal.onchange = (kind) => kind === "run" && one.run.drive();
    await one.journal.startRun({ total: 6, crash: 3 });
    await world.clock.pass(60_000);
    assert.deepEqual([world.log.at(-2), world.log.at(-1)], [["semel", 3], ["crash"]]);
    // It is loaded again, and Semel has stored what it made.
    for (const n of numbers(1, 3)) world.stored.add(n);
    const again = await world.open({ tab: 1, crash });
    again.run.watch();
    await world.clock.pass(60_000);
    assert.deepEqual([one.crashes, again.crashes, made(world)], [1, 0, numbers(1, 6)]);
    assert.deepEqual(world.handed.naive.map(([page]) => page), [...Array(3).fill("page-1"), ...Array(3).fill("page-2")]);
  });

  test("that is being crashed is not driven by another page before it is gone", async () => {
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

  test("kills and crashes after the same click, in this order; without either it does neither", async () => {
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

  test("that is left by a page that is gone is found by the next look of another", async () => {
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

/** A page that made clicks and is gone, and another that looks. `prepare` has its say in between. */
async function left({ clicks = 1, prepare = () => {} } = {}) {
  const world = new World();
  const one = await world.open();
  for (let k = 0; k < clicks; k += 1) await one.run.click();
  await prepare(world, one);
  const two = await world.open();
  one.die();
  world.handed.naive.length = 0;
  world.handed.semel.length = 0;
  world.log.length = 0;
  return { world, one, two };
}

const look = (world) => world.clock.pass(LOOK_MS);

describe("what a page has left that is gone", () => {
  test("is told once, with how much each client had open, and the naive client has forgotten it", async () => {
    const { world, two } = await left({
      clicks: 4,
      prepare: async (_, { journal }) => {
        await journal.change(1, { naive: "answered", semel: "answered", semelMs: 5 });
        await journal.change(2, { naive: "answered" });
        await journal.change(3, { semel: "paused" });
      },
    });
    const atMs = world.clock.now();
    two.run.watch();
    await world.clock.pass(0);
    const told = [{ kind: "left", by: 2, naive: 2, semel: 2, from: 1 }];
    assert.deepEqual(world.events, told);
    const states = [...world.clicks.values()].map(({ naive, naiveMs, isLeft }) => [naive, naiveMs, isLeft]);
    assert.deepEqual(states, [["answered", undefined, undefined], ["answered", undefined, true], ["forgotten", atMs, undefined], ["forgotten", atMs, true]]);
    await look(world);
    await look(world);
    assert.deepEqual(world.events, told);
    assert.equal(world.clicks.get(4).naiveMs, atMs);
  });

  test("counts what Semel has gone on with since then, once", async () => {
    const { world, two } = await left({ clicks: 2, prepare: (_, { journal }) => journal.change(1, { naive: "answered", semel: "answered", isRecovered: true }) });
    two.run.watch();
    await look(world);
    assert.deepEqual(world.events, [{ kind: "left", by: 2, naive: 1, semel: 2, from: 1 }]);
  });

  test("is told of the tab that left it, and of each apart, whoever was gone before", async () => {
    const world = new World();
    const pages = [await world.open(), await world.open(), await world.open()];
    for (const page of pages) await page.run.click();
    await pages[0].journal.change(1, { naive: "answered", semel: "answered" });
    const two = await world.open();
    for (const page of pages) page.die();
    two.run.watch();
    await look(world);
    assert.deepEqual(world.events, [2, 3].map((from) => ({ kind: "left", by: 4, naive: 1, semel: 1, from })));
  });

  test("is nothing where all is answered, or its page is there, or it is this one", async () => {
    const world = new World();
    const [one, two] = [await world.open(), await world.open()];
    for (const page of [one, two, one]) await page.run.click();
    await one.journal.change(1, { naive: "answered", semel: "answered" });
    await one.journal.change(3, { naive: "answered", semel: "answered" });
    one.run.watch();
    two.run.watch();
    for (let k = 0; k < 3; k += 1) await look(world);
    two.die();
    const three = await world.open();
    await one.journal.change(2, { naive: "answered", semel: "answered" });
    three.run.watch();
    for (let k = 0; k < 3; k += 1) await look(world);
    assert.deepEqual([world.events, world.handed.semel.length, world.log.filter(([what]) => what === "ask")], [[], 3, []]);
  });

  test("is not a click of a page that came while this one looked round", async () => {
    const { world, two } = await left();
    let three;
    world.onquery = async () => {
      if (three) return;
      three = await world.open();
      await three.run.click();
    };
    two.run.watch();
    for (let k = 0; k < 3; k += 1) await look(world);
    assert.deepEqual([world.clicks.get(2).naive, world.clicks.get(2).page, world.clicks.get(2).isLeft], ["waiting", three.name, undefined]);
  });

  test("is as it is on record: an answer that its page could not tell any more stands", async () => {
    const { world, two } = await left({
      prepare: async (world, { journal }) => {
        await world.open();
        world.isTold = false;
        await journal.change(1, { naive: "answered", naiveMs: 7 });
        world.isTold = true;
      },
    });
    const witness = world.pages[1];
    assert.equal(witness.journal.clicks.get(1).naive, "waiting");
    witness.run.watch();
    await look(world);
    assert.deepEqual([world.clicks.get(1).naive, world.clicks.get(1).naiveMs], ["answered", 7]);
    assert.equal(witness.journal.clicks.get(1).naive, "answered", "and it is known then");
    assert.ok(two);
  });
});

describe("a click whose page is gone", () => {
  for (const [name, prepare, isHanded] of [
    ["neither stored nor logged is handed to Semel", () => {}, true],
    ["stored goes on by itself", (world) => world.stored.add(1), false],
    ["logged as executed is made", (world) => world.logged.set("1-semel-x", "executed"), false],
    ["logged as replayed is made", (world) => world.logged.set("1-semel-x", "replayed"), false],
    ["logged as both is made", (world) => world.logged.set("1-semel-x", "attempt-expired").set("1-semel-y", "executed"), false],
    ["stored and logged goes on by itself", (world) => world.stored.add(1) && world.logged.set("1-semel-x", "executed"), false],
    ["logged as come too late is not made", (world) => world.logged.set("1-semel-x", "attempt-expired"), true],
    ["logged for the naive client alone is not made", (world) => world.logged.set("1-naive-x", "executed"), true],
    ["is not another one whose number begins the same", (world) => world.logged.set("11-semel-x", "executed") && world.stored.add(11), true],
  ]) {
    test(name, async () => {
      const { world, two } = await left({ prepare });
      two.run.watch();
      for (let k = 0; k < 5; k += 1) await look(world);
      assert.deepEqual(world.handed, { naive: [], semel: isHanded ? [["page-2", 1]] : [] });
      const { semel, semelMs, page } = world.clicks.get(1);
      const isMade = world.logged.size > 0 && !isHanded && !world.stored.has(1);
      assert.deepEqual([semel, semelMs, page], [isMade ? "answered" : "waiting", isMade ? world.clock.now() - 4 * LOOK_MS : undefined, isHanded ? "page-2" : "page-1"]);
    });
  }

  test("is handed over on the second look, not on the first", async () => {
    const { world, two } = await left();
    two.run.watch();
    await world.clock.pass(LOOK_MS - 1);
    assert.deepEqual([world.handed.semel, world.log], [[], []]);
    // By now it is in the store.
    world.stored.add(1);
    await look(world);
    assert.deepEqual(world.handed.semel, []);
    world.stored.delete(1);
    await look(world);
    assert.deepEqual(world.handed.semel, [["page-2", 1]]);
  });

  test("is not handed over by a page that sees it for the first time, though another has seen it before", async () => {
    const { world, two } = await left();
    two.run.watch();
    await world.clock.pass(100);
    const three = await world.open();
    three.run.watch();
    await world.clock.pass(100);
    assert.deepEqual(world.handed.semel, []);
    two.die();
    await world.clock.pass(LOOK_MS - 101);
    assert.deepEqual(world.handed.semel, []);
    await world.clock.pass(1);
    assert.deepEqual(world.handed.semel, [["page-3", 1]]);
  });

  test("waits while the server is down: whether it is made can't be known then", async () => {
    const { world, two } = await left();
    world.isDown = true;
    two.run.watch();
    for (let k = 0; k < 3; k += 1) await look(world);
    assert.deepEqual([world.handed.semel, world.clicks.get(1).page], [[], "page-1"]);
    world.isDown = false;
    await look(world);
    assert.deepEqual(world.handed.semel, [["page-2", 1]]);
  });

  test("is looked for in the store first and in the log then: what leaves the store in between is in the log", async () => {
    const { world, two } = await left({ prepare: (world) => world.stored.add(1) });
    two.run.watch();
    await world.clock.pass(LOOK_MS - 1);
    world.log.push = (...entries) => {
      for (const [what] of entries) {
        if (what !== "stored" && what !== "ask") continue;
        // It is executed and settled between the two, whichever is first.
        if (world.stored.has(1)) {
          queueMicrotask(() => {
            world.stored.delete(1);
            world.logged.set("1-semel-x", "executed");
          });
        }
      }
      return Array.prototype.push.apply(world.log, entries);
    };
    for (let k = 0; k < 3; k += 1) await look(world);
    assert.deepEqual(world.handed.semel, []);
    assert.deepEqual(world.log.slice(0, 2), [["stored"], ["ask"]]);
    assert.equal(world.clicks.get(1).semel, "answered");
  });

  test("is not handed over, nor its answer changed, where Semel has recovered it meanwhile", async () => {
    for (const isMade of [true, false]) {
      const { world, two } = await left();
      two.run.watch();
      await world.clock.pass(LOOK_MS - 1);
      if (isMade) world.logged.set("1-semel-x", "executed");
      // Another page has it on record, and this one has not been told.
      world.clicks.set(1, { ...world.clicks.get(1), semel: "answered", semelMs: 7 });
      await look(world);
      assert.deepEqual([world.handed.semel, world.clicks.get(1).semelMs], [[], 7]);
    }
  });

  test("is handed over once by two pages that go on at once, whether they are told of each other or not", async () => {
    for (const isTold of [true, false]) {
      const { world, two } = await left({ clicks: 3 });
      const three = await world.open();
      two.run.watch();
      three.run.watch();
      world.isTold = isTold;
      for (let k = 0; k < 4; k += 1) await look(world);
      assert.deepEqual(made(world).toSorted(), [1, 2, 3]);
      assert.equal(makers(world).length, 1);
    }
  });

  test("is left again when the page is gone that it was handed to, and found on a second look again", async () => {
    const { world, two } = await left();
    const three = await world.open();
    two.run.watch();
    three.run.watch();
    await world.clock.pass(LOOK_MS + 1);
    assert.deepEqual(made(world).length, 1);
    const [[maker]] = world.handed.semel;
    const [gone, other] = maker === two.name ? [two, three] : [three, two];
    gone.die();
    await look(world);
    assert.equal(made(world).length, 1, "it may be on its way into the store");
    await look(world);
    assert.deepEqual(world.handed.semel, [[gone.name, 1], [other.name, 1]]);
    assert.equal(world.clicks.get(1).page, other.name);
  });

  test("is left alone where another page that was gone at once had it in between", async () => {
    const { world, two } = await left();
    two.run.watch();
    await world.clock.pass(LOOK_MS - 1);
    world.clicks.set(1, { ...world.clicks.get(1), page: "page-that-came-and-went" });
    await world.clock.pass(1);
    assert.deepEqual(world.handed.semel, []);
    for (let k = 0; k < 3; k += 1) await look(world);
    assert.deepEqual(world.handed.semel, [["page-2", 1]]);
  });
});
