// What a page hears from its browser: the network goes and comes back, it is looked at again, it is about to go.

/** Calls `look` and `flush` until `signal` aborts. Where there is no page and no worker of one, nothing is heard. */
export function listen(signal, look, flush) {
  // Others have no idea whether they are online.
  if (typeof globalThis.navigator?.onLine !== "boolean") return;
  // What happens to the document is heard on the way to it.
  const on = (type, act) => addEventListener(type, act, { signal, capture: true });
  for (const type of ["offline", "online", "pageshow", "visibilitychange", "resume"]) on(type, look);
  on("pagehide", flush);
  if (!navigator.onLine) look({});
}
