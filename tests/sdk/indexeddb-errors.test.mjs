// Tests, in Chromium, what the SDK reports if IndexedDB can't be used: which error it is, and that nothing is sent.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { browse } from "../e2e/browser.mjs";

const LIMIT = { timeout: 30_000 };
const browser = await browse(after, { page: fileURLToPath(new URL("page", import.meta.url)) });

let identities = 0;

/** A tab, an identity with its own database, and the requests that its outbox sends. */
async function opened(t, host = "127.0.0.1") {
  identities += 1;
  const identity = `errors-${identities}`;
  const tab = await browser.tab();
  t.after(() => tab.close());
  await tab.goto(tab.url().replace("127.0.0.1", host));
  await tab.waitForFunction(() => window.lab);
  const sent = [];
  await tab.exposeFunction("serve", ({ url }) => {
    sent.push(new URL(url).pathname);
    const headers = { "semel-now": String(Date.now()), "semel-status": url.endsWith("/health") ? "read" : "executed", "semel-key": '"a"' };
    return { status: 200, headers, body: "done" };
  });
  return { tab, identity, name: `semel https://worker.test ${identity}`, sent };
}

/** The code that `open` rejects with, and the name of its cause. Nothing may have been sent. */
async function refused({ tab, identity, sent }) {
  const error = await tab.evaluate((identity) => lab.rejection(lab.outbox({ identity })), identity);
  assert.deepEqual([error.name, error.isStoreError, sent], ["StoreError", true, []]);
  assert.ok(error.message.startsWith(`${error.code}: `), error.message);
  return [error.code, error.cause?.name];
}

test("open on a store of a newer version is store-newer, and leaves it as it is", LIMIT, async (t) => {
  const page = await opened(t);
  await page.tab.evaluate((name) => lab.make(name, 99), page.name);
  assert.deepEqual(await refused(page), ["store-newer", "VersionError"]);
  assert.equal(await page.tab.evaluate((name) => lab.shape(name), page.name), "99 rows");
});

test("open without an IndexedDB that can be used is store-unavailable", LIMIT, async (t) => {
  const page = await opened(t);
  await page.tab.evaluate(() => lab.connectBy(() => {
    throw new DOMException("The operation is insecure.", "SecurityError");
  }));
  assert.deepEqual(await refused(page), ["store-unavailable", "SecurityError"]);
  // A browser in private mode fails like this.
  await page.tab.evaluate(() => lab.connectBy(() => {
    const request = { error: new DOMException("A mutation operation was attempted on a database that did not allow mutations.", "InvalidStateError") };
    setTimeout(() => request.onerror());
    return request;
  }));
  assert.deepEqual(await refused(page), ["store-unavailable", "InvalidStateError"]);
  // Firefox, in a frame of another site if the user has all cookies of other sites blocked, throws already for the name.
  const refuse = () => {
    throw new DOMException("The operation is insecure.", "SecurityError");
  };
  await page.tab.evaluate((refuse) => Object.defineProperty(window, "indexedDB", { get: eval(refuse), configurable: true }), `(${refuse})`);
  assert.deepEqual(await refused(page), ["store-unavailable", "SecurityError"]);
  await page.tab.evaluate(() => Object.defineProperty(window, "indexedDB", { value: undefined }));
  assert.deepEqual(await refused(page), ["store-unavailable", undefined]);
});

test("open with any other error of IndexedDB is store-failed, and the next open may succeed", LIMIT, async (t) => {
  const page = await opened(t);
  await page.tab.evaluate(() => lab.connectBy(() => {
    throw new DOMException("Internal error.", "UnknownError");
  }));
  assert.deepEqual(await refused(page), ["store-failed", "UnknownError"]);
  await page.tab.evaluate(() => lab.connectAgain());
  await page.tab.evaluate((identity) => lab.outbox({ identity }).then((semel) => semel.close()), page.identity);
});

for (const [name, id, row] of [
  ["bytes of another version", "id", [99, 0, 0]],
  ["no bytes", "id", []],
  ["a text", "id", "row"],
  ["null", "id", null],
  ["an object", "id", {}],
  ["a row whose id is a number", 5, [1]],
]) {
  test(`open on a row that can't be read is store-damaged, and leaves it as it is: ${name}`, LIMIT, async (t) => {
    const page = await opened(t);
    const stored = await page.tab.evaluate(async ([name, id, row]) => {
      await lab.make(name, 1);
      await lab.put(name, id, Array.isArray(row) ? new Uint8Array(row) : row);
      return JSON.stringify(await lab.get(name, id));
    }, [page.name, id, row]);
    assert.deepEqual(await refused(page), ["store-damaged", undefined]);
    assert.equal(await page.tab.evaluate(async ([name, id]) => JSON.stringify(await lab.get(name, id)), [page.name, id]), stored);
  });
}

test("open on a database without its object store is store-damaged", LIMIT, async (t) => {
  const page = await opened(t);
  await page.tab.evaluate((name) => lab.make(name, 1, "others"), page.name);
  assert.deepEqual(await refused(page), ["store-damaged", "NotFoundError"]);
});

test("a call whose row is damaged while the outbox is open is store-failed, with the cause store-damaged", LIMIT, async (t) => {
  const page = await opened(t);
  const error = await page.tab.evaluate(async ([identity, name]) => {
    const semel = await lab.outbox({ identity });
    const { get } = IDBObjectStore.prototype;
    // The test can't know the id of the request. So whichever row is asked for, a text is there.
    IDBObjectStore.prototype.get = function (id) {
      this.put("row", id);
      return get.call(this, id);
    };
    const error = await lab.rejection(semel.fetch("/things", { method: "POST" }));
    IDBObjectStore.prototype.get = get;
    await semel.close();
    return error;
  }, [page.identity, page.name]);
  assert.deepEqual([error.name, error.code, error.executed, error.cause.code], ["StoreFailedError", "store-failed", "no", "store-damaged"]);
  assert.deepEqual(page.sent, []);
});

test("on a full disk a call is store-failed by store-full and not sent, and calls go on once there is space", LIMIT, async (t) => {
  // This test uses another origin, because the browser remembers for a moment how much space an origin has.
  const page = await opened(t, "localhost");
  const devtools = await page.tab.context().newCDPSession(page.tab);
  const { origin } = new URL(page.tab.url());
  await page.tab.evaluate(async (identity) => (window.semel = await lab.outbox({ identity })) && undefined, page.identity);
  await devtools.send("Storage.overrideQuotaForOrigin", { origin, quotaSize: 100_000 });
  const error = await page.tab.evaluate(() => lab.rejection(semel.fetch("/full", { method: "POST", body: lab.large() })));
  assert.deepEqual([error.name, error.code, error.executed], ["StoreFailedError", "store-failed", "no"]);
  assert.deepEqual([error.cause.name, error.cause.code, error.cause.cause.name], ["StoreError", "store-full", "QuotaExceededError"]);
  assert.deepEqual([page.sent, await page.tab.evaluate(() => semel.pending())], [[], []]);
  await devtools.send("Storage.overrideQuotaForOrigin", { origin });
  const again = () => semel.fetch("/again", { method: "POST", body: lab.large() }).then((answer) => answer.text());
  assert.equal(await page.tab.evaluate(again), "done");
  assert.deepEqual(page.sent, ["/semel/v1/health", "/again"]);
  await page.tab.evaluate(() => semel.close());
});

test("behind an endless transaction a call is store-failed, open and pending are store-blocked, and then calls go on", LIMIT, async (t) => {
  const page = await opened(t);
  const [error, pending, other] = await page.tab.evaluate(async ([identity, name]) => {
    window.semel = await lab.outbox({ identity });
    const database = await new Promise((resolve) => (indexedDB.open(name).onsuccess = ({ target }) => resolve(target.result)));
    const rows = database.transaction("rows", "readwrite").objectStore("rows");
    let isFree = false;
    const go = () => (isFree ? database.close() : (rows.get("id").onsuccess = go));
    go();
    const { setTimeout: set } = window;
    window.setTimeout = (callback, ms, ...rest) => set(callback, ms >= 15_000 ? 100 : ms, ...rest);
    const failed = [semel.fetch("/blocked", { method: "POST" }), semel.pending(), lab.outbox({ identity })];
    const told = await Promise.all(failed.map((each) => lab.rejection(each)));
    window.setTimeout = set;
    isFree = true;
    return told;
  }, [page.identity, page.name]);
  assert.deepEqual([error.name, error.code, error.executed, error.cause.code], ["StoreFailedError", "store-failed", "no", "store-blocked"]);
  assert.deepEqual([pending.code, other.code, page.sent], ["store-blocked", "store-blocked", []]);
  const again = () => semel.fetch("/again", { method: "POST" }).then((answer) => answer.text());
  assert.equal(await page.tab.evaluate(again), "done");
  assert.deepEqual([page.sent, await page.tab.evaluate(() => semel.pending())], [["/semel/v1/health", "/again"], []]);
  await page.tab.evaluate(() => semel.close());
});

const PROCESS_LOST = ["WebKit may have stored when it lost its process", "UnknownError", "Connection to Indexed Database server lost. Refresh the page to try again"];

// This is as in a worker, which has no frame whose IndexedDB could be used. The row was stored, so the next outbox sends it. Where the disk refuses to sync,
// Chromium 156, Firefox 153 and WebKitGTK 2.50 end the transaction so, and find the row at the next start. WebKit tells no error.
for (const [what, name, message, then] of [
  [...PROCESS_LOST, "never opens"],
  [...PROCESS_LOST, "fails to open with another error"],
  ["Chromium may have stored when it could not commit", "UnknownError", "Internal error committing transaction.", "fails to open with another error"],
  ["Chromium may have stored on a full disk", "QuotaExceededError", "Encountered disk full while committing transaction.", "fails to open with another error"],
  ["Firefox may have stored when it could not commit", "UnknownError", "The operation failed for reasons unrelated to the database itself and not covered by any other error code.", "fails to open with another error"],
  ["WebKit may have stored when it could not commit", undefined, undefined, "fails to open with another error"],
]) {
  test(`a call that ${what} is unknown, though the store ${then} after that`, LIMIT, async (t) => {
    const page = await opened(t);
    const error = await page.tab.evaluate(async ([identity, then, name, message]) => {
      const semel = await lab.outbox({ identity });
      const lost = name ? new DOMException(message, name) : null;
      const { transaction } = IDBDatabase.prototype;
      // The transaction commits, and is reported as lost.
      IDBDatabase.prototype.transaction = function () {
        const made = transaction.apply(this, arguments);
        Object.defineProperty(made, "error", { value: lost });
        Object.defineProperty(made, "oncomplete", { set: () => made.addEventListener("complete", () => made.onabort()) });
        return made;
      };
      Object.defineProperty(document, "head", { value: null, configurable: true });
      lab.connectBy(() => {
        const request = { error: new DOMException("Internal error.", "AbortError") };
        if (then === "fails to open with another error") setTimeout(() => request.onerror());
        return request;
      });
      const { setTimeout: set } = window;
      window.setTimeout = (callback, ms, ...rest) => set(callback, ms === 5_000 ? 100 : ms, ...rest);
      const error = await lab.rejection(semel.fetch("/things", { method: "POST" }));
      window.setTimeout = set;
      IDBDatabase.prototype.transaction = transaction;
      delete document.head;
      lab.connectAgain();
      await semel.close();
      return error;
    }, [page.identity, then, name, message]);
    assert.deepEqual([error.code, page.sent], ["store-failed", []]);
    await page.tab.evaluate(async (identity) => {
      const { promise, resolve } = Promise.withResolvers();
      const semel = await lab.outbox({ identity, onrecovered: resolve });
      await promise;
      await semel.close();
    }, page.identity);
    assert.deepEqual([error.executed, page.sent], ["unknown", ["/semel/v1/health", "/things"]]);
  });
}

test("a database that does not open is store-blocked, and its connection is closed if it opens later", LIMIT, async (t) => {
  const page = await opened(t);
  const blocked = await page.tab.evaluate(async ([name, identity]) => {
    await lab.make(name, 1);
    // Another connection blocks the deletion of the database, so whoever opens the database now waits.
    const holder = await new Promise((resolve) => (indexedDB.open(name).onsuccess = ({ target }) => resolve(target.result)));
    holder.onversionchange = () => {};
    const deleted = new Promise((resolve) => (indexedDB.deleteDatabase(name).onsuccess = resolve));
    const { setTimeout: set } = window;
    const limits = [];
    window.setTimeout = (callback, ms, ...rest) => {
      if (ms >= 1_000) limits.push(ms);
      return set(callback, ms >= 1_000 ? 100 : ms, ...rest);
    };
    const blocked = await lab.rejection(lab.outbox({ identity }));
    window.setTimeout = set;
    holder.close();
    await deleted;
    // The connection that opened late is closed once another one is open.
    await (await lab.open(name, "strict")).close();
    return [blocked, limits, await lab.dropHeld(name)];
  }, [page.name, page.identity]);
  const [{ name, code, isStoreError }, limits, isHeld] = blocked;
  assert.deepEqual([name, code, isStoreError, limits, isHeld], ["StoreError", "store-blocked", true, [15_000, 5_000, 15_000, 5_000], false], "each has two halves");
  assert.deepEqual(page.sent, []);
});

test("the browser is asked once for persistent storage, and open does not wait for its answer", LIMIT, async (t) => {
  for (const says of ["nothing", "no", "an error"]) {
    const { tab, identity } = await opened(t);
    const asked = await tab.evaluate(async ([identity, says]) => {
      let asked = 0;
      const answers = { nothing: () => new Promise(() => {}), no: async () => false, "an error": () => Promise.reject(new Error("no")) };
      StorageManager.prototype.persist = () => {
        asked += 1;
        return answers[says]();
      };
      const memory = await lab.outbox({ identity, durability: "memory" });
      const without = asked;
      const outboxes = [memory, await lab.outbox({ identity }), await lab.outbox({ identity })];
      for (const semel of outboxes) await semel.close();
      return [without, asked];
    }, [identity, says]);
    assert.deepEqual(asked, [0, 1], says);
  }
  assert.deepEqual(browser.errors, []);
});
