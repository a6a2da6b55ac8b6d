// The store that needs nothing, and a part of one that has more.

/** Rows in memory: lost with the page. `own`: who gives a row keeps none of its bytes, and who gets one changes none, as `Machine` does. */
export function memoryStore(own = (row) => row) {
  const rows = new Map();
  return {
    load: async () => structuredClone([...rows]),
    async change(id, to) {
      const row = to(own(rows.get(id)));
      if (row === undefined) rows.delete(id);
      else if (row !== null) rows.set(id, own(row));
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
