// Rows in IndexedDB.
//
// Invariants:
// - A change is made in one read-write transaction, and told as done once that is complete, as durable as was asked for.
// - A transaction is left to commit itself. Told to from within a request's `success`, Firefox has it complete though what it was to put has failed, for want of
//   space say.
// - What nobody waits for has no transaction of its own if another change comes soon enough: to make one durable takes as long for one row as
//   for some. Nothing is read past it, and none of it is left behind by `close`.
// - Nothing is awaited within a transaction but its own requests: it would commit half of what was meant.
// - A connection that is lost is opened again for the next transaction, never used again. One that stands in the way of a newer
//   version is closed.
// - What fails is done again, twice at most, each time over another connection: of a frame that is made at once WebKit still takes the old process. It may have been committed and not told: so a change that is made twice has to leave what it leaves once.
// - What goes wrong is a StoreError.

import { StoreError } from "./errors.js";
import { blocked, STORE_MS_MAX } from "./stores.js";

const ROWS = "rows";
const VERSION = 1;
/** So long may it take to open: another tab may stand in the way for good. */
const OPEN_MS_MAX = 10_000;
/** So long does a change that nobody waits for wait for one that goes sooner. */
const PATIENCE_MS = 4;
/** The codes of the errors of IndexedDB. By InvalidStateError some browsers say that they are in private mode. */
const CODES = { InvalidStateError: "unavailable", SecurityError: "unavailable", VersionError: "newer", NotFoundError: "damaged", QuotaExceededError: "full" };

/** The browser's answer to whether it may throw the rows away when it runs out of space. It is asked once. */
let persisted;

const storeError = (error) => (error instanceof StoreError ? error : new StoreError(`store-${CODES[error.name] ?? "failed"}`, error.message, error));

/** The store, which is opened at its first transaction. */
export function indexedDbStore(name, durability, onstorelost) {
  let opening;
  let isClosed = false;
  /** Whose IndexedDB it is, once the page's own has ended. */
  let frame;
  /** The changes of the next transaction, each with who waits for it, and what begins it if nothing does so sooner. */
  const held = [];
  let timer;
  persisted ??= globalThis.navigator?.storage?.persist?.().catch(() => {});

  /** No transaction begins over this connection any more; whether one would have. */
  const lose = (connecting) => opening === connecting && !(opening = undefined);

  /**
   * One transaction; `work` is given the rows, and may say what to resolve to once it is complete. `left`: so often is it made again if it fails. `lost`: what one
   * before failed with that may have been committed all the same. Whatever the others fail with, that is told.
   */
  async function within(mode, work, left = 2, lost) {
    if (isClosed) throw new StoreError("store-failed", "closed");
    const connecting = (opening ??= connect(frame?.contentWindow ?? globalThis, name, () => lose(connecting), onstorelost));
    let database;
    let result;
    let overdue;
    try {
      database = await connecting;
      return await new Promise((resolve, reject) => {
        const transaction = database.transaction(ROWS, mode, { durability });
        // What it is told by is the event: an abort that comes too late changes nothing of what was committed. Where it is what ended it, there is no error.
        overdue = setTimeout(() => attempt(() => transaction.abort()), STORE_MS_MAX);
        transaction.oncomplete = () => resolve(result?.());
        transaction.onabort = () => reject(transaction.error ?? blocked());
        result = work(transaction.objectStore(ROWS));
      });
    } catch (error) {
      // It may be the connection. The next one costs little. "Connection to Indexed Database server lost. Refresh the page to try again": so says WebKit for as long as a
      // document lives once the process that keeps the rows has ended, as iOS ends it behind a page that is out of sight. To one that is made after that, as for a frame
      // that is put in its place again, it gives the next.
      if (/server lost/.test(error.message)) lost = error;
      if (lose(connecting) && lost === error) globalThis.document?.head?.append((frame ??= document.createElement("iframe")));
      database?.close();
      if (left && !(error instanceof StoreError)) return within(mode, work, left - 1, lost);
      throw storeError(lost ?? error);
    } finally {
      clearTimeout(overdue);
    }
  }

  /** A change: with all that are held, or, if nobody waits for it, held for a moment. `work` is given the rows, and what reads one for it. */
  function write(work, isPatient) {
    return new Promise((settle) => {
      held.push([work, settle]);
      // A page that is hidden may be frozen before the moment is over.
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
          // What the last time comes to counts.
          failure = null;
          try {
            const row = to(found);
            if (row === undefined) rows.delete(id);
            else if (row !== null) rows.put(row, id);
          } catch (error) {
            // It has written nothing, and is no concern of the others.
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
      isClosed = true;
      (await opening)?.close();
      // Without it, what is under way would never be told of.
      if (frame) setTimeout(() => frame.remove(), STORE_MS_MAX);
    },
  };
}

/** What may not be possible: there is no `localStorage`, or it is not to be used, which outlives a store that the browser throws away; or a transaction is over. */
function attempt(act) {
  try {
    return act();
  } catch {
    // There is nothing then.
  }
}

/** Opens a connection to a window's IndexedDB; `lost` is called when it can't be used any more, `missed` where a store was there and is gone. */
function connect({ indexedDB }, name, lost, missed) {
  let overdue;
  return new Promise((resolve, reject) => {
    if (!indexedDB) throw new StoreError("store-unavailable", 'no IndexedDB; give a store, or durability: "memory"');
    const request = indexedDB.open(name, VERSION);
    let isLate;
    overdue = setTimeout(() => {
      isLate = true;
      reject(blocked());
    }, OPEN_MS_MAX);
    request.onupgradeneeded = () => {
      request.result.createObjectStore(ROWS);
      if (missed && attempt(() => localStorage.getItem(name))) queueMicrotask(missed);
    };
    request.onerror = () => reject(request.error);
    request.onsuccess = () => {
      const database = request.result;
      if (isLate) return database.close();
      attempt(() => localStorage.setItem(name, 1));
      database.onclose = lost;
      database.onversionchange = () => {
        database.close();
        lost();
      };
      resolve(database);
    };
  }).finally(() => clearTimeout(overdue));
}
