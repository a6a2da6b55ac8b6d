// Goes on sending after the last tab is closed, where the browser has Background Sync: Chromium has.
//
// Invariants:
// - What a tab that lives sees to is left to it. What is left is taken over as any tab would: by its lock, in one transaction.
// - Answers are kept for the next page, unless the service worker's own `onrecovered` takes them.
// - A sync event ends, by itself or by its limit. What is not answered by then fails the event, so that the browser asks once more.

import { Semel } from "semel";

const TAG = "semel";
/** The browser ends an event that takes longer than some minutes. */
const SEND_MS_MAX = 120_000;
/** So long a tab is waited for that may be about to go. */
const GOING_MS_MAX = 10_000;
const LOOK_MS = 250;

/** In the service worker, when it is first evaluated: `options` gives what `Semel.open` gets in the page. */
export function sendInBackground(options) {
  addEventListener("sync", (event) => {
    if (event.tag === TAG) event.waitUntil(send(options));
  });
}

async function send(options) {
  const semel = await Semel.open(await options());
  try {
    const begun = performance.now();
    while (await hasMore(semel, performance.now() - begun)) await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  } finally {
    await semel.close();
  }
}

/** Whether there is more to send after so long. */
async function hasMore(semel, afterMs) {
  const states = (await semel.pending()).map(({ state }) => state);
  if (states.includes("elsewhere") && afterMs < GOING_MS_MAX) return true;
  if (!states.includes("sending")) return false;
  if (afterMs > SEND_MS_MAX) throw new Error("semel: not all is answered yet");
  return true;
}

/** In the page: asks the browser for a sync when something waits and the page may be about to go. */
export function askToSendInBackground(semel) {
  let registration;
  const ask = () => {
    const { pending, online } = semel.getSnapshot();
    // A tab that is there and online sends by itself.
    if (pending > 0 && (!online || document.hidden)) registration?.sync?.register(TAG).catch(() => {});
  };
  semel.subscribe(ask);
  for (const type of ["visibilitychange", "pagehide"]) addEventListener(type, ask, true);
  navigator.serviceWorker?.ready.then((ready) => {
    registration = ready;
    ask();
  });
}
