// Tests the store in IndexedDB by itself, in Chromium: what a change stores, when, and how durably. `indexeddb-lost.test.mjs` has what goes wrong.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { tabs } from "./indexeddb.mjs";

const LIMIT = { timeout: 30_000 };
const { opened, tabOf } = await tabs(after);

test("the IndexedDB store passes every check of the conformance suite", LIMIT, async (t) => {
  const { tab } = await tabOf(t);
  const names = await tab.evaluate(() => lab.checks.map(({ name }) => name));
  assert.ok(names.length > 20, `${names.length} checks`);
  for (const [index, name] of names.entries()) await t.test(name, () => tab.evaluate((index) => lab.checks[index].run(), index));
});

test("opening makes the database, and a change that resolved is there for another connection", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const seen = await tab.evaluate(async (name) => {
    const [one, other] = [await lab.open(name, "strict"), await lab.open(name, "strict")];
    const seen = [await lab.shape(name), await one.load()];
    for (let round = 0; round < 20; round += 1) {
      await one.change(`id-${round}`, () => new Uint8Array([round]));
      const row = new Map(await other.load()).get(`id-${round}`);
      if (row?.[0] !== round) seen.push(`not there: ${round}`);
    }
    await one.change("id-0", () => undefined);
    await one.change("id-1", () => null);
    await one.remove(["id-2", "id-3", "unknown"], () => true);
    for (let round = 4; round < 20; round += 1) await other.remove([`id-${round}`], () => true);
    seen.push((await other.load()).map(([id, row]) => [id, ...row]));
    await Promise.all([one.close(), other.close()]);
    return seen;
  }, name);
  assert.deepEqual(seen, ["1 rows", [], [["id-1", 1]]]);
});

test("changes of one row by two connections in each of two tabs lose no step", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const { tab: other } = await tabOf(t);
  const count = async (name) => {
    const stores = [await lab.open(name, "relaxed"), await lab.open(name, "relaxed")];
    const found = [];
    const step = (store) =>
      store.change("id", (row) => {
        const [n] = new Uint16Array((row ?? new Uint8Array(2)).slice().buffer);
        found.push(n);
        return new Uint8Array(new Uint16Array([n + 1]).buffer);
      });
    await Promise.all(Array.from({ length: 100 }, (_, n) => step(stores[n % 2])));
    return found;
  };
  const found = await Promise.all([tab.evaluate(count, name), other.evaluate(count, name)]);
  assert.deepEqual(found.flat().sort((one, two) => one - two), Array.from({ length: 200 }, (_, n) => n));
  assert.deepEqual([...(await tab.evaluate(async (name) => [...(await lab.get(name, "id"))], name))], [200, 0]);
});

test("a change whose to throws leaves its row as it was, and the store goes on", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const [failed, rows, asked] = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    await store.change("id", () => new Uint8Array([1]));
    const other = store.change("other", () => new Uint8Array([2]));
    const throws = () => {
      throw new Error("it is damaged");
    };
    lab.watch(name);
    const failed = await lab.rejection(store.change("id", throws));
    const asked = lab.unwatch();
    await other;
    await store.change("later", () => new Uint8Array([3]));
    return [failed, (await store.load()).map(([id, row]) => [id, ...row]), asked];
  }, name);
  assert.deepEqual([failed.code, failed.cause.message, asked], ["store-failed", "it is damaged", ["rows readwrite strict", "rows readwrite strict"]]);
  assert.deepEqual(rows, [["id", 1], ["later", 3], ["other", 2]]);
});

test("a change whose transaction is aborted is store-failed, and changes nothing", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const [failed, rows] = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    await store.change("id", () => new Uint8Array([1]));
    lab.abortWrites();
    const failed = [];
    for (const id of ["id", "other"]) failed.push(await lab.rejection(store.change(id, () => new Uint8Array([2]))));
    lab.keepWrites();
    await store.change("later", () => new Uint8Array([3]));
    return [failed, (await store.load()).map(([id, row]) => [id, ...row])];
  }, name);
  for (const each of failed) assert.deepEqual([each.name, each.code, each.isStoreError], ["StoreError", "store-failed", true]);
  assert.deepEqual(rows, [["id", 1], ["later", 3]]);
});

// With `commit()`, Firefox would report a transaction as done although there was no space for it: see `firefox/quota.test.mjs`.
test("the store never calls commit() on a transaction", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const [told, rows] = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    const { commit } = IDBTransaction.prototype;
    let told = 0;
    IDBTransaction.prototype.commit = function () {
      told += 1;
      return commit.call(this);
    };
    const patient = ["one", "two"].map((id) => store.change(id, () => new Uint8Array([1]), true));
    await Promise.all([...patient, store.change("three", () => new Uint8Array([3]))]);
    await store.remove(["two"], () => true);
    return [told, (await store.load()).map(([id, row]) => [id, ...row])];
  }, name);
  assert.deepEqual([told, rows], [0, [["one", 1], ["three", 3]]]);
});

test("a change writes its row before any other microtask runs", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const ran = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    const ran = [];
    for (const method of ["put", "delete"]) {
      const own = IDBObjectStore.prototype[method];
      IDBObjectStore.prototype[method] = function () {
        ran.push(method);
        return own.apply(this, arguments);
      };
    }
    for (const row of [new Uint8Array([1]), undefined]) {
      await store.change("id", () => {
        queueMicrotask(() => ran.push("later"));
        return row;
      });
    }
    return ran;
  }, name);
  assert.deepEqual(ran, ["put", "later", "delete", "later"]);
});

test("every transaction has the durability that was asked for", LIMIT, async (t) => {
  for (const durability of ["strict", "relaxed"]) {
    const { tab, name } = await opened(t);
    const asked = await tab.evaluate(async ([name, durability]) => {
      const store = await lab.open(name, durability);
      lab.watch(name);
      await store.change("id", () => new Uint8Array([1]));
      await store.load();
      await store.remove(["id"], () => true);
      return lab.unwatch();
    }, [name, durability]);
    assert.deepEqual(asked, ["readwrite", "readonly", "readwrite"].map((mode) => `rows ${mode} ${durability}`));
  }
});

test("a change that nobody waits for goes along with the next change, in order, and its failure fails no other", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const [seen, rows, failed] = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    const { patient, wait } = lab.holdTimers();
    lab.watch(name);
    const all = [
      store.change("a", () => new Uint8Array([1]), true),
      lab.rejection(store.change("b", () => {
        throw new Error("it is damaged");
      }, true)),
      store.remove(["a"], (row) => row[0] === 1),
      store.change("a", (row) => new Uint8Array([row ? 2 : 3])),
    ];
    const settled = await Promise.all(all);
    const seen = [lab.unwatch(), patient()];
    wait();
    return [seen, (await store.load()).map(([id, row]) => [id, ...row]), settled[1].cause.message];
  }, name);
  assert.deepEqual(seen, [["rows readwrite strict"], 0]);
  assert.deepEqual([rows, failed], [[["a", 3]], "it is damaged"]);
});

test("a change that nobody waits for is written after a moment, or at once with a load or a close", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const [waited, rows, seen, left] = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    const { patient, wait, pass } = lab.holdTimers();
    const put = (id) => store.change(id, () => new Uint8Array([1]), true);
    const first = put("a");
    const waited = patient();
    pass();
    await first;
    lab.watch(name);
    put("b");
    const rows = (await store.load()).map(([id]) => id);
    const seen = lab.unwatch();
    const last = put("c");
    await store.close();
    await last;
    wait();
    return [waited, rows, seen, [...(await lab.get(name, "c"))]];
  }, name);
  assert.deepEqual([waited, rows, left], [1, ["a", "b"], [1]]);
  assert.deepEqual(seen, ["rows readwrite strict", "rows readonly strict"]);
});

test("a hidden page does not hold back a change that nobody waits for", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const waited = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    const { patient, wait } = lab.holdTimers();
    Object.defineProperty(document, "hidden", { value: true });
    await store.change("a", () => new Uint8Array([1]), true);
    const waited = patient();
    wait();
    return waited;
  }, name);
  assert.equal(waited, 0);
});

test("the bytes of a row come back unchanged after the store is closed and opened again", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const isSame = await tab.evaluate(async (name) => {
    const row = new Uint8Array(1 << 20).map((_, place) => Math.imul(place, 2_654_435_761) >>> 24);
    const store = await lab.open(name, "strict");
    await store.change("id", () => row);
    await store.close();
    const [[, whole]] = await (await lab.open(name, "strict")).load();
    return whole.length === row.length && whole.every((byte, at) => byte === row[at]);
  }, name);
  assert.ok(isSame);
});
