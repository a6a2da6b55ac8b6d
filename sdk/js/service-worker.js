// Goes on sending after the last tab was closed, in browsers that have Background Sync (Chromium).
//
// Invariants:
// - Requests of a live tab are left to it. Others are taken over as any tab would do it: by locks, in one transaction each.
// - Answers are kept for the next page, unless the service worker's own `onrecovered` takes them.
// - Each event ends, by itself or at its limit. If requests are left then, the event fails, so that the browser dispatches it again.
// - It ends as soon as a page asks for that, because the page's user must see what is waiting.

import { Semel } from "semel";

const TAG = "semel";
const HERE = "semel here";
/** The limit of an event. The browser would end it after some minutes. */
const SEND_MS_MAX = 120_000;
/** How long to wait if nothing is being sent: for a tab that may be about to go, and for `onpaused`, which may resume. */
const GOING_MS_MAX = 10_000;
const LOOK_MS = 250;

/** To be called when the service worker is first evaluated. `options` gives the options of `Semel.open` in the page. */
export function sendInBackground(options) {
  let begun;
  let sending;
  const send = async () => {
    const semel = await Semel.open(await options());
    try {
      for (;;) {
        const asked = begun;
        // Without answers that nobody takes here.
        const left = (await semel.pending()).filter(({ state }) => state !== "answered" || semel.onrecovered);
        // An event that came meanwhile may be about a request that was stored after this was read.
        if (!left.length && !(begun > asked)) return;
        const isBusy = left.some(({ state }) => /sending|answered/.test(state));
        if (performance.now() - begun > (isBusy ? SEND_MS_MAX : GOING_MS_MAX)) throw new Error("semel: not all is answered");
        await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      }
    } finally {
      await semel.close();
    }
  };
  for (const type of ["sync", "message"]) {
    addEventListener(type, (event) => {
      const said = event.tag ?? event.data;
      // A page is there: end now.
      if (said === HERE) begun = -Infinity;
      if (said !== TAG) return;
      begun = performance.now();
      event.waitUntil((sending ??= send().finally(() => (sending = null))));
    });
  }
}

/** To be called in the page: wakes the service worker when something is waiting and the page may be about to go. */
export function askToSendInBackground(semel) {
  const closing = new AbortController();
  semel.addEventListener("closed", () => closing.abort());
  navigator.serviceWorker?.ready.then((registration) => {
    const ask = () => {
      const { pending, online } = semel.getSnapshot();
      // A tab that is visible and online sends by itself.
      if (!pending || (online && !document.hidden)) return;
      // Both, because if the page is being closed right now, the message arrives, but the browser may not register the sync event any more.
      registration.active.postMessage(TAG);
      registration.sync.register(TAG).catch(() => {});
    };
    if (!registration.sync || closing.signal.aborted) return;
    registration.active.postMessage(HERE);
    // `subscribe` also calls it now.
    semel.subscribe(ask);
    for (const type of ["visibilitychange", "pagehide"]) addEventListener(type, ask, { capture: true, signal: closing.signal });
  });
}
