// The store in memory, a view of a part of another store, and the time limit of reads.

import { StoreError } from "./errors.js";

/** The time limit of a store. It is meant for stores that never answer: very many rows on a slow device take some seconds. */
export const STORE_MS_MAX = 30_000;

export const blocked = () => new StoreError("store-blocked", "no answer: another tab may have it");

/** Resolves as `reading` does; rejects if that takes too long. Not for changes: after a time-out nobody could tell whether a change was made. */
export async function inTime(reading) {
  let overdue;
  try {
    return await Promise.race([reading, new Promise((_, reject) => (overdue = setTimeout(() => reject(blocked()), STORE_MS_MAX)))]);
  } finally {
    clearTimeout(overdue);
  }
}

/** A store in memory, lost with the page. Rows are not copied: callers must neither keep the bytes that they give nor change those that they get. */
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

/** A view of a store in IndexedDB: only rows whose ids begin with `prefix`. */
export const rowsOf = (store, prefix) => ({
  ...store,
  load: async () => (await store.load(IDBKeyRange.bound(prefix, `${prefix}\uffff`))).map(([id, row]) => [id.slice(prefix.length), row]),
  change: (id, to) => store.change(prefix + id, to),
});
