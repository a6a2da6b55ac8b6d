// Stores, as the machine calls them: each method gives a promise, whatever the store does.

/** The application's own store. What it throws at once counts as what it rejects later. */
export const customStore = (store) => ({
  load: async () => store.load(),
  change: async (id, to) => void (await store.change(id, to)),
  remove: async (ids, isDone) => void (await store.remove(ids, isDone)),
  close: async () => void (await store.close?.()),
});

/** Rows in memory: lost with the page. Nobody else has their bytes. */
export function memoryStore() {
  const rows = new Map();
  return {
    load: async () => structuredClone([...rows]),
    async change(id, to) {
      const row = to(rows.get(id)?.slice());
      if (row === undefined) rows.delete(id);
      else if (row !== null) rows.set(id, row.slice());
    },
    remove: async (ids, isDone) => ids.forEach((id) => rows.has(id) && isDone(rows.get(id)) && rows.delete(id)),
  };
}
