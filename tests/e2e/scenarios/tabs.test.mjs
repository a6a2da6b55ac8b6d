// Several tabs of one origin: each request belongs to one of them, what a tab leaves goes on in another, and where two tabs
// send one id all the same, it does no harm.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { madeOnce, pending, recovered, small, startBank } from "../bank.mjs";
import { crash } from "../browser.mjs";
import { until } from "../lossy.mjs";
import { leftOver, sameId } from "./shared.mjs";

/** Past this, what runs hangs. */
const LIMIT = { timeout: 60_000 };

const bank = await startBank(after);
const { server, browser, through } = bank;

/** Half of them are closed, the others crash: no page says goodbye. */
const end = (page, place) => (place % 2 === 0 ? page.close() : crash(page));

for (const count of [2, 5]) {
  test(`of ${count} tabs all but one end in mid-request: what they left goes on in the last, and each effect is exact`, LIMIT, leftOver(bank, count, end));
}

test("five tabs at work at once: each sends its own and nobody else's, and each caller gets its answer", LIMIT, async (t) => {
  const TABS = 5;
  const { proxy, tab } = await through(t, { loseRequests: 1 / 4, loseAnswers: 1 / 4, duplicate: 1 / 10 });
  const tabs = [];
  for (let n = 0; n < TABS; n += 1) tabs.push(await tab());
  for (const page of tabs) await page.evaluate(() => bank.takeRecovered());
  // Each tab has deposits to the same accounts: they meet at the keys.
  const deposits = tabs.map((_, place) => Array.from({ length: 6 }, (_, n) => small(`five-${n % 2}`, 2 ** (place * 3 + Math.floor(n / 2)))));
  const heard = await Promise.all(tabs.map((page, place) => page.evaluate((some) => Promise.all(some.map((deposit) => bank.deposit(deposit))), deposits[place])));
  for (const [place, own] of heard.entries()) {
    for (const [index, { status, text }] of own.entries()) {
      const { account, amount } = deposits[place][index];
      assert.deepEqual([status, JSON.parse(text).id, Math.floor(JSON.parse(text).balance / amount) % 2], [200, account, 1]);
    }
    // One tab's calls for one key run in the order of the calls.
    for (const key of [0, 1]) {
      const entries = own.filter((_, index) => index % 2 === key).map(({ text }) => JSON.parse(text).entries);
      assert.deepEqual(entries, [...entries].sort((one, other) => one - other));
    }
  }
  for (const page of tabs) assert.deepEqual(await recovered(page), []);
  proxy.calm();
  await until(async () => (await pending(tabs[0])).length === 0, "nothing is pending");
  await madeOnce(server, deposits.flat());
  assert.equal(proxy.changes.size, deposits.flat().length, "each under one id");
});

test("two tabs without Web Locks send one id at once: it runs once, and both are told the truth", LIMIT, sameId(bank));

test("no page has had an error that nobody caught", () => assert.deepEqual(browser.errors, []));
