// The store in memory, a view of a part of another store, the time limit of reads, and errors that leave a change in doubt.

import { StoreError } from "./errors.js";

/** The time limit of a store. It is meant for stores that never answer: very many rows on a slow device take some seconds. */
export const STORE_MS_MAX = 30_000;

export const blocked = () => new StoreError("store-blocked", "no answer: another tab may have it");

/**
 * Whether a store that fails with this may have made its change: WebKit's storage process has ended, or a browser could not commit. Its log may contain what it
 * could not sync. Chromium has the second text for a full disk.
 */
export const isInDoubt = (error) => /UnknownError|committing/.test(error);

/**
 * Settles as `doing` does. If that takes longer than `ms`, calls `late(reject)`. Used for reads. Not for changes of an application's own store: after a time-out
 * nobody could tell whether a change was made.
 *
 * A page that was frozen finds its timer due before it hears what has come meanwhile. So there are two timers of half the time, and the second is still left
 * after a thaw.
 */
export function inTime(doing, late = (reject) => reject(blocked()), ms = STORE_MS_MAX) {
  let timer;
  return new Promise((resolve, reject) => {
    timer = setTimeout(() => (timer = setTimeout(late, ms / 2, reject)), ms / 2);
    doing.then(resolve, reject);
  }).finally(() => clearTimeout(timer));
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
