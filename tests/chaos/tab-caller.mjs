// Tabs of one Chromium that contend for a session. Each is a client, and all share one store.
//
// Invariants:
// - What a tab leaves, another may go on with. An answer goes to the client that made the deposit, whichever tab told it.
// - A tab may be killed alone. With the browser, all are killed.

import { fileURLToPath } from "node:url";
import { browse, crash } from "../e2e/browser.mjs";
import { Caller } from "./caller.mjs";

const PAGE = fileURLToPath(new URL("page", import.meta.url));
/** How long a client that was fenced waits for its turn, times its place among the tabs. */
const PAUSE_MS = 60;

/** Starts them. `transports`: that of each tab. `after`: gets what ends the browser. `browsing`: starts the browser. */
export async function startTabs({ book, atATime, options, transports, after, browsing = browse }) {
  const onTold = (answer) => callers.find(({ name }) => name === book.clientOf(answer.n)).told(answer);
  const tabs = new Tabs(await browsing(after, { page: PAGE, onTold }));
  const callers = transports.map((transport, place) => {
    const caller = new TabCaller(`tab-${place}`, book, atATime);
    caller.settings = { tabs, book, options, tills: { transport, pauseMs: PAUSE_MS * (1 + place) } };
    return caller;
  });
  tabs.callers = callers;
  await Promise.all(callers.map((caller) => caller.start()));
  return tabs;
}

class Tabs {
  callers = [];
  kills = 0;
  browser;
  isRunning = true;

  constructor(browser) {
    this.browser = browser;
  }

  /** Does `kill -9` to the browser. */
  async kill() {
    this.kills += 1;
    this.isRunning = false;
    await Promise.all([this.browser.kill(), ...this.callers.map((caller) => caller.kill())]);
  }

  async start() {
    await this.browser.start();
    this.isRunning = true;
    await Promise.all(this.callers.map((caller) => caller.start()));
  }

  /** How often a tab was killed without the browser. */
  get killsAlone() {
    return this.callers.reduce((all, { killsAlone }) => all + killsAlone, 0);
  }

  /** Uncaught errors of all pages. */
  get errors() {
    return this.browser.errors.map((error) => `tabs: ${error.stack ?? error}`);
  }
}

class TabCaller extends Caller {
  /** Whether the proxy sees what it sends. It does not: some tabs use sockets, and any tab may go on with what another left. */
  isSeen = false;
  killsAlone = 0;
  #tab;

  async launch() {
    const { tabs, book, options, tills } = this.settings;
    this.#tab = await tabs.browser.tab();
    const stored = await this.#tab.evaluate((settings) => chaos.openTills(...settings), [options, tills]);
    return stored.filter((n) => book.clientOf(n) === this.name && !book.isAnswered(n));
  }

  takeRecovered() {
    return this.#tab.evaluate((accounts) => chaos.calls.takeRecovered(accounts), this.settings.book.accounts);
  }

  begin(deposit) {
    return this.#tab.evaluate((deposit) => void chaos.calls.deposit(deposit), deposit);
  }

  pending() {
    return this.#tab.evaluate(() => chaos.calls.pending());
  }

  async end() {
    if (!this.settings.tabs.isRunning) return;
    this.killsAlone += 1;
    await crash(this.#tab);
    await this.#tab.close();
  }
}
