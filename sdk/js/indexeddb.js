// Rows in IndexedDB.
//
// Invariants:
// - A change is one read-write transaction; it is told as done once the transaction is complete, as durable as was asked for.
// - Nothing is awaited within a transaction but its own requests: it would commit half of what was meant.
// - A connection that is lost is opened again for the next transaction, never used again. One that stands in the way of a newer
//   version is closed.
// - What goes wrong is a StoreError.

import { StoreError } from "./errors.js";

const ROWS = "rows";
const VERSION = 1;
/** So long may it take to open: another tab may stand in the way for good. */
const OPEN_MS_MAX = 10_000;
/** The codes of the errors of IndexedDB. */
const CODES = { SecurityError: "unavailable", VersionError: "newer", NotFoundError: "damaged", QuotaExceededError: "full" };

/** The browser's answer to whether it may throw the rows away when it runs out of space. It is asked once. */
let persisted;

const storeError = (error) => (error instanceof StoreError ? error : new StoreError(`store-${CODES[error.name] ?? "failed"}`, error.message, error));

/** Opens the store; rejects where that can't be. */
export async function indexedDbStore(name, durability, onstorelost) {
  let opening;
  let isClosed = false;
  await connection();
  memory((kept) => kept.setItem(name, 1));
  persisted ??= globalThis.navigator?.storage?.persist?.().catch(() => {});

  /** The connection: a new one where the last was lost, or did not open. */
  function connection() {
    const own = (opening ??= connect(name, () => lose(own), onstorelost));
    own.catch(() => lose(own));
    return own;
  }

  function lose(connecting) {
    if (opening === connecting) opening = undefined;
  }

  /** One transaction; `work` is given the rows, and says what to resolve to once it is complete. */
  async function within(mode, work) {
    if (isClosed) throw new StoreError("store-failed", "the store is closed");
    const connecting = connection();
    const database = await connecting;
    let result;
    try {
      return await new Promise((resolve, reject) => {
        const transaction = database.transaction(ROWS, mode, { durability });
        const fail = (error) => {
          reject(error);
          transaction.abort();
        };
        transaction.oncomplete = () => resolve(result());
        transaction.onabort = () => reject(transaction.error ?? new Error("the transaction was aborted"));
        result = work(transaction.objectStore(ROWS), fail);
      });
    } catch (error) {
      // It may be the connection. The next one costs little.
      lose(connecting);
      database.close();
      throw storeError(error);
    }
  }

  return {
    load: (range) =>
      within("readonly", (rows) => {
        const [ids, values] = [rows.getAllKeys(range), rows.getAll(range)];
        return () => ids.result.map((id, index) => [id, values.result[index]]);
      }),
    change: (id, to) =>
      within("readwrite", (rows, fail) => {
        const found = rows.get(id);
        found.onsuccess = () => {
          try {
            const row = to(found.result);
            if (row === undefined) rows.delete(id);
            else if (row !== null) rows.put(row, id);
          } catch (error) {
            fail(error);
          }
        };
        return () => {};
      }),
    remove: (ids, isDone) =>
      within("readwrite", (rows) => {
        for (const id of ids) {
          const found = rows.get(id);
          found.onsuccess = () => found.result && isDone(found.result) && rows.delete(id);
        }
        return () => {};
      }),
    async close() {
      isClosed = true;
      (await opening)?.close();
    },
  };
}

/** What outlives a store that the browser throws away. */
function memory(act) {
  try {
    return act(localStorage);
  } catch {
    // There is none, or it is not to be used.
    return undefined;
  }
}

/** Opens a connection; `lost` is called when it can't be used any more, `missed` where a store was there and is gone. */
async function connect(name, lost, missed) {
  try {
    return await new Promise((resolve, reject) => {
      if (!globalThis.indexedDB) throw new StoreError("store-unavailable", 'there is no IndexedDB here; give a store, or durability: "memory"');
      const request = indexedDB.open(name, VERSION);
      let isLate = false;
      const overdue = setTimeout(() => {
        isLate = true;
        reject(new StoreError("store-blocked", "it does not open; another tab may stand in the way"));
      }, OPEN_MS_MAX);
      request.onupgradeneeded = () => {
        request.result.createObjectStore(ROWS);
        if (missed && memory((kept) => kept.getItem(name))) queueMicrotask(missed);
      };
      request.onerror = () => {
        clearTimeout(overdue);
        reject(request.error);
      };
      request.onsuccess = () => {
        const database = request.result;
        clearTimeout(overdue);
        if (isLate) return database.close();
        database.onclose = lost;
        database.onversionchange = () => {
          database.close();
          lost();
        };
        resolve(database);
      };
    });
  } catch (error) {
    // So some browsers say that they are in private mode.
    throw error.name === "InvalidStateError" ? new StoreError("store-unavailable", error.message, error) : storeError(error);
  }
}
