// Several tabs of one origin: each request belongs to one of them, and another tab goes on with what a tab leaves behind. If two tabs send one id
// after all, that does no harm.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { first, madeOnce, pending, recovered, small, startBank } from "../bank.mjs";
import { crash } from "../browser.mjs";
import { gate, until } from "../lossy.mjs";
import { leftOver, sameId } from "./shared.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 60_000 };

const bank = await startBank(after);
const { server, browser, through } = bank;

/** Closes every second tab, and crashes the others. A crashed page can't say goodbye. */
const end = (page, place) => (place % 2 === 0 ? page.close() : crash(page));

for (const count of [2, 5]) {
  test(`of ${count} tabs all but the last end in mid-request: the last takes over their requests, and each runs once`, LIMIT, leftOver(bank, count, end));
}

test("five tabs work at the same keys at once: each request runs once under one id, and each caller gets its answer", LIMIT, async (t) => {
  const TABS = 5;
  const { proxy, tab } = await through(t, { loseRequests: 1 / 4, loseAnswers: 1 / 4, duplicate: 1 / 10 });
  const tabs = [];
  for (let n = 0; n < TABS; n += 1) tabs.push(await tab());
  for (const page of tabs) await page.evaluate(() => bank.takeRecovered());
  // All tabs make deposits to the same accounts, so they meet at the same keys.
  const deposits = tabs.map((_, place) => Array.from({ length: 6 }, (_, n) => small(`five-${n % 2}`, 2 ** (place * 3 + Math.floor(n / 2)))));
  const heard = await Promise.all(tabs.map((page, place) => page.evaluate((some) => Promise.all(some.map((deposit) => bank.deposit(deposit))), deposits[place])));
  for (const [place, own] of heard.entries()) {
    for (const [index, { status, text }] of own.entries()) {
      const { account, amount } = deposits[place][index];
      assert.deepEqual([status, JSON.parse(text).id, Math.floor(JSON.parse(text).balance / amount) % 2], [200, account, 1]);
    }
    // The calls of one tab for one key run in the order of the calls.
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

test("two tabs without Web Locks send one id at once: it runs once, and no tab hears a wrong outcome", LIMIT, sameId(bank));

test("five tabs make one request under the page's own id: it runs once, and each gets the answer, after a reload too", LIMIT, async (t) => {
  const deposit = small("own-id", 1);
  const wire = gate(({ method }) => method === "POST");
  const { proxy, open, tab } = await through(t, { hold: wire.hold });
  const tabs = [];
  for (let n = 0; n < 5; n += 1) tabs.push(await tab());
  const made = tabs.map((page) => page.evaluate((deposit) => bank.depositAs("order-17", deposit), deposit));
  await until(() => wire.held.length > 0, "one is in the network");
  await until(async () => (await Promise.all(tabs.map(pending))).every((own) => own.length === 1), "all know of it");
  // One of the tabs that made the request is reloaded, and asks for its outcome.
  const [reloaded] = tabs;
  made[0].catch(() => {});
  await reloaded.reload();
  await open(reloaded);
  made[0] = reloaded.evaluate(() => bank.outcome("order-17"));
  wire.open();
  const answers = await Promise.all(made);
  assert.deepEqual(answers.map(({ status, text }) => `${status} ${text}`), Array(5).fill(`200 ${first("own-id", 1)}`));
  assert.deepEqual([...proxy.changes.keys()], ["order-17"]);
  await madeOnce(server, [deposit]);
  await until(async () => (await pending(tabs[1])).length === 0, "nothing is pending");
});

test("no page has had an uncaught error", () => assert.deepEqual(browser.errors, []));
