// Tells which tabs are alive: each holds a Web Lock under its name as long as it exists.
//
// Invariants:
// - The browser releases the lock of a tab that was closed, crashed or killed. A frozen tab keeps its lock. When WebKit puts a page into the back/forward
//   cache, it releases the page's lock and does not give it back. So it is requested again when the page is shown, if it is free then.
// - Locks and IndexedDB have the same scope: one origin in one profile. Locks say nothing about other kinds of stores.

/** Takes the lock of `owner` in `database`. Resolves to undefined if there are no Web Locks, or if held locks can't be listed. */
export async function lightBeacon(database, owner) {
  const ending = new AbortController();
  const hold = () =>
    new Promise((granted, refused) =>
      locks
        .request(prefix + owner, { ifAvailable: true }, (lock) => {
          granted();
          return lock && new Promise((resolve) => (release = resolve));
        })
        .catch(refused),
    );
  const watched = { [owner]: true };
  const locks = globalThis.navigator?.locks;
  // In a frame of another site, Firefox has IndexedDB and locks, but `query` rejects. If nothing may be stored at all, the store reports that.
  if (!(await locks?.query().catch(() => {}))) return undefined;
  let release;
  const prefix = `${database} `;
  await hold();
  globalThis.addEventListener?.("pageshow", hold, { signal: ending.signal });
  const alive = async () => (await locks.query()).held.flatMap(({ name }) => name.split(prefix).slice(1));
  return {
    alive,
    /** Calls `gone` once, when tab `other` is gone. */
    watch(other, gone) {
      if (watched[other]) return;
      watched[other] = true;
      // Rejects if this tab leaves first.
      locks.request(prefix + other, { signal: ending.signal }, () => delete watched[other]).then(gone, () => {});
    },
    leave() {
      ending.abort();
      release();
    },
  };
}
