// Which tabs live: each holds a Web Lock under its name for as long as it is there.
//
// Invariants:
// - The browser releases the lock of a tab that is closed, crashed or killed. A frozen tab keeps its own. That of a page that it keeps when it is left, WebKit
//   releases too, and does not give it back when the page is shown again: so it is taken again then, where it is free.
// - Locks are shared by whom IndexedDB is shared by: one origin of one profile. They tell nothing of another kind of store.

/** Takes the lock of `owner` in `database`; undefined where there are no Web Locks, or nobody may ask which are held. */
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
  // In a frame of another site Firefox has rows, and locks, but lets nobody ask for those. Where nothing may be stored at all, that is for the store to say.
  if (!(await locks?.query().catch(() => {}))) return undefined;
  let release;
  const prefix = `${database} `;
  await hold();
  globalThis.addEventListener?.("pageshow", hold, { signal: ending.signal });
  const alive = async () => (await locks.query()).held.flatMap(({ name }) => name.split(prefix).slice(1));
  return {
    alive,
    /** Calls back once, when that tab is gone. */
    watch(other, gone) {
      if (watched[other]) return;
      watched[other] = true;
      // Unless this tab has left.
      locks.request(prefix + other, { signal: ending.signal }, () => delete watched[other]).then(gone, () => {});
    },
    leave() {
      ending.abort();
      release();
    },
  };
}
