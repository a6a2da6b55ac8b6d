// A device whose clock is a day ahead or behind: deadlines and first-sent must be by the server's clock.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { begin, first, madeOnce, make, pending, recovered, small, startBank, unheard } from "../bank.mjs";
import { until } from "../lossy.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 60_000 };
const DAY_MS = 24 * 60 * 60_000;
/** How far two clocks of one machine may be apart, with the rounding to a second. */
const APART_MS_MAX = 10_000;

const { server, through } = await startBank(after);

/** Puts the wall clock of every page in this tab off by `clockOffMs`, which the page may change. */
const offBy = (page, ms) =>
  page.addInitScript((ms) => {
    const Real = Date;
    window.clockOffMs = ms;
    window.Date = class extends Real {
      constructor(...given) {
        if (given.length === 0) super(Real.now() + window.clockOffMs);
        else super(...given);
      }
      static now() {
        return Real.now() + window.clockOffMs;
      }
    };
  }, ms);

/** Notes for each change when it says that it was first sent, and its deadline, both relative to now. `check()` checks them. */
function watched() {
  const seen = [];
  const instead = ({ method, headers }) => {
    if (method !== "POST" || !headers["semel-first-sent"]) return;
    seen.push([Number(headers["semel-first-sent"].slice(1)) * 1000 - Date.now(), Number(headers["semel-deadline"]) - Date.now()]);
  };
  const check = () => {
    assert.ok(seen.length > 0);
    for (const [firstSent, deadline] of seen) assert.ok(Math.abs(firstSent) < APART_MS_MAX && deadline > 0 && deadline < 10_000 + APART_MS_MAX, `${firstSent} ${deadline}`);
  };
  return { instead, check };
}

for (const [word, off] of [["ahead", DAY_MS], ["behind", -DAY_MS]]) {
  test(`on a device whose clock is a day ${word}, through faults and a reload, each effect is exact and each caller answered`, LIMIT, async (t) => {
    const { instead, check } = watched();
    const { proxy, open, blank } = await through(t, { loseRequests: 1 / 3, loseAnswers: 1 / 3, instead });
    const page = await blank();
    await offBy(page, off);
    await page.reload();
    await open(page);
    assert.ok(Math.abs((await page.evaluate(() => Date.now())) - Date.now() - off) < APART_MS_MAX, "the clock is off");
    const deposits = [0, 1, 2, 3].map((n) => small(`day-${word}`, 2 ** n));
    for (const [index, deposit] of deposits.entries()) {
      const { status, text } = await make(page, deposit);
      assert.deepEqual([status, JSON.parse(text).entries], [200, index + 1]);
    }
    Object.assign(proxy.settings, { loseAnswers: 1, spare: ({ method }) => method !== "POST" });
    const last = small(`day-${word}`, 16);
    await begin(page, last);
    await until(() => unheard(proxy, last) > 0, "it ran, and nobody knows");
    await page.reload();
    await open(page);
    await page.evaluate(() => bank.takeRecovered());
    proxy.calm();
    await until(async () => (await pending(page)).length === 0, "nothing is pending");
    assert.deepEqual((await recovered(page)).map(({ n, status }) => [n, status]), [[last.n, 200]]);
    await madeOnce(server, [...deposits, last]);
    check();
  });

  test(`setting the clock a day ${word === "ahead" ? "forward" : "back"} in mid-request changes no deadline and no effect, on this page and the next`, LIMIT, async (t) => {
    const { instead, check } = watched();
    const { proxy, open, blank } = await through(t, { loseAnswers: 1, spare: ({ method }) => method !== "POST", instead });
    const page = await blank();
    await offBy(page, 0);
    await page.reload();
    await open(page);
    const deposit = small(`set-${word}`, 1);
    await begin(page, deposit);
    await until(() => unheard(proxy, deposit) > 0, "it ran, and nobody knows");
    await page.evaluate((off) => (window.clockOffMs = off), off);
    const before = unheard(proxy, deposit);
    await until(() => unheard(proxy, deposit) > before + 2, "it is sent again");
    const second = small(`set-${word}`, 2);
    await begin(page, second);
    await until(async () => (await pending(page)).length === 2, "another waits behind it");
    // The next page knows only the wrong clock.
    await page.addInitScript((off) => (window.clockOffMs = off), off);
    await page.reload();
    await open(page);
    await page.evaluate(() => bank.takeRecovered());
    proxy.calm();
    await until(async () => (await pending(page)).length === 0, "nothing is pending");
    const heard = (await recovered(page)).map(({ n, status, text }) => `${n} ${status} ${text}`);
    assert.deepEqual(heard.sort(), [`${deposit.n} 200 ${first(deposit.account, 1)}`, `${second.n} 200 ${JSON.stringify({ id: second.account, balance: 3, entries: 2 })}`]);
    await madeOnce(server, [deposit, second]);
    check();
  });
}
