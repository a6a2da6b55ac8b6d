// What a page hears from its browser: the network goes and comes back, it is looked at again, it is about to go.

/** So many bytes may be under way when the page is gone. */
const KEEPALIVE_BYTES_MAX = 65_536;

/**
 * Calls `look` until `signal` aborts. What is under way when the page goes is sent once more, so that it outlives it: of `attempts`,
 * those that `left`, by `fetch`. Where there is no page and no worker of one, nothing is heard.
 */
export function listen(signal, look, attempts, fetch) {
  // Others have no idea whether they are online.
  if (typeof globalThis.navigator?.onLine !== "boolean") return;
  // What happens to the document is heard on the way to it.
  const on = (type, act) => addEventListener(type, act, { signal, capture: true });
  for (const type of ["offline", "online", "pageshow", "visibilitychange", "resume"]) on(type, look);
  on("pagehide", () => {
    let room = KEEPALIVE_BYTES_MAX;
    for (const { left: [url, init] = [] } of attempts.values()) {
      if (!(init?.body?.length <= room)) continue;
      room -= init.body.length;
      fetch(url, { ...init, signal: null, keepalive: true }).catch(() => {});
    }
  });
  if (!navigator.onLine) look({});
}
