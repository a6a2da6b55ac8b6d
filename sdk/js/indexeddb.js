// Rows in IndexedDB.
//
// Invariants:
// - A change is one read-write transaction; it is told as done once the transaction is complete, as durable as was asked for.
// - Nothing is awaited within a transaction but its own requests: it would commit half of what was meant.
// - A connection that is lost is opened again for the next transaction, never used again. One that stands in the way of a newer
//   version is closed.

const ROWS = "rows";
const VERSION = 1;

/** Opens the store; rejects where that can't be. */
export async function indexedDbStore(name, durability) {
  let opening = connect();
  await opening;
  let isClosed = false;

  function connect() {
    return new Promise((resolve, reject) => {
      if (!globalThis.indexedDB) throw new Error('semel: there is no IndexedDB here; give a store, or durability: "memory"');
      const request = indexedDB.open(name, VERSION);
      request.onupgradeneeded = () => request.result.createObjectStore(ROWS);
      request.onerror = () => reject(request.error);
      request.onsuccess = () => {
        const database = request.result;
        const lose = () => (opening = undefined);
        database.onclose = lose;
        database.onversionchange = () => {
          database.close();
          lose();
        };
        resolve(database);
      };
    });
  }

  /** One transaction; `work` is given the rows, and says what to resolve to once it is complete. */
  async function within(mode, work) {
    if (isClosed) throw new Error("semel: the store is closed");
    const database = await (opening ??= connect());
    let result;
    try {
      return await new Promise((resolve, reject) => {
        const transaction = database.transaction(ROWS, mode, { durability });
        const fail = (error) => {
          reject(error);
          transaction.abort();
        };
        transaction.oncomplete = () => resolve(result());
        transaction.onabort = () => reject(transaction.error ?? new Error("semel: the transaction was aborted"));
        result = work(transaction.objectStore(ROWS), fail);
      });
    } catch (error) {
      // It may be the connection. The next one costs little.
      if (opening && (await opening.catch(() => {})) === database) {
        opening = undefined;
        database.close();
      }
      throw error;
    }
  }

  return {
    load: () =>
      within("readonly", (rows) => {
        const [ids, values] = [rows.getAllKeys(), rows.getAll()];
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
    remove: (ids) =>
      within("readwrite", (rows) => {
        for (const id of ids) rows.delete(id);
        return () => {};
      }),
    async close() {
      isClosed = true;
      (await opening)?.close();
    },
  };
}
