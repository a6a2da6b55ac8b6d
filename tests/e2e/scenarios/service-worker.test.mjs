// A service worker goes on after the last tab is closed, by the browser's own Background Sync.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { attempts, begin, first, madeOnce, neverMade, numberOf, pending, recovered, small, startBank, unheard } from "../bank.mjs";
import { browse } from "../browser.mjs";
import { gate, until } from "../lossy.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 60_000 };

// Without `isBare`, a hidden tab would count as visible, and never ask for a sync.
const { server, browser, through } = await startBank(after, { start: (after) => browse(after, { isBare: true }) });

test("after the last tab is closed the service worker sends what is left, and the next page hears the answers", LIMIT, async (t) => {
  const [waiting, behind, lost] = [small("worker-waiting", 1), small("worker-waiting", 2), small("worker-lost", 1)];
  const wire = gate(({ method, url }) => method === "POST" && numberOf(url) === waiting.n);
  const { proxy, blank, open, tab } = await through(t, { loseAnswers: 1, spare: ({ method, url }) => method !== "POST" || numberOf(url) !== lost.n, hold: wire.hold });
  const page = await blank();
  await open(page);
  await page.evaluate((options) => bank.sendInBackground(options), { url: proxy.url, retryIntervalMs: 50 });
  for (const deposit of [waiting, behind, lost]) await begin(page, deposit);
  await until(() => wire.held.length > 0 && unheard(proxy, lost) > 0, "one is in the network, and one ran unheard");
  await until(async () => (await pending(page)).length === 3, "the third is stored");
  // A tab of another site comes to the front, and this one is closed. So no tab of its site is left.
  const other = await browser.tab("about:blank");
  await other.bringToFront();
  await until(() => page.evaluate(() => navigator.serviceWorker.ready.then(({ sync }) => sync.getTags()).then((tags) => tags.includes("semel"))), "it has asked");
  await page.close();
  const [heldBefore, triedBefore] = [wire.held.length, attempts(proxy, lost)];
  await until(() => wire.held.length > heldBefore && attempts(proxy, lost) > triedBefore + 2, "the service worker sends both again");
  await neverMade(server, waiting.account);
  proxy.calm();
  wire.open();
  // Only the service worker can have sent this one.
  await until(async () => (await server.account(behind.account)).entries === 2, "what was behind has run");

  const next = await tab();
  await next.evaluate(() => bank.takeRecovered());
  await until(async () => (await pending(next)).length === 0, "nothing is pending");
  const heard = (await recovered(next)).map(({ n, status, text }) => `${n} ${status} ${text}`).sort();
  assert.deepEqual(heard, [`${waiting.n} 200 ${first(waiting.account, 1)}`, `${behind.n} 200 ${JSON.stringify({ id: behind.account, balance: 3, entries: 2 })}`, `${lost.n} 200 ${first(lost.account, 1)}`]);
  await madeOnce(server, [waiting, behind, lost]);
  assert.equal(proxy.changes.size, 3, "each under one id");
});

test("a page that is left while it is visible hands its request to the service worker, and the next page takes it back", LIMIT, async (t) => {
  const bank = await startBank((end) => t.after(end), { start: (after) => browse(after, { isBare: true }) });
  const lost = small("worker-left", 1);
  const { proxy, blank, open, tab } = await bank.through(t, { loseAnswers: 1, spare: ({ method }) => method !== "POST" });
  const page = await blank();
  await open(page);
  await page.bringToFront();
  const options = { url: proxy.url, retryIntervalMs: 50 };
  await page.evaluate((options) => bank.sendInBackground(options), options);
  await begin(page, lost);
  await until(() => unheard(proxy, lost) > 0, "it ran unheard");
  await page.goto("about:blank");
  const triedBefore = attempts(proxy, lost);
  await until(() => attempts(proxy, lost) > triedBefore + 2, "the service worker sends it again");
  const next = await tab();
  await next.evaluate((options) => bank.sendInBackground(options), options);
  await until(async () => (await pending(next))[0]?.state === "sending", "the page has it");
  proxy.calm();
  await next.evaluate(() => bank.takeRecovered());
  await until(async () => (await recovered(next)).length === 1, "it is told");
  await madeOnce(bank.server, [lost]);
});
