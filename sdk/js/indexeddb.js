// The store in IndexedDB.
//
// Invariants:
// - A change is one read-write transaction. It counts as done when the transaction is complete, with the durability that was asked for.
// - `commit()` is never called. If it is called within a request's `success`, Firefox completes the transaction even if a `put` failed, for want of space for
//   example.
// - A change that nobody waits for shares the transaction of the next change, if one comes soon: making several rows durable takes as long as one. Reads and
//   `close` wait for such changes.
// - A page has no transaction while WebKit keeps it in its back/forward cache: the transaction would stay open there, and block the rows for all other pages.
//   It is made again once the page is shown.
// - Within a transaction, only its own requests are awaited. Anything else would let it commit half-done.
// - A lost connection is never used again; the next transaction opens another. A connection that is in the way of a newer version is closed.
// - A transaction that fails is repeated, at most twice, each time over a new connection. (Twice, because a frame that is made right after WebKit's storage
//   process has ended may still get the old one.) The failed one may have been committed. So applying a change twice must give the same as once.
// - Errors are StoreErrors.

import { StoreError } from "./errors.js";
import { blocked, inTime, isInDoubt, STORE_MS_MAX } from "./stores.js";

const ROWS = "rows";
const VERSION = 1;
/** The time limit for opening: another tab may be in the way for ever. */
const OPEN_MS_MAX = 10_000;
/** How long a change that nobody waits for waits for another change. */
const PATIENCE_MS = 4;
/** Our codes for errors of IndexedDB. Some browsers report private mode as InvalidStateError. */
const CODES = { InvalidStateError: "unavailable", SecurityError: "unavailable", VersionError: "newer", NotFoundError: "damaged", QuotaExceededError: "full" };

/** The promise of `persist()`, which asks the browser not to delete the rows when space runs out. Asked once. */
let persisted;

/** For each transaction under way, the function that ends it. That of the transaction that has made a store stays: there is one for each store. */
const open = new Set();
/** While the page is in WebKit's back/forward cache, or about to be: settles once it is shown again. */
let shown;

/** The page goes into that cache. */
export function leavePage() {
  shown = new Promise((resolve) => addEventListener("pageshow", resolve, { once: true }));
  for (const leave of open) leave();
}

const storeError = (error) => (error instanceof StoreError ? error : new StoreError(`store-${CODES[error.name] ?? "failed"}`, error, error));

/** Makes the store. It is opened at its first transaction. */
export function indexedDbStore(name, durability, onstorelost) {
  let opening;
  let isClosed = false;
  /** The frame whose IndexedDB is used, once the page's own does not work any more. */
  let frame;
  /** The changes of the next transaction, each with a function that settles its promise; and the timer that begins the transaction at the latest. */
  const held = [];
  let timer;
  persisted ??= attempt(() => navigator.storage.persist().catch(() => {}));

  /** Stops using a connection. Returns whether it was the current one. */
  const lose = (connecting) => opening === connecting && !(opening = null);

  /**
   * Makes one transaction. `work(rows)` may return a function that gives the result once the transaction is complete. `left`: how often a failed one is
   * repeated. `lost`: the error of an earlier try that may have been committed; it is reported, whatever later tries fail with.
   */
  async function within(mode, work, left = 2, lost) {
    if (shown) await shown;
    const before = shown;
    if (isClosed) throw new StoreError("store-failed", "closed");
    const connecting = (opening ??= connect(frame?.contentWindow ?? globalThis, name, () => lose(connecting), onstorelost));
    let database;
    try {
      database = await connecting;
      const transaction = database.transaction(ROWS, mode, { durability });
      const leave = leaving(transaction);
      const result = work(transaction.objectStore(ROWS));
      const ending = new Promise((resolve, reject) => {
        transaction.oncomplete = () => resolve(result?.());
        // There is no error if this page's own `abort()` has ended it, or if WebKit could not commit.
        transaction.onabort = () => reject(transaction.error ?? leave.why ?? Error("UnknownError"));
      });
      // The events decide, because `abort()` may come too late to undo a commit.
      return await inTime(ending, leave).finally(() => open.delete(leave));
    } catch (error) {
      // The connection may be broken, and a new one costs little. WebKit: if the storage process has ended, as iOS ends it behind a hidden page, each try of the
      // same document fails with "Connection to Indexed Database server lost. Refresh the page to try again". A document that is made afterwards gets the new
      // process. So the rows are reached through a frame; appending it again makes a new document in it.
      if (isInDoubt(error)) lost = error;
      if (lose(connecting) && /server lost/.test(error)) globalThis.document?.head?.append((frame ??= document.createElement("iframe")));
      database?.close();
      if (left && (before !== shown || !(error instanceof StoreError))) return within(mode, work, left - 1, lost);
      throw storeError(lost ?? error);
    }
  }

  /** Makes a change together with all held ones; holds it for a moment if `isPatient`. `work(rows, read)`: `read(id, use)` reads a row for it. */
  function write(work, isPatient) {
    return new Promise((settle) => {
      held.push([work, settle]);
      // A hidden page may be frozen before the moment is over.
      if (isPatient && !globalThis.document?.hidden) timer ??= setTimeout(begin, PATIENCE_MS);
      else begin();
    });
  }

  function begin() {
    clearTimeout(timer);
    timer = undefined;
    const all = held.splice(0);
    const done = all.length && within("readwrite", (rows) => {
      const read = (id, use) => {
        const found = rows.get(id);
        found.onsuccess = () => use(found.result);
      };
      for (const [work] of all) work(rows, read);
    });
    for (const [, settle] of all) settle(done);
  }

  return {
    load(range) {
      begin();
      return within("readonly", (rows) => {
        const [ids, values] = [rows.getAllKeys(range), rows.getAll(range)];
        return () => ids.result.map((id, index) => [id, values.result[index]]);
      });
    },
    async change(id, to, isPatient) {
      let failure;
      await write((rows, read) => {
        read(id, (found) => {
          // If the transaction is repeated, only the last time counts.
          failure = null;
          try {
            const row = to(found);
            if (row === undefined) rows.delete(id);
            else if (row !== null) rows.put(row, id);
          } catch (error) {
            // This change has written nothing. The others of the transaction go on.
            failure = error;
          }
        });
      }, isPatient);
      if (failure) throw storeError(failure);
    },
    remove: (ids, isDone) =>
      write((rows, read) => {
        for (const id of ids) read(id, (found) => found && isDone(found) && rows.delete(id));
      }, true),
    async close() {
      begin();
      await shown;
      isClosed = true;
      (await opening)?.close();
      // Not at once: transactions under way over its connection would never report.
      if (frame) setTimeout(() => frame.remove(), STORE_MS_MAX);
    },
  };
}

/** Takes in a transaction. Returns the function that ends it, unless it is over already. */
const leaving = (transaction) => {
  // `abort()` returns undefined, and throws if it comes too late.
  const leave = () => attempt(() => (leave.why = transaction.abort() ?? blocked()));
  open.add(leave);
  return leave;
};

/** Calls `act`, and ignores an error: `localStorage` may be missing or forbidden, or a transaction may be over already. */
function attempt(act) {
  try {
    return act();
  } catch {
    // Undefined then.
  }
}

/**
 * Opens a connection to a window's IndexedDB. `lost` is called when it can't be used any more. `missed` is called if there was a store and it is gone:
 * a mark in `localStorage`, which outlives a deleted database, tells.
 */
function connect(from, name, lost, missed) {
  let isOver;
  const opening = new Promise((resolve, reject) => {
    // Here, because Firefox may throw already for the name: then it is a rejection.
    const indexedDB = from.indexedDB;
    if (!indexedDB) throw new StoreError("store-unavailable", 'no IndexedDB; give a store, or durability: "memory"');
    const request = indexedDB.open(name, VERSION);
    request.onupgradeneeded = () => {
      leaving(request.result.createObjectStore(ROWS).transaction);
      if (missed && attempt(() => localStorage.getItem(name))) queueMicrotask(missed);
    };
    request.onerror = () => reject(request.error);
    request.onsuccess = () => {
      const database = request.result;
      if (isOver) return database.close();
      attempt(() => localStorage.setItem(name, 1));
      database.onclose = lost;
      database.onversionchange = () => {
        database.close();
        lost();
      };
      resolve(database);
    };
  });
  return inTime(opening, undefined, OPEN_MS_MAX).finally(() => (isOver = true));
}
