// Stores in JavaScript, as the module calls them: with callbacks for promises.
//
// Invariants:
// - Each call ends by one call of its callback, whatever the store does, but for one that never settles.
// - `to` is good for one call: a store that calls it again fails.

/** The application's own store. */
export function customStore(store) {
  return {
    load: (done) => ended(() => store.load(), (rows) => done([rows.map(([id]) => id), rows.map(([, row]) => row)]), done),
    change: (id, to, done) => ended(() => store.change(id, to), () => done(true), () => done(false)),
    remove: (ids) => ended(() => store.remove(ids), ignore, ignore),
    close: () => ended(() => store.close?.(), ignore, ignore),
  };
}

const ignore = () => {};

function ended(call, kept, failed) {
  // What is thrown at once counts as what is rejected later; what `kept` throws, as a store that answered nonsense.
  new Promise((resolve) => resolve(call())).then(kept).catch((error) => failed(error ?? new Error("semel: the store failed")));
}

/** Rows in memory: lost with the page. */
export function memoryStore() {
  const rows = new Map();
  return {
    load: (done) => done([[...rows.keys()], [...rows.values()]]),
    change(id, to, done) {
      const row = to(rows.get(id));
      if (row === undefined) rows.delete(id);
      else if (row !== null) rows.set(id, row);
      // Never from within the call: the module is not done with it.
      queueMicrotask(() => done(true));
    },
    remove: (ids) => ids.forEach((id) => rows.delete(id)),
    close: ignore,
  };
}
