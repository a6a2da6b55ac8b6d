// The scenarios in WebKit: those that need only tabs, reloads, and `kill -9`, of the whole browser or of the process that stores the rows; and a page
// that WebKit keeps in memory when it is left, and shows again.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { answers, attempts, begin, first, madeOnce, make, numberOf, pending, recovered, small, startBank, unheard } from "../bank.mjs";
import { gate, until } from "../lossy.mjs";
import { playSessions } from "../scenarios/sessions.mjs";
import { play } from "../scenarios/shared.mjs";
import { browseWebKit } from "./browser.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 120_000 };

let webKit;
const start = async (after) => {
  webKit = await browseWebKit(after);
  return webKit.browser;
};
const bank = await startBank(after, { start });
const { browser } = bank;

play("WebKit", LIMIT, bank);
playSessions("WebKit", LIMIT, bank);

test("WebKit: a page that is restored from the page cache goes on with its requests, and no other tab takes them over", LIMIT, async (t) => {
  const [before, since] = [small("shown-again", 1), small("shown-again", 2)];
  const { proxy, tab } = await bank.through(t, { loseAnswers: 1, spare: ({ method }) => method !== "POST" });
  const page = await tab();
  const url = await page.evaluate(() => {
    addEventListener("pageshow", ({ persisted }) => (window.isShownAgain = persisted));
    return location.href;
  });
  await begin(page, before);
  await until(() => unheard(proxy, before) > 0, "one ran, and nobody knows");
  await page.goto(`${url}?next`);
  await page.back();
  await until(() => page.evaluate(() => window.isShownAgain).catch(() => false), "it is shown again, and not loaded");

  // This one waits for its turn, because the first has no answer yet.
  await begin(page, since);
  const other = await tab();
  await other.evaluate(() => bank.takeRecovered());
  await until(async () => (await pending(other)).length === 2, "both are stored");
  assert.deepEqual((await pending(other)).map(({ state }) => state), ["elsewhere", "elsewhere"]);
  proxy.calm();
  await until(async () => (await answers(page)).length === 2, "its callers are answered");
  assert.deepEqual((await answers(page)).map(({ n, status }) => [n, status]), [[before.n, 200], [since.n, 200]]);
  assert.deepEqual([await pending(other), await recovered(other)], [[], []]);
  await madeOnce(bank.server, [before, since]);
  assert.equal(proxy.changes.size, 2, "each under one id");
});

test("WebKit: a page that is left in the middle of a transaction does not block the rows for others, and stores its request once it is shown again", LIMIT, async (t) => {
  const [deposit, last] = [small("left-open", 1), small("left-open", 2)];
  const { proxy, tab } = await bank.through(t);
  const page = await tab();
  const url = await page.evaluate(() => location.href);
  // A transaction ends when nothing more is asked of it. These go on until the page is shown again.
  await page.evaluate((last) => {
    const { transaction: begin } = IDBDatabase.prototype;
    IDBDatabase.prototype.transaction = function (...of) {
      const transaction = begin.apply(this, of);
      const rows = transaction.objectStore("rows");
      const goOn = () => void (rows.get("none").onsuccess = window.isShownAgain ? null : goOn);
      goOn();
      window.isOpen = true;
      return transaction;
    };
    addEventListener("pageshow", () => (window.isShownAgain = true), { capture: true });
    // After the SDK's own.
    addEventListener("pagehide", () => void bank.deposit(last));
  }, last);
  await begin(page, deposit);
  await until(() => page.evaluate(() => window.isOpen), "the transaction is open");
  await page.goto(`${url}?next`);
  const other = await tab();
  assert.deepEqual(await pending(other), [], "another tab reads the rows, and the page's are not among them");
  assert.equal(proxy.changes.size, 0);
  await page.back();
  await until(() => page.evaluate(() => window.isShownAgain).catch(() => false), "it is shown again, and not loaded");
  await until(async () => (await answers(page)).length === 2, "its callers are answered");
  assert.deepEqual((await answers(page)).map(({ n, status }) => [n, status]), [[deposit.n, 200], [last.n, 200]]);
  await madeOnce(bank.server, [deposit, last]);
});

test("WebKit: a page that is left while it makes its store does not keep others from having one, and has it once it is shown again", LIMIT, async (t) => {
  const deposit = small("left-making", 1);
  const { proxy, open, blank } = await bank.through(t);
  // The proxy is new, and with it the name of the store.
  const page = await blank();
  const url = await page.evaluate(() => location.href);
  await page.evaluate(() => {
    const { createObjectStore: make } = IDBDatabase.prototype;
    IDBDatabase.prototype.createObjectStore = function (...of) {
      const rows = make.apply(this, of);
      const goOn = () => void (rows.get("none").onsuccess = window.isShownAgain ? null : goOn);
      goOn();
      window.isMaking = true;
      return rows;
    };
    addEventListener("pageshow", () => (window.isShownAgain = true), { capture: true });
  });
  // Not awaited, because the page can be left only after its script has an answer.
  await page.evaluate((options) => void (window.opening = bank.open(options)), { url: proxy.url });
  await until(() => page.evaluate(() => window.isMaking), "it makes its store");
  await page.goto(`${url}?next`);
  const other = await blank();
  await open(other);
  assert.deepEqual(await pending(other), []);
  await page.back();
  await until(() => page.evaluate(() => window.isShownAgain).catch(() => false), "it is shown again, and not loaded");
  await page.evaluate(() => window.opening);
  assert.equal((await make(page, deposit)).status, 200);
});

test("WebKit: if the process that stores the rows is killed under a page, its requests run once and are answered", LIMIT, async (t) => {
  const { proxy, tab } = await bank.through(t);
  const page = await tab();
  const deposits = Array.from({ length: 40 }, (_, n) => ({ account: "server-lost", amount: 2 ** n }));
  await page.evaluate(async (deposits) => {
    const make = ({ account, amount }) =>
      bank.fetch(`/accounts/${account}/deposit`, { method: "POST", body: JSON.stringify({ amount }) }).then(({ status }) => status, ({ code, executed, cause }) => `${code} ${executed}: ${cause}`);
    const answers = [];
    const tell = () => fetch("/tell", { method: "POST", body: JSON.stringify({ answers }) }).catch(() => new Promise((again) => setTimeout(again, 50)).then(tell));
    (async () => {
      for (const deposit of deposits) answers.push(await make(deposit));
      await tell();
    })();
  }, deposits);
  await until(() => proxy.changes.size > 5, "it is at work");
  await webKit.killNetwork();
  try {
    const { answers } = await until(() => browser.told.find(({ answers }) => answers), "all are answered", 60_000);
    assert.deepEqual(answers, deposits.map(() => 200));
    await madeOnce(bank.server, deposits);
    assert.equal(proxy.changes.size, deposits.length, "each under one id");
  } finally {
    await browser.kill();
    await browser.start();
  }
});

test("WebKit: if the process of a tab is killed in mid-request, another tab takes over and hears each answer once", LIMIT, async (t) => {
  const [waiting, behind, lost] = [small("crash-waiting", 1), small("crash-waiting", 2), small("crash-lost", 1)];
  const wire = gate(({ method, url }) => method === "POST" && numberOf(url) === waiting.n);
  const { proxy, tab } = await bank.through(t, { loseAnswers: 1, spare: ({ method, url }) => method !== "POST" || numberOf(url) !== lost.n, hold: wire.hold });
  const other = await tab();
  await other.evaluate(() => bank.takeRecovered());
  const before = await webKit.pageProcesses();
  const page = await tab();
  const [crashing, ...more] = (await webKit.pageProcesses()).filter((each) => !before.includes(each));
  assert.deepEqual(more, [], "it has a process of its own");
  for (const deposit of [waiting, behind, lost]) await begin(page, deposit);
  await until(() => wire.held.length > 0 && unheard(proxy, lost) > 0, "one is in the network, and one ran unheard");
  await until(async () => (await pending(page)).length === 3, "the third is stored");
  // WebDriver loses its session when the tab's process dies. So what comes after is known only from what the other tab reports.
  const from = browser.told.length;
  process.kill(crashing, "SIGKILL");
  try {
    await until(() => attempts(proxy, waiting) > 1, "the other tab sends what is in the network already", 30_000);
    proxy.calm();
    wire.open();
    const heard = () => browser.told.slice(from);
    await until(() => heard().length >= 3, "it hears of all");
    await madeOnce(bank.server, [waiting, behind, lost]);
    const texts = [[waiting.n, first(waiting.account, 1)], [behind.n, JSON.stringify({ id: behind.account, balance: 3, entries: 2 })], [lost.n, first(lost.account, 1)]];
    assert.deepEqual(heard().map(({ n, by, text }) => `${n} ${by} ${text}`).sort(), texts.map(([n, text]) => `${n} onrecovered ${text}`).sort());
    assert.equal(proxy.changes.size, 3, "each under one id");
  } finally {
    await browser.kill();
    await browser.start();
  }
});
