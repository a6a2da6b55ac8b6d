// Tests the store in IndexedDB, in Chromium, when it loses its connection, when a transaction fails or does not end, and when it is closed.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { tabs } from "./indexeddb.mjs";

const LIMIT = { timeout: 30_000 };
const { opened, tabOf } = await tabs(after);

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

test("a page that is left ends its transactions, begins none, and makes them again once it is shown", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const seen = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    lab.watch(name);
    let calls = 0;
    const { promise: called, resolve } = Promise.withResolvers();
    // Its call comes within the transaction, which then is still open.
    const changed = store.change("id", () => {
      calls += 1;
      resolve();
      return new Uint8Array([calls]);
    });
    await called;
    lab.leavePage();
    const later = store.change("later", () => new Uint8Array([3]));
    // Takes longer than to hear of the abort and to connect again. Whatever is begun while the page is away is before the reads that follow.
    await lab.get(name, "id");
    const away = [(await lab.get(name, "id")) ?? null, (await lab.get(name, "later")) ?? null];
    lab.showPage();
    await Promise.all([changed, later]);
    return { away, rows: [[...(await lab.get(name, "id"))], [...(await lab.get(name, "later"))]], watched: lab.unwatch() };
  }, name);
  assert.deepEqual(seen.away, [null, null]);
  assert.deepEqual(seen.rows, [[2], [3]]);
  const strict = "rows readwrite strict";
  assert.deepEqual(seen.watched, [strict, "aborted", strict, strict]);
});

test("once its page was left and is shown again, a store that is closed still makes the changes that it held", LIMIT, async (t) => {
  const { tab, name } = await opened(t);
  const row = await tab.evaluate(async (name) => {
    const store = await lab.open(name, "strict");
    lab.leavePage();
    lab.showPage();
    const changed = store.change("id", () => new Uint8Array([1]), true);
    await store.close();
    await changed;
    return [...(await lab.get(name, "id"))];
  }, name);
  assert.deepEqual(row, [1]);
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
