// One library in Chromium, through the script of `orders.mjs`.
//
// Invariant: what a page knew when it went is read before it goes; then the network hangs or is gone, so nothing is told meanwhile.

import { setTimeout as delay } from "node:timers/promises";
import { startOrigin } from "./origin.mjs";
import { DOUBLE_CLICKED, ORDERS } from "./orders.mjs";

/** Between two clicks: a quick user, and no two in one turn. */
const CLICK_MS = 25;
/** Before the page goes: more than any of them waits before it writes to its store (a second). */
const PERSIST_MS = 3_000;
/** No library of these waits so long between two attempts of an order in this script: then nothing will come any more. */
const QUIET_MS = 8_000;
const NUDGE_MS = 1_000;
const POLL_MS = 100;
const SETTLE_MS_MAX = 180_000;

/** Resolves to `{ words, left, effects, dealt, attempts }`; `left`: what was told of which orders when each page went. */
export async function runLibrary({ browser, library, files, backend }) {
  const origin = await startOrigin({ files, backend });
  const user = new User(browser, origin, library);
  try {
    await user.open();
    await user.click(ORDERS.before);
    await user.settle();

    origin.hangs = true;
    await user.click(ORDERS.inFlight);
    await delay(PERSIST_MS);
    user.leave("inFlight", await user.words());
    await user.reload();
    origin.release();
    await user.settle();

    origin.isDown = true;
    await browser.offline(true);
    await user.click(ORDERS.offline);
    await delay(PERSIST_MS);
    user.leave("offline", await user.words());
    await user.close();
    origin.isDown = false;
    await browser.offline(false);
    await user.open();
    await user.settle();

    await user.click(ORDERS.after);
    await user.settle();
    for (const n of DOUBLE_CLICKED) await user.click([n, n]);
    await user.settle();
    user.leave("end", await user.words());
    await user.close();
    return { words: user.told, left: user.left, effects: await backend.effects(), dealt: origin.dealt, attempts: origin.attempts };
  } finally {
    await origin.close();
  }
}

class User {
  /** What pages that are gone were told, in order: `{ n, word }`. */
  told = [];
  /** By departure: the orders that had their last word by then. */
  left = {};
  #browser;
  #origin;
  #library;
  #tab;
  #clicked = new Set();

  constructor(browser, origin, library) {
    this.#browser = browser;
    this.#origin = origin;
    this.#library = library;
  }

  async open() {
    this.#tab = await this.#browser.tab(this.#origin.url);
    await this.#ready();
  }

  async reload() {
    await this.#tab.reload();
    await this.#ready();
  }

  close() {
    return this.#tab.close();
  }

  async click(orders) {
    for (const n of orders) {
      this.#clicked.add(n);
      await this.#tab.evaluate((n) => shop.order(n), n);
      await delay(CLICK_MS);
    }
  }

  words() {
    return this.#tab.evaluate(() => shop.words);
  }

  /** Keeps what the page knew that goes now. */
  leave(name, words) {
    this.told.push(...words);
    this.left[name] = lastWords(this.told);
  }

  /** Until every order has its last word, or nothing comes any more. */
  async settle() {
    const sync = this.#library.syncTag && (await this.#syncEvents(this.#library.syncTag));
    const end = Date.now() + SETTLE_MS_MAX;
    let [seen, at, nudged] = ["", Date.now(), Date.now()];
    for (;;) {
      const words = [...this.told, ...(await this.words())];
      const known = lastWords(words);
      if ([...this.#clicked].every((n) => known.has(n))) return;
      const now = Date.now();
      const state = `${this.#origin.attempts} ${words.length}`;
      if (state !== seen) [seen, at] = [state, now];
      if (now - at > QUIET_MS) return;
      if (now > end) throw new Error(`${this.#library.id}: it does not come to rest`);
      if (sync && now - nudged > NUDGE_MS) {
        nudged = now;
        await sync();
      }
      await delay(POLL_MS);
    }
  }

  #ready() {
    return this.#tab.waitForFunction(() => window.shop !== undefined);
  }

  /** What the browser does later by itself, minutes apart, done at once: it fires a sync event again that failed. */
  async #syncEvents(tag) {
    const devtools = await this.#tab.context().newCDPSession(this.#tab);
    const registered = new Promise((resolve) => {
      devtools.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => {
        const ours = registrations.find(({ scopeURL, isDeleted }) => scopeURL.startsWith(this.#origin.url) && !isDeleted);
        if (ours) resolve(ours.registrationId);
      });
    });
    await devtools.send("ServiceWorker.enable");
    const registrationId = await registered;
    return () => devtools.send("ServiceWorker.dispatchSyncEvent", { origin: this.#origin.url, registrationId, tag, lastChance: false });
  }
}

/** Which orders are known to have been made, or to have failed. "queued" and "unknown" are no last words. */
export function lastWords(words) {
  return new Map(words.filter(({ word }) => word === "made" || word === "failed").map(({ n, word }) => [n, word]));
}
