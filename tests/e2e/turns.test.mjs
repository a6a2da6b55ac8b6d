// Which requests are committed together, and which have an object to themselves. The test makes the commits; `commits.test.mjs` has those of workerd.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { Turns } from "../../worker/turns.js";

const LIMIT = { timeout: 60_000 };

/** An object whose `log` has what ran and what was committed. `commit()` ends the commit that is under way; with an error, it fails. */
function object(many) {
  const log = [];
  let end;
  const turns = new Turns(
    () =>
      new Promise((resolve, reject) => {
        log.push("commit");
        end = (error) => (error === undefined ? resolve() : reject(error));
      }),
    many,
  );
  const commit = async (error) => {
    end(error);
    await turn();
  };
  const together = (name) => turns.together(() => log.push(name));
  return { log, turns, commit, together };
}

test("a request runs at once while no commit is under way", LIMIT, async () => {
  const { log, commit, together } = object();
  assert.equal(together("a"), 1, "what it returns is no promise");
  assert.deepEqual(log, ["a"], "it runs before anything else does");
  await turn();
  await commit();
  together("b");
  assert.deepEqual(log, ["a", "commit", "b"]);
});

test("requests that come during a commit are in the next one, all in one turn, in the order in which they came", LIMIT, async () => {
  const { log, commit, together } = object();
  for (const name of ["a", "b", "c"]) together(name);
  await turn();
  assert.deepEqual(log, ["a", "commit"]);
  together("d");
  await commit();
  assert.deepEqual(log, ["a", "commit", "b", "c", "d", "commit"]);
  together("e");
  await commit();
  assert.deepEqual(log.slice(6), ["e", "commit"]);
  await commit();
  assert.deepEqual(log.length, 8, "with nobody waiting nothing is committed");
});

/** An object that has asked for commits for so long without anybody waiting for them that hardly any turn asks for its own. */
async function seldomAsking() {
  const one = object();
  for (let vain = 0; vain < 16; vain += 1) {
    one.together("vain");
    await turn();
    await one.commit();
  }
  assert.deepEqual(one.log.splice(0), Array.from({ length: 16 }, () => ["vain", "commit"]).flat());
  return one;
}

test("if nobody has waited for commits for long, one turn in 16 asks for its own, and no request waits for the others", LIMIT, async () => {
  const { log, commit, together } = await seldomAsking();
  const names = Array.from({ length: 40 }, (_, number) => number);
  for (const name of names) {
    together(name);
    await turn();
    if (log.at(-1) === "commit") await commit();
  }
  assert.deepEqual(log.filter((name) => name !== "commit"), names);
  assert.deepEqual([log.indexOf("commit"), log.lastIndexOf("commit"), log.length], [16, 33, 42], "after the sixteenth, and after sixteen more");
});

test("once several requests have waited for a commit, every turn asks for its own again", LIMIT, async () => {
  const { log, commit, together } = await seldomAsking();
  for (let number = 1; number <= 16; number += 1) together(number);
  await turn();
  assert.deepEqual(log.slice(-2), [16, "commit"]);
  together("alone");
  await commit();
  assert.deepEqual(log.splice(0).slice(-2), ["alone", "commit"]);
  await commit();
  together("x");
  await turn();
  assert.deepEqual(log, ["x"], "one that waits is not several");
  for (let number = 2; number <= 16; number += 1) together(number);
  await turn();
  for (const name of ["a", "b"]) together(name);
  await commit();
  await commit();
  assert.deepEqual(log.splice(0).slice(-5), [16, "commit", "a", "b", "commit"]);
  together("y");
  await turn();
  assert.deepEqual(log, ["y", "commit"]);
  await commit();
});

test("a request with the object to itself leaves nobody waiting, even if the commit before it was not asked for", LIMIT, async () => {
  const { log, turns, together } = await seldomAsking();
  together("a");
  await turns.alone(async () => log.push("alone"));
  together("b");
  await turn();
  assert.deepEqual(log, ["a", "alone", "b"]);
});

test("a commit takes at most 256 waiting requests, and the others are in the next", LIMIT, async () => {
  const { log, commit, together } = object();
  for (let number = 0; number <= 300; number += 1) together(number);
  await turn();
  await commit();
  assert.equal(log.lastIndexOf("commit"), 258, "the first, its commit, 256 more and theirs");
  await commit();
  assert.deepEqual(log.filter((name) => name !== "commit"), Array.from({ length: 301 }, (_, number) => number));
});

test("the limit of a commit counts what callers bring, and what one caller brings is not split", LIMIT, async () => {
  const { asked, commit, bring } = objectOfMany();
  bring("first");
  const names = (count) => Array.from({ length: count }, (_, number) => number);
  for (const count of [200, 56, 1, 300, 255, 2]) bring(...names(count));
  await turn();
  for (let commits = 0; commits < 6; commits += 1) await commit();
  assert.deepEqual(asked.map((all) => all.split(",").length), [256, 300, 255, 2]);
});

/**
 * An object that is given the names of all callers at once, and returns each in capitals, or what `gives` returns. `bring(...names)` comes with
 * names.
 */
function objectOfMany(gives = (names) => names.map((name) => name.toUpperCase())) {
  const asked = [];
  const all = object((names) => {
    asked.push(names.join());
    return gives(names);
  });
  const bring = (...brought) => all.turns.together((given) => all.log.push((given ?? brought).join("+")), brought);
  return { ...all, asked, bring };
}

test("requests that are released together are asked for in one call, in the order in which they came", LIMIT, async () => {
  const { log, asked, commit, bring } = objectOfMany();
  for (const name of ["a", "b", "c", "d"]) bring(name);
  await turn();
  assert.deepEqual([asked, log], [[], ["a", "commit"]], "who comes alone is not");
  bring("e");
  await commit();
  assert.deepEqual([asked, log], [["b,c,d,e"], ["a", "commit", "B", "C", "D", "E", "commit"]]);
  bring("f");
  await commit();
  assert.deepEqual([asked.length, log.at(-2)], [1, "f"], "nor is who waited alone");
  await commit();
});

const broken = () => {
  throw new Error("the settings can't be read");
};

test("if the call for many gives nothing or fails, each request works by itself", LIMIT, async () => {
  for (const gives of [() => undefined, broken]) {
    const { log, asked, commit, bring } = objectOfMany(gives);
    for (const name of ["a", "b", "c"]) bring(name);
    await turn();
    await commit();
    assert.deepEqual([asked, log], [["b,c"], ["a", "commit", "b", "c", "commit"]]);
    await commit();
    bring("d", "e");
    await turn();
    await commit();
    assert.deepEqual([asked.at(-1), log.slice(-2)], ["d,e", ["d+e", "commit"]]);
    await commit();
  }
});

test("a caller that brings several gets as many results, alone or with others, and waits only during a commit", LIMIT, async () => {
  const { log, asked, commit, bring } = objectOfMany();
  bring("a", "b");
  assert.deepEqual([asked, log], [["a,b"], ["A+B"]]);
  bring("c");
  bring("d", "e", "f");
  bring("g", "h");
  await turn();
  await commit();
  assert.deepEqual([asked, log], [["a,b", "c,d,e,f,g,h"], ["A+B", "commit", "C", "D+E+F", "G+H", "commit"]]);
  await commit();
});

test("if one of those released together brings nothing, each works by itself", LIMIT, async () => {
  const { log, asked, turns, commit, bring } = objectOfMany();
  for (const name of ["a", "b"]) bring(name);
  turns.together((given) => log.push(given ?? "a batch"));
  bring("c");
  await turn();
  await commit();
  assert.deepEqual([asked, log], [[], ["a", "commit", "b", "a batch", "c", "commit"]]);
  await commit();
});

test("a request that fails rejects its own caller only, and a commit that fails holds up nobody", LIMIT, async () => {
  const { log, turns, commit, together } = object();
  together("a");
  const fails = turns.together(() => Promise.reject(new Error("broken")));
  const throws = turns.together(() => {
    throw new Error("thrown");
  });
  const other = together("b");
  await turn();
  await Promise.all([assert.rejects(fails, /broken/), assert.rejects(throws, /thrown/), commit(new Error("the disk is full")), other]);
  assert.deepEqual(log, ["a", "commit", "b", "commit"]);
  await commit();
  const last = together("c");
  await turn();
  await commit();
  await last;
  assert.deepEqual(log.slice(4), ["c", "commit"]);
});

test("a storage that throws when it is asked for a commit holds up nobody", LIMIT, async () => {
  const turns = new Turns(() => {
    throw new Error("the storage is broken");
  });
  const log = [];
  await Promise.all(["a", "b", "c"].map((name) => turns.together(() => log.push(name))));
  assert.deepEqual(log, ["a", "b", "c"]);
});

test("a request that has the object to itself is in no commit with others", LIMIT, async () => {
  const { log, turns, commit, together } = object();
  together("a");
  together("b");
  await turn();
  let through;
  const alone = turns.alone(async () => {
    log.push("alone");
    await new Promise((resolve) => (through = resolve));
    log.push("through");
  });
  await commit();
  together("c");
  await turn();
  assert.deepEqual(log, ["a", "commit", "alone"], "neither who waited for the commit nor who came later runs");
  through();
  await alone;
  await turn();
  await commit();
  assert.deepEqual(log.slice(3, 5), ["through", "b"]);
  assert.ok(log.includes("c"));
});

test("a request that fails while it has the object to itself rejects its own caller, and the next ones run", LIMIT, async () => {
  const { log, turns, together } = object();
  const fails = turns.alone(() => Promise.reject(new Error("broken")));
  const others = [turns.alone(async () => log.push("alone")), together("a")];
  await assert.rejects(fails, /broken/);
  await Promise.all(others);
  assert.deepEqual(log.slice(0, 2), ["alone", "a"]);
});

/** Asks for the object to itself, under a name. `end()` lets it go. */
function alone({ log, turns }, name) {
  let end;
  const work = async () => {
    log.push(name);
    await new Promise((resolve) => (end = resolve));
    log.push(`${name} is through`);
  };
  const ended = turns.alone(work);
  return {
    end: async () => {
      end();
      await ended;
      await turn();
    },
  };
}

test("of two requests that want the object to themselves, the second lets no other in once it has begun", LIMIT, async () => {
  const all = object();
  const { log, commit, together } = all;
  together("a");
  together("waits for the commit");
  await turn();
  const one = alone(all, "one");
  await commit();
  const other = alone(all, "other");
  await one.end();
  together("came late");
  await turn();
  await other.end();
  await commit();
  await commit();
  const ran = log.filter((name) => name !== "commit");
  assert.deepEqual(ran, ["a", "one", "one is through", "waits for the commit", "other", "other is through", "came late"]);
});

test("a request has its turn before those that ask for the object to themselves after it", LIMIT, async () => {
  const all = object();
  const { log, commit, together } = all;
  together("a");
  together("b");
  await turn();
  const one = alone(all, "one");
  together("c");
  await commit();
  const two = alone(all, "two");
  await one.end();
  assert.deepEqual(log, ["a", "commit", "one", "one is through", "b", "c", "commit", "two"]);
  const three = alone(all, "three");
  together("d");
  await two.end();
  await three.end();
  await commit();
  assert.deepEqual(log.slice(8).filter((name) => name !== "commit"), ["two is through", "three", "three is through", "d"]);
});

test("a request that claims the object just as another releases it runs after those that have waited", LIMIT, async () => {
  for (let steps = 0; steps < 5; steps += 1) {
    const log = [];
    const turns = new Turns(async () => {});
    let end;
    const ended = new Promise((resolve) => (end = resolve));
    turns.alone(() => ended);
    turns.together(() => log.push("waited"));
    let comes = ended;
    for (let step = 0; step < steps; step += 1) comes = comes.then(() => {});
    const alone = comes.then(() =>
      turns.alone(async () => {
        log.push("alone");
        for (let step = 0; step < 5; step += 1) await undefined;
        log.push("through");
      }),
    );
    end();
    await alone;
    assert.deepEqual(log, ["waited", "alone", "through"], `${steps} steps later`);
  }
});

test("what waits is bounded in number and in bytes, and its room is free again once it was released", LIMIT, async () => {
  const { log, turns, commit } = object();
  const work = () => log.push("ran");
  const half = Array.from({ length: 128 }, () => () => {});
  for (const [brought, bytes, count] of [[half, 0, 32], [undefined, 16 << 20, 2]]) {
    for (let again = 0; again < 2; again += 1) {
      log.length = 0;
      turns.together(work);
      await turn();
      const waiting = Array.from({ length: count }, () => turns.together(work, brought, bytes));
      await assert.rejects(turns.together(work, [() => {}], 1), /too many requests wait/);
      for (let commits = 0; commits <= count; commits += 1) await commit();
      await Promise.all(waiting);
      assert.equal(log.filter((name) => name === "ran").length, count + 1);
    }
  }
  for (let again = 0; again < 2; again += 1) {
    const busy = alone({ log, turns }, "busy");
    // The first two don't tell their size, and take no room in bytes.
    const waiting = [turns.alone(work), turns.together(work), turns.alone(work, 16 << 20), turns.together(work, undefined, 16 << 20)];
    for (const way of ["alone", "together"]) await assert.rejects(turns[way](work, way === "alone" ? 1 : [() => {}], 1), /too many requests wait/);
    await busy.end();
    await turn();
    await commit();
    await Promise.all(waiting);
    await commit();
  }
  for (let again = 0; again < 2; again += 1) {
    let end;
    const other = new Promise((resolve) => (end = resolve));
    const waiting = [turns.after(other, work, 16 << 20, 4_000), turns.after(other, work, 0, 96)];
    await assert.rejects(turns.after(other, work), /too many requests wait/);
    end();
    assert.equal((await Promise.all(waiting)).length, 2);
  }
});

test("a request that waits counts as one unless it says how many it is, whatever it waits for", LIMIT, async () => {
  const many = Array.from({ length: 4_095 }, () => () => {});
  for (const way of ["alone", "together", "after"]) {
    const all = object();
    const { log, turns, commit } = all;
    const work = () => log.push("ran");
    const busy = alone(all, "busy");
    const waiting = [turns.together(work, many), way === "after" ? turns.after(turns.taken, work, 0) : turns[way](work)];
    await assert.rejects(turns.together(work), /too many requests wait/, way);
    await busy.end();
    await commit();
    await Promise.all(waiting);
  }
});

test("only a waiting request takes room, which is free again after a failure and while the released work runs", LIMIT, async () => {
  const { log, turns, commit } = object();
  const ALL = 32 << 20;
  const work = () => log.push("ran");
  for (let again = 0; again < 2; again += 1) await assert.rejects(turns.after(Promise.reject(new Error("broken")), work, ALL), /broken/);
  turns.together(work);
  await turn();
  let end;
  const ended = new Promise((resolve) => (end = resolve));
  const works = turns.together(() => ended, undefined, ALL);
  await commit();
  const waits = turns.together(work, undefined, ALL);
  await assert.rejects(turns.together(work, undefined, 1), /too many requests wait/);
  await turns.alone(work, ALL);
  end();
  await commit();
  await Promise.all([works, waits]);
});
