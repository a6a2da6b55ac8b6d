// A bank for a test file: the ledger on workerd, a browser, and tabs with an outbox that sends through a proxy.
//
// If an account gets several deposits, their amounts are powers of two. So the balance tells which of them were made; and if the account has as many
// entries as the balance has bits, each was made once.

import assert from "node:assert/strict";
import { browse } from "./browser.mjs";
import { orEnd } from "./ending.mjs";
import { startLossy } from "./lossy.mjs";
import { serve } from "./server.mjs";

const RETRY_INTERVAL_MS = 50;

/** Starts it. `after` is node:test's. `start`: starts a browser, Chromium by default. `more`: further options of the server. */
export async function startBank(after, { start = browse, ...more } = {}) {
  const server = await serve(after, "ledger", {}, more);
  const browser = await orEnd(start(after), () => server.kill());
  /** Makes a proxy for a test, and tabs with an outbox that sends through it. Each proxy has its own origin, and so its own outbox. */
  const through = async (t, faults = {}) => {
    const proxy = await startLossy({ target: () => server.url, seed: 23, ...faults });
    const tabs = [];
    t.after(async () => {
      await Promise.all(tabs.map((tab) => tab.close()));
      await proxy.close();
    });
    const open = (tab, options = {}) => tab.evaluate((options) => bank.open(options), { url: proxy.url, retryIntervalMs: RETRY_INTERVAL_MS, ...options });
    /** Opens a tab without an outbox. */
    const blank = async () => {
      const opened = await browser.tab();
      tabs.push(opened);
      return opened;
    };
    const tab = async (options) => {
      const opened = await blank();
      await open(opened, options);
      return opened;
    };
    return { proxy, open, blank, tab };
  };
  return { server, browser, through };
}

let numbers = 1000;
/** A deposit of a test that makes only a few. */
export function small(account, amount) {
  numbers += 1;
  return { n: numbers, account, amount };
}

export const make = (tab, deposit) => tab.evaluate((deposit) => bank.deposit(deposit), deposit);
/** Hands a deposit to the SDK without waiting for its answer. */
export const begin = (tab, deposit) => tab.evaluate((deposit) => void bank.deposit(deposit), deposit);
export const pending = (tab) => tab.evaluate(() => bank.pending());
export const recovered = (tab) => tab.evaluate(() => bank.recovered);
export const answers = (tab) => tab.evaluate(() => bank.answers);

/** What the proxy has seen of a deposit. */
const change = (proxy, { n }) => [...proxy.changes.values()].find(({ path }) => numberOf(path) === n);
export const attempts = (proxy, deposit) => change(proxy, deposit)?.attempts ?? 0;
/** How many answers to a deposit were lost. */
export const unheard = (proxy, deposit) => change(proxy, deposit)?.lostAnswers ?? 0;

/** The answer to the first deposit of an account. */
export const first = (id, amount) => JSON.stringify({ id, balance: amount, entries: 1 });

/** Checks that the server has made each of these deposits once, and no others. */
export async function madeOnce(server, deposits) {
  for (const account of new Set(deposits.map(({ account }) => account))) {
    const amounts = deposits.filter((deposit) => deposit.account === account).map(({ amount }) => amount);
    const balance = amounts.reduce((sum, amount) => sum + amount, 0);
    assert.deepEqual(await server.account(account), { id: account, balance, entries: amounts.length });
  }
}

/** Checks that nothing was ever executed at this account. */
export async function neverMade(server, account) {
  assert.deepEqual(await server.account(account), { id: account, balance: 0, entries: 0 });
}

export function numberOf(url) {
  return Number(new URL(url, "http://any").searchParams.get("n"));
}
