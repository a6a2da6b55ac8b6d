// Several tabs of one origin: each request belongs to one of them, what a tab leaves goes on in another, and where two tabs
// send one id all the same, it does no harm.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { answers, attempts, begin, first, madeOnce, numberOf, pending, recovered, small, startBank, unheard } from "../bank.mjs";
import { gate, until } from "../lossy.mjs";

/** Past this, what runs hangs. */
const LIMIT = { timeout: 60_000 };

const { server, browser, through } = await startBank(after);

/** What a page was told, as `n status text`, by promises or by `onrecovered`. */
const told = ({ n, status, text, error }) => (error ? `${n} ${error.code} ${error.executed}` : `${n} ${status} ${text}`);

for (const count of [2, 5]) {
  test(`of ${count} tabs all but one end in mid-request: what they left goes on in the last, and each effect is exact`, LIMIT, async (t) => {
    const EACH = 4;
    const { proxy, tab } = await through(t, { loseAnswers: 1, spare: ({ method }) => method !== "POST" });
    const tabs = [];
    for (let n = 0; n < count; n += 1) tabs.push(await tab());
    for (const page of tabs) await page.evaluate(() => bank.takeRecovered());
    const deposits = tabs.map((_, place) => Array.from({ length: EACH }, (_, n) => small(`of-${count}-${n}`, 2 ** place)));
    await Promise.all(tabs.map(async (page, place) => {
      for (const deposit of deposits[place]) await begin(page, deposit);
    }));
    const all = deposits.flat();
    await until(() => all.every((deposit) => unheard(proxy, deposit) > 0), "all ran, and nobody knows");
    const last = tabs.at(-1);
    // Half of them are closed, the others crash: no page says goodbye.
    for (const [place, page] of tabs.slice(0, -1).entries()) {
      if (place % 2 === 0) await page.close();
      else {
        const crashed = new Promise((resolve) => page.once("crash", resolve));
        page.goto("chrome://crash").catch(() => {});
        await crashed;
      }
    }
    await until(async () => (await pending(last)).every(({ state }) => state === "sending"), "the last tab has taken over all");
    assert.equal((await pending(last)).length, all.length);
    proxy.calm();
    await until(async () => (await pending(last)).length === 0, "nothing is pending");
    const [own, others] = [await answers(last), await recovered(last)];
    assert.deepEqual(own.map(({ n }) => n).sort(), deposits.at(-1).map(({ n }) => n).sort());
    assert.deepEqual(others.map(({ n }) => n).sort(), deposits.slice(0, -1).flat().map(({ n }) => n).sort());
    for (const { n, status, text, semel } of [...own, ...others]) {
      const { account, amount } = all.find((deposit) => deposit.n === n);
      const { id, balance } = JSON.parse(text);
      assert.deepEqual([status, semel, id, Math.floor(balance / amount) % 2], [200, "replayed", account, 1]);
    }
    await madeOnce(server, all);
    assert.equal(proxy.changes.size, all.length, "each under one id");
  });
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

test("two tabs without Web Locks send one id at once: it runs once, and both are told the truth", LIMIT, async (t) => {
  const deposit = small("same-id", 1);
  const wire = gate(({ method, url }) => method === "POST" && numberOf(url) === deposit.n);
  const { proxy, open, blank } = await through(t, { hold: wire.hold });
  // Without a beacon a tab can't know that another lives, and takes over what it finds.
  const unlit = async () => {
    const page = await blank();
    await page.evaluate(() => Object.defineProperty(navigator, "locks", { value: undefined }));
    await open(page);
    return page;
  };
  const one = await unlit();
  await begin(one, deposit);
  await until(() => wire.held.length === 1, "the first tab's attempt is in the network");
  const two = await unlit();
  await two.evaluate(() => bank.takeRecovered());
  await until(() => wire.held.length === 2, "so is the second's, of the same id");
  assert.equal(proxy.changes.size, 1);
  wire.open();
  await until(async () => (await answers(one)).length + (await recovered(two)).length > 0, "one of them hears of it");
  await until(async () => (await pending(two)).length === 0 && (await answers(one)).length === 1, "nothing is pending, and nobody waits");
  const [[own], taken] = [await answers(one), await recovered(two)];
  const outcome = `${deposit.n} 200 ${first(deposit.account, 1)}`;
  // The second forgets it once it has told: then the first can't know it any more.
  assert.ok([outcome, `${deposit.n} outcome-lost unknown`].includes(told(own)), told(own));
  assert.ok(taken.every((answer) => told(answer) === outcome) && taken.length <= 1, JSON.stringify(taken));
  assert.ok([told(own), ...taken.map(told)].includes(outcome), "somebody has the outcome");
  assert.equal(attempts(proxy, deposit), 2);
  await madeOnce(server, [deposit]);
});
