// Tests clicks that are still open when their page is gone: how another page finds them, tells of them and goes on with them.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { World } from "./world.mjs";

/** How often a page looks for what other pages left. */
const LOOK_MS = 2_000;

const made = (world) => world.handed.semel.map(([, n]) => n);
const makers = (world) => [...new Set(world.handed.semel.map(([page]) => page))];

/** A page that made clicks and is gone, and another page that looks for them. `prepare` runs in between. */
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

describe("clicks that a closed page has left", () => {
  test("are reported once, with how many each client had open, and the naive client has forgotten them", async () => {
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

  test("are reported if only the naive client had one open", async () => {
    const { world, two } = await left({ prepare: (_, { journal }) => journal.change(1, { semel: "answered" }) });
    two.run.watch();
    await look(world);
    assert.deepEqual([world.events, world.clicks.get(1).naive], [[{ kind: "left", by: 2, naive: 1, semel: 0, from: 1 }], "forgotten"]);
  });

  test("are found while a run is under way on another page", async () => {
    const { world, one, two } = await left();
    const three = await world.open();
    await three.journal.startRun({ total: 1_000 });
    for (const page of [three, two]) page.run.watch();
    await look(world);
    await look(world);
    assert.ok(world.run.made < 1_000);
    assert.equal(world.events.length, 1);
    assert.ok(world.clicks.get(1).page !== one.name, "Semel has it again");
  });

  test("are not looked for again before the last look is over", async () => {
    const { world, two } = await left();
    let looks = 0;
    world.onquery = () => ((looks += 1), new Promise(() => {}));
    two.run.watch();
    for (let k = 0; k < 5; k += 1) await look(world);
    assert.deepEqual([looks, world.lock("semel lab a go on")], [1, { held: ["page-2"], waiting: [] }]);
  });

  test("are reported together with those that Semel has recovered since", async () => {
    const { world, two } = await left({ clicks: 2, prepare: (_, { journal }) => journal.change(1, { naive: "answered", semel: "answered", isRecovered: true }) });
    two.run.watch();
    await look(world);
    assert.deepEqual(world.events, [{ kind: "left", by: 2, naive: 1, semel: 2, from: 1 }]);
  });

  test("are reported for each closed tab apart, and not for a tab that left nothing open", async () => {
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

  test("are not reported if all are answered, or their page is open, or it is this page", async () => {
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

  test("do not include a click of a page that opened while this page was looking", async () => {
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

  test("are taken as recorded: an answer that this page was not told of stands", async () => {
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
    ["is handed to Semel if it is neither stored nor logged", () => {}, true],
    ["goes on by itself if it is stored", (world) => world.stored.add(1), false],
    ["counts as answered if it is logged as executed", (world) => world.logged.set("1-semel-x", "executed"), false],
    ["counts as answered if it is logged as replayed", (world) => world.logged.set("1-semel-x", "replayed"), false],
    ["counts as answered if one attempt is logged as expired and another as executed", (world) => world.logged.set("1-semel-x", "attempt-expired").set("1-semel-y", "executed"), false],
    ["goes on by itself if it is both stored and logged", (world) => world.stored.add(1) && world.logged.set("1-semel-x", "executed"), false],
    ["is handed to Semel if it is logged only as expired", (world) => world.logged.set("1-semel-x", "attempt-expired"), true],
    ["is handed to Semel if only the attempt of the naive client is logged", (world) => world.logged.set("1-naive-x", "executed"), true],
    ["is not handed to Semel if the log is full, since it may have been made", (world) => (world.isFull = true), false],
    ["is handed to Semel if only a click whose number begins the same is stored and logged", (world) => world.logged.set("11-semel-x", "executed") && world.stored.add(11), true],
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

  test("is handed over at the second look, not at the first", async () => {
    const { world, two } = await left();
    two.run.watch();
    await world.clock.pass(LOOK_MS - 1);
    assert.deepEqual([world.handed.semel, world.log], [[], []]);
    // By the second look, the click is in the store.
    world.stored.add(1);
    await look(world);
    assert.deepEqual(world.handed.semel, []);
    world.stored.delete(1);
    await look(world);
    assert.deepEqual(world.handed.semel, [["page-2", 1]]);
  });

  test("is not handed over at a page's first look, though another page has seen it before", async () => {
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

  test("waits while the server is down", async () => {
    const { world, two } = await left();
    world.isDown = true;
    two.run.watch();
    for (let k = 0; k < 3; k += 1) await look(world);
    assert.deepEqual([world.handed.semel, world.clicks.get(1).page], [[], "page-1"]);
    world.isDown = false;
    await look(world);
    assert.deepEqual(world.handed.semel, [["page-2", 1]]);
  });

  test("is looked for again if a look fails", async (t) => {
    const told = t.mock.method(console, "error", () => {});
    const { world, two } = await left();
    world.unreadable = 2;
    two.run.watch();
    for (let k = 0; k < 3; k += 1) await look(world);
    assert.deepEqual(world.handed.semel, [["page-2", 1]]);
    assert.equal(told.mock.callCount(), 2);
  });

  test("is looked for in the store first and then in the log, so that one that is settled in between is found", async () => {
    const { world, two } = await left({ prepare: (world) => world.stored.add(1) });
    two.run.watch();
    await world.clock.pass(LOOK_MS - 1);
    world.log.push = (...entries) => {
      for (const [what] of entries) {
        if (what !== "stored" && what !== "ask") continue;
        // The click is executed and settled between the two, whichever of them comes first.
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

  test("is not handed over, and its answer stays, if another page has recorded its answer meanwhile", async () => {
    for (const isMade of [true, false]) {
      const { world, two } = await left();
      two.run.watch();
      await world.clock.pass(LOOK_MS - 1);
      if (isMade) world.logged.set("1-semel-x", "executed");
      // Another page has recorded the answer, and this page has not been told.
      world.clicks.set(1, { ...world.clicks.get(1), semel: "answered", semelMs: 7 });
      await look(world);
      assert.deepEqual([world.handed.semel, world.clicks.get(1).semelMs], [[], 7]);
    }
  });

  test("is handed over once if two pages look at once, whether they are told of each other or not", async () => {
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

  test("is found again, on a second look, when the page that it was handed to is gone", async () => {
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

  test("is not handed over at once if another page that is gone had it in between", async () => {
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
