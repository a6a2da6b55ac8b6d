// The store that needs nothing, a part of one that has more, and how long one is waited for.

import { StoreError } from "./errors.js";

/** So long may a store take. It is for one that never answers: one with very many rows on a slow device takes some seconds. */
export const STORE_MS_MAX = 30_000;

export const blocked = () => new StoreError("store-blocked", "no answer: another tab may have it");

/** What a store is read for; it rejects where that takes too long. A change is not made so: nobody could tell whether it was made. */
export async function inTime(reading) {
  let overdue;
  try {
    return await Promise.race([reading, new Promise((_, reject) => (overdue = setTimeout(() => reject(blocked()), STORE_MS_MAX)))]);
  } finally {
    clearTimeout(overdue);
  }
}

/** Rows in memory: lost with the page. Who gives a row must keep none of its bytes, and who gets one change none, as `Machine` does. */
export function memoryStore() {
  const rows = new Map();
  return {
    load: async () => structuredClone([...rows]),
    async change(id, to) {
      const row = to(rows.get(id));
      if (row === undefined) rows.delete(id);
      else if (row !== null) rows.set(id, row);
    },
    remove: async (ids, isDone) => ids.forEach((id) => rows.has(id) && isDone(rows.get(id)) && rows.delete(id)),
  };
}

/** The rows of which the ids begin with `prefix`, in a store of IndexedDB: it reads no others. */
export const rowsOf = (store, prefix) => ({
  ...store,
  load: async () => (await store.load(IDBKeyRange.bound(prefix, `${prefix}\uffff`))).map(([id, row]) => [id.slice(prefix.length), row]),
  change: (id, to) => store.change(prefix + id, to),
});
