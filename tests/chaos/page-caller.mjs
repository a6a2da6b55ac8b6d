// The client of a run that is a page in Chromium, with a profile that outlives it.

import { fileURLToPath } from "node:url";
import { browse } from "../e2e/browser.mjs";
import { Caller } from "./caller.mjs";
import { keptBytes } from "./heap.mjs";

const PAGE = fileURLToPath(new URL("page", import.meta.url));

/** Starts it. `after`: gets what ends the browser. */
export async function startPage({ book, atATime, options, after }) {
  const caller = new PageCaller("page", book, atATime);
  await caller.open(options, after);
  return caller;
}

class PageCaller extends Caller {
  #browser;
  #options;
  #tab;
  #isRunning = true;

  async open(options, after) {
    this.#options = options;
    this.#browser = await browse(after, { page: PAGE, onTold: (answer) => this.told(answer) });
    await this.start();
  }

  /** Uncaught errors of its pages. */
  get errors() {
    return this.#browser.errors.map((error) => `page: ${error.stack ?? error}`);
  }

  async launch() {
    if (!this.#isRunning) await this.#browser.start();
    this.#isRunning = true;
    this.#tab = await this.#browser.tab();
    return this.#tab.evaluate((options) => chaos.open(options), this.#options);
  }

  takeRecovered() {
    return this.#tab.evaluate(() => chaos.calls.takeRecovered());
  }

  begin(deposit) {
    return this.#tab.evaluate((deposit) => void chaos.calls.deposit(deposit), deposit);
  }

  pending() {
    return this.#tab.evaluate(() => chaos.calls.pending());
  }

  load(...args) {
    return this.#tab.evaluate((args) => chaos.calls.load(...args), args);
  }

  /** Resolves to the bytes in use once all garbage is collected. */
  usedBytes() {
    return keptBytes(this.#tab);
  }

  async end() {
    this.#isRunning = false;
    await this.#browser.kill();
  }
}
