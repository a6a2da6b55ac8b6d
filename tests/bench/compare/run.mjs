// Runs one library in Chromium through the script of `orders.mjs`.
//
// Invariant: what a page was told is read just before the page goes. At that time the network hangs or is gone, so the page can't be told more.

import { setTimeout as delay } from "node:timers/promises";
import { startOrigin } from "./origin.mjs";
import { DOUBLE_CLICKED, ORDERS } from "./orders.mjs";

/** The pause between two clicks: that of a quick user, and never two in one turn. */
const CLICK_MS = 25;
/** The pause before a page goes: longer than any of the libraries waits before it writes to its store (a second). */
const PERSIST_MS = 3_000;
/** After this silence nothing will come any more: no library waits this long between two attempts of an order in this script. */
const QUIET_MS = 8_000;
const NUDGE_MS = 1_000;
const POLL_MS = 100;
const SETTLE_MS_MAX = 180_000;

/** Resolves to `{ words, left, effects, dealt, attempts }`. `left`: for each departure of a page, which orders had their last word by then. */
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

  /** Keeps what the page that goes now was told. */
  leave(name, words) {
    this.told.push(...words);
    this.left[name] = lastWords(this.told);
  }

  /** Waits until every order has its last word, or until nothing comes any more. */
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

  /** Fires at once a failed sync event, which the browser would fire again on its own minutes later. */
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

/** Which orders are known to be made or to have failed. "queued" and "unknown" are no last words. */
export function lastWords(words) {
  return new Map(words.filter(({ word }) => word === "made" || word === "failed").map(({ n, word }) => [n, word]));
}
