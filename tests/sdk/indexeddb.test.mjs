// Tests the store in IndexedDB by itself, in Chromium: transactions, lost connections, closing.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { browse } from "../e2e/browser.mjs";

const LIMIT = { timeout: 30_000 };
const browser = await browse(after, { page: fileURLToPath(new URL("page", import.meta.url)) });

let databases = 0;
/** A tab, and the name of a database that only this test uses. */
async function opened(t) {
  databases += 1;
  const name = `store ${databases}`;
  return { name, ...(await tabOf(t)) };
}

async function tabOf(t) {
  const tab = await browser.tab();
  t.after(() => tab.close());
  await tab.waitForFunction(() => window.lab);
  return { tab };
}

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

test("a store whose connection is closed opens it again, and no call fails or is lost", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const [loaded, rows, asked] = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    lab.watch(name);
    const count = (found = new Uint8Array(1)) => found.map((steps) => steps + 1);
    await store.change("id", count);
    lab.sever();
    await Promise.all([store.change("id", count), store.change("other", count)]);
    lab.sever();
    const loaded = (await store.load()).map(([id, row]) => [id, ...row]);
    lab.sever();
    await store.remove(["other"], () => true);
    return [loaded, (await store.load()).map(([id, row]) => [id, ...row]), lab.unwatch()];
  }, name);
  assert.deepEqual([loaded, rows], [[["id", 2], ["other", 1]], [["id", 2]]]);
  assert.ok(asked.every((each) => each.endsWith(" strict")), String(asked));
});

test("a change that fails is made three times in all, and then rejects with the cause and has changed nothing", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const [failed, row, asked] = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    await store.change("id", () => new Uint8Array([1]));
    lab.watch(name);
    lab.abortWrites();
    const failed = await lab.rejection(store.change("id", () => new Uint8Array([2])));
    lab.keepWrites();
    const asked = lab.unwatch();
    return [failed, (await store.load()).map(([id, row]) => [id, ...row]), asked];
  }, name);
  assert.deepEqual([failed.code, failed.cause.name, row], ["store-failed", "ConstraintError", [["id", 1]]]);
  assert.deepEqual(asked, Array.from({ length: 3 }, () => ["rows readwrite strict", "aborted"]).flat());
});

test("a change that could not be written the first time is made again, and then resolves", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const [told, rows] = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    IDBObjectStore.prototype.put = function (row, id) {
      lab.keepWrites();
      // The second `add` fails, and with it the whole transaction.
      for (let n = 0; n < 2; n += 1) this.add(row, id);
      throw new DOMException("it is over", "TransactionInactiveError");
    };
    const told = await store.change("id", () => new Uint8Array([1])).then(() => "done", ({ message }) => message);
    return [told, (await store.load()).map(([id, row]) => [id, ...row])];
  }, name);
  assert.deepEqual([told, rows], ["done", [["id", 1]]]);
});

test("after a connection could not be opened again, the next call tries it again", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const [failed, rows] = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    lab.watch(name);
    await store.load();
    lab.sever();
    lab.connectBy(() => {
      throw new DOMException("not now", "UnknownError");
    });
    const failed = [await lab.rejection(store.load()), await lab.rejection(store.load())];
    lab.connectAgain();
    return [failed.map(({ code, cause }) => [code, cause.name]), await store.load()];
  }, name);
  assert.deepEqual(failed, [["store-failed", "UnknownError"], ["store-failed", "UnknownError"]]);
  assert.deepEqual(rows, []);
});

test("a store whose database another tab deletes lets it go, and makes it anew for the next change", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const { tab: other } = await tabOf(t);
  await tab.evaluate(async (name) => {
    window.store = await lab.open(name, "strict");
    await store.change("id", () => new Uint8Array([1]));
  }, name);
  await other.evaluate((name) => lab.drop(name), name);
  const rows = await tab.evaluate(async () => {
    await store.change("later", (found) => new Uint8Array([found ? 1 : 2]));
    return (await store.load()).map(([id, row]) => [id, ...row]);
  });
  assert.deepEqual(rows, [["later", 2]]);
});

test("a store whose connection the browser closes because the user clears its data opens it again", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  await tab.evaluate(async (name) => {
    window.store = await lab.open(name, "strict");
    lab.watch(name);
    await store.change("id", () => new Uint8Array([1]));
    window.isClosed = false;
    lab.closed().then(() => (isClosed = true));
  }, name);
  const devtools = await tab.context().newCDPSession(tab);
  await devtools.send("Storage.clearDataForOrigin", { origin: new URL(tab.url()).origin, storageTypes: "indexeddb" });
  await tab.waitForFunction(() => isClosed);
  await tab.evaluate(() => store.change("id", (found) => new Uint8Array([found ? 1 : 2])));
  assert.deepEqual(await tab.evaluate(async (name) => [...(await lab.get(name, "id"))], name), [2]);
});

test("close finishes what is under way, and a closed store holds no connection", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const [row, ...held] = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    const changed = store.change("id", () => new Uint8Array([1]));
    await store.close();
    await changed;
    const row = [...(await lab.get(name, "id"))];
    const isHeld = await lab.dropHeld(name);
    await lab.open(name, "strict");
    return [row, isHeld, await lab.dropHeld(name)];
  }, name);
  assert.deepEqual([row, held], [[1], [false, true]]);
});

test("a closed store rejects calls, and one that is closed while it connects again holds no connection", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const failed = await tab.evaluate(async (name) => {
    const closed = await lab.open(name, "strict");
    await closed.close();
    const failed = [await lab.rejection(closed.load()), await lab.rejection(closed.change("id", () => null))];
    const connecting = await lab.open(name, "strict");
    lab.watch(name);
    await connecting.load();
    lab.sever();
    const loaded = connecting.load().catch(() => {});
    await connecting.close();
    await loaded;
    return [failed.map(({ code }) => code), await lab.dropHeld(name)];
  }, name);
  assert.deepEqual(failed, [["store-failed", "store-failed"], false]);
});

/** Opens a transaction that ends when `window.free` is called, and shortens every limit of half a minute to 100 ms. */
const stand = async (name) => {
  const database = await new Promise((resolve) => (indexedDB.open(name).onsuccess = ({ target }) => resolve(target.result)));
  const rows = database.transaction("rows", "readwrite").objectStore("rows");
  let isFree = false;
  // A transaction stays open as long as it has something to do.
  const go = () => (isFree ? database.close() : (rows.get("id").onsuccess = go));
  go();
  window.free = () => (isFree = true);
  const { setTimeout: set } = window;
  window.limits = [];
  window.setTimeout = (callback, ms, ...rest) => {
    if (ms >= 15_000) limits.push(ms);
    return set(callback, ms >= 15_000 ? 100 : ms, ...rest);
  };
};

test("behind an endless transaction reads and changes are store-blocked, and those changes are not written later", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const store = await tab.evaluateHandle((name) => lab.open(name, "strict"), name);
  await tab.evaluate(stand, name);
  const failed = await tab.evaluate(async (store) => {
    const calls = [store.load(), store.change("id", () => new Uint8Array([1])), store.change("patient", () => new Uint8Array([2]), true), store.load()];
    return Promise.all(calls.map((call) => lab.rejection(call)));
  }, store);
  for (const each of failed) assert.deepEqual([each.name, each.code, each.isStoreError], ["StoreError", "store-blocked", true]);
  assert.deepEqual(new Set(await tab.evaluate(() => limits)), new Set([15_000]), "the halves of it");
  const rows = await tab.evaluate(async (store) => {
    free();
    await store.change("later", () => new Uint8Array([3]));
    return (await store.load()).map(([id, row]) => [id, ...row]);
  }, store);
  assert.deepEqual(rows, [["later", 3]]);
});

test("a store whose page was frozen while it opens, reads or writes gets its answer despite overdue timers", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const told = await tab.evaluate(async (name) => {
    const { setTimeout: set } = window;
    let isDue = true;
    // When a page thaws, a timer that is overdue runs before anything that arrived meanwhile. Timers that are set then are not due yet.
    const thaws = (act, ms, ...rest) => {
      if (ms < 1_000 || !isDue) return set(act, ms, ...rest);
      isDue = false;
      act();
      isDue = true;
    };
    const store = await lab.open(name, "strict");
    const other = await lab.open(name, "strict");
    // The other store is open now; the first has not opened yet.
    await other.load();
    window.setTimeout = thaws;
    const told = [];
    for (const ask of [() => store.load(), () => other.load(), () => other.change("id", () => new Uint8Array([1]))]) {
      told.push(await ask().then(() => "done", ({ code }) => code));
    }
    window.setTimeout = set;
    return [...told, (await other.load()).map(([id]) => id)];
  }, name);
  assert.deepEqual(told, ["done", "done", "done", ["id"]]);
});

test("a change whose transaction commits although it was to be aborted resolves", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const rows = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    const { setTimeout: set } = window;
    const { abort } = IDBTransaction.prototype;
    // `abort` throws like this if the transaction is about to be committed.
    IDBTransaction.prototype.abort = () => {
      throw new DOMException("It is too late.", "InvalidStateError");
    };
    window.setTimeout = (callback, ms, ...rest) => (ms >= 15_000 ? callback() : set(callback, ms, ...rest));
    await store.change("id", () => new Uint8Array([1]));
    Object.assign(window, { setTimeout: set });
    IDBTransaction.prototype.abort = abort;
    return (await store.load()).map(([id, row]) => [id, ...row]);
  }, name);
  assert.deepEqual(rows, [["id", 1]]);
});

test("a change whose transaction could not be aborted and then fails is made again", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const [told, rows] = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    const { setTimeout: set } = window;
    const { abort } = IDBTransaction.prototype;
    IDBTransaction.prototype.abort = () => {
      IDBTransaction.prototype.abort = abort;
      lab.keepWrites();
      throw new DOMException("It is too late.", "InvalidStateError");
    };
    // The transaction exceeds its time as soon as it has written.
    let [isHalf, overdue] = [];
    window.setTimeout = (callback, ms, ...rest) => {
      if (ms < 15_000 || overdue) return set(callback, ms, ...rest);
      if (isHalf) overdue = callback;
      else callback((isHalf = true));
    };
    lab.abortWrites(() => overdue());
    const told = await store.change("id", () => new Uint8Array([1])).then(() => "done", ({ message }) => message);
    Object.assign(window, { setTimeout: set });
    return [told, (await store.load()).map(([id, row]) => [id, ...row])];
  }, name);
  assert.deepEqual([told, rows], ["done", [["id", 1]]]);
});

test("close finishes changes over a frame's connection, even those that nobody waits for", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const [frames, told, rows] = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    lab.watch(name);
    await store.load();
    lab.loseServer();
    await store.change("first", () => new Uint8Array([1]));
    const frames = document.querySelectorAll("head > iframe").length;
    const changes = [store.change("second", () => lab.large()), store.change("third", () => new Uint8Array([3]), true)];
    await store.close();
    const told = await Promise.all(changes);
    lab.connectAgain();
    return [frames, told.length, (await (await lab.open(name, "strict")).load()).map(([id]) => id)];
  }, name);
  assert.deepEqual([frames, told, rows], [1, 2, ["first", "second", "third"]]);
});
