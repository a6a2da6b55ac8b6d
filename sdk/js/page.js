// Listens to the browser: the network goes away or comes back, the page is shown again, the page is being left.

import { leavePage } from "./indexeddb.js";

/** The browser's limit for the bodies of all `keepalive` requests under way. */
const KEEPALIVE_BYTES_MAX = 65_536;

/**
 * Calls `look` at each of these events until `signal` aborts. When the page is left, those of `attempts` that have `left` are sent once more by `fetch`
 * with `keepalive`, so that they outlive the page. Does nothing in runtimes without pages.
 */
export function listen(signal, look, attempts, fetch) {
  // Other runtimes don't know whether they are online.
  if (typeof globalThis.navigator?.onLine !== "boolean") return;
  // In the capture phase, because some of these events are dispatched at the document.
  const on = (type, act) => addEventListener(type, act, { signal, capture: true });
  for (const type of ["offline", "online", "pageshow", "visibilitychange", "resume"]) on(type, look);
  on("pagehide", ({ persisted }) => {
    // Chromium finishes the transactions of a page in the back/forward cache, and Firefox keeps no page with a lock.
    if (persisted && navigator.vendor.startsWith("Apple")) leavePage();
    let room = KEEPALIVE_BYTES_MAX;
    for (const { left: [url, init] = [] } of attempts.values()) {
      if (!(init?.body?.length <= room)) continue;
      room -= init.body.length;
      fetch(url, { ...init, signal: null, keepalive: true }).catch(() => {});
    }
  });
  if (!navigator.onLine) look({});
}
