// The store that needs nothing.

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
