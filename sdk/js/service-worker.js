// Goes on sending after the last tab is closed, where the browser has Background Sync: Chromium has.
//
// Invariants:
// - What a tab that lives sees to is left to it. What is left is taken over as any tab would: by its lock, in one transaction.
// - Answers are kept for the next page, unless the service worker's own `onrecovered` takes them.
// - An event ends, by itself or by its limit. What is left by then fails it, so that the browser asks once more.
// - It ends as soon as a page is there that asks: whoever looks at that one is to see what waits, and to be told.

import { Semel } from "semel";

const TAG = "semel";
const HERE = "semel here";
/** The browser ends an event that takes longer than some minutes. */
const SEND_MS_MAX = 120_000;
/** So long a tab is waited for that may be about to go, and `onpaused`, which may resume. */
const GOING_MS_MAX = 10_000;
const LOOK_MS = 250;

/** In the service worker, when it is first evaluated: `options` gives what `Semel.open` gets in the page. */
export function sendInBackground(options) {
  let begun;
  let sending;
  const send = async () => {
    const semel = await Semel.open(await options());
    try {
      for (;;) {
        const asked = begun;
        // All but answers that nobody takes here.
        const left = (await semel.pending()).filter(({ state }) => state !== "answered" || semel.onrecovered);
        // What an event that came meanwhile is about may be stored since that was read.
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
      // Its time is up.
      if (said === HERE) begun = -Infinity;
      if (said !== TAG) return;
      begun = performance.now();
      event.waitUntil((sending ??= send().finally(() => (sending = undefined))));
    });
  }
}

/** In the page: asks for that when something waits and the page may be about to go. */
export function askToSendInBackground(semel) {
  const closing = new AbortController();
  semel.addEventListener("closed", () => closing.abort());
  navigator.serviceWorker?.ready.then((registration) => {
    const ask = () => {
      const { pending, online } = semel.getSnapshot();
      // A tab that is there and online sends by itself.
      if (!pending || (online && !document.hidden)) return;
      // Of a page that is closed in this moment a message comes through; whether the browser still takes what it is asked for is a matter of luck.
      registration.active.postMessage(TAG);
      registration.sync.register(TAG).catch(() => {});
    };
    if (!registration.sync || closing.signal.aborted) return;
    registration.active.postMessage(HERE);
    // It is called now too.
    semel.subscribe(ask);
    for (const type of ["visibilitychange", "pagehide"]) addEventListener(type, ask, { capture: true, signal: closing.signal });
  });
}
