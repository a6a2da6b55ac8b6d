// Which tabs live: each holds a Web Lock under its name for as long as it is there.
//
// Invariants:
// - The browser releases the lock of a tab that is closed, crashed or killed, and of no other. A frozen tab keeps its own.
// - Locks are shared by whom IndexedDB is shared by: one origin of one profile. They tell nothing of another kind of store.

/** Takes the lock of `owner` in `database`; undefined where there are no Web Locks. */
export async function lightBeacon(database, owner) {
  const locks = globalThis.navigator?.locks;
  if (!locks) return undefined;
  const prefix = `${database} `;
  const ending = new AbortController();
  const watched = new Set();
  let release;
  await new Promise((granted, refused) => {
    locks
      .request(prefix + owner, () => {
        granted();
        return new Promise((resolve) => (release = resolve));
      })
      .catch(refused);
  });
  const alive = async () => (await locks.query()).held.filter(({ name }) => name.startsWith(prefix)).map(({ name }) => name.slice(prefix.length));
  return {
    alive,
    /** Calls back once, when that tab is gone. */
    watch(other, gone) {
      if (other === owner || watched.has(other)) return;
      watched.add(other);
      // Unless this tab has left.
      locks.request(prefix + other, { signal: ending.signal }, () => watched.delete(other)).then(gone, () => {});
    },
    leave() {
      ending.abort();
      release();
    },
  };
}
