// A page that goes in mid-request: a reload, a tab that crashes, `kill -9` of the browser and a start with the same profile.
//
// When it goes, each of its requests is in another stage: answered; in the network, where it arrives after the page is gone;
// behind that one, at the same key, and never sent; executed, with the answer lost. The next page hears of all but the first.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { attempts, begin, first, madeOnce, make, numberOf, pending, recovered, small, startBank, unheard } from "../bank.mjs";
import { gate, until } from "../lossy.mjs";

/** Past this, what runs hangs. */
const LIMIT = { timeout: 60_000 };

const { server, browser, through } = await startBank(after);

const WAYS = {
  "a reload": async (page) => {
    await page.reload();
    return page;
  },
  "a crash of the tab": async (page, blank) => {
    const crashed = new Promise((resolve) => page.once("crash", resolve));
    // It never answers.
    page.goto("chrome://crash").catch(() => {});
    await crashed;
    return blank();
  },
  "kill -9 of the browser": async (_, blank) => {
    await browser.kill();
    await browser.start();
    return blank();
  },
};

for (const [way, leave] of Object.entries(WAYS)) {
  test(`${way} in mid-request: each effect is exact, and each caller's answer comes to the next page, once`, LIMIT, async (t) => {
    const [answered, waiting, behind, lost] = [["before", 1], ["waiting", 1], ["waiting", 2], ["lost", 1]].map(([name, amount]) => small(`${way.replace(/\W/g, "-")}-${name}`, amount));
    const wire = gate(({ method, url }) => method === "POST" && numberOf(url) === waiting.n);
    const { proxy, open, blank, tab } = await through(t, { loseAnswers: 1, spare: ({ method, url }) => method !== "POST" || numberOf(url) !== lost.n, hold: wire.hold });
    let page = await tab();
    assert.equal((await make(page, answered)).text, first(answered.account, 1));
    for (const deposit of [waiting, behind, lost]) await begin(page, deposit);
    await until(() => wire.held.length > 0 && unheard(proxy, lost) > 0, "one is in the network, and one ran unheard");
    await until(async () => (await pending(page)).length === 3, "the third is stored");

    page = await leave(page, blank);
    await open(page);
    assert.deepEqual((await pending(page)).map(({ url }) => numberOf(url)).sort(), [waiting.n, behind.n, lost.n]);
    const late = wire.held.length;
    await until(() => wire.held.length > late, "the next page sends what is in the network already");
    assert.equal(attempts(proxy, behind), 0, "what is behind waits its turn");
    proxy.calm();
    wire.open();
    await page.evaluate(() => bank.takeRecovered());
    await until(async () => (await pending(page)).length === 0, "nothing is pending");

    const texts = new Map([[waiting.n, first(waiting.account, 1)], [behind.n, JSON.stringify({ id: behind.account, balance: 3, entries: 2 })], [lost.n, first(lost.account, 1)]]);
    const heard = await recovered(page);
    assert.deepEqual(new Map(heard.map(({ n, status, text }) => [n, `${status} ${text}`])), new Map([...texts].map(([n, text]) => [n, `200 ${text}`])));
    assert.equal(heard.length, 3, "each once");
    await madeOnce(server, [answered, waiting, behind, lost]);
    assert.equal(proxy.changes.size, 4, "each under one id");
    assert.deepEqual(browser.errors, []);
  });
}
