// A page is left while its request hangs in the network: the SDK sends the request once more, in a way that outlives the page.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { attempts, begin, first, madeOnce, numberOf, recovered, small, startBank } from "../bank.mjs";
import { until } from "../lossy.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 60_000 };

const { server, browser, through } = await startBank(after);

for (const [way, leave] of Object.entries({ "another page": (page) => page.goto("about:blank"), "a closed tab": (page) => page.close() })) {
  test(`${way}: a request that hung in the network is made without the page, and the next page gets its answer`, LIMIT, async (t) => {
    const deposit = small(`leaving-${way.replace(/\W/g, "-")}`, 1);
    const arrived = [];
    // The first attempt never arrives.
    const hold = ({ method, url }) => (method === "POST" && numberOf(url) === deposit.n && arrived.push(url) === 1 ? new Promise(() => {}) : undefined);
    const { proxy, blank, open } = await through(t, { hold });
    const page = await blank();
    await open(page, { attemptTimeoutMs: 60_000 });
    await begin(page, deposit);
    await until(() => arrived.length === 1, "it is under way");

    await leave(page);
    await until(async () => (await server.account(deposit.account)).entries === 1, "it was made");
    assert.equal(attempts(proxy, deposit), 2, "the one that hangs, and the one that outlived the page");

    const next = await blank();
    await open(next);
    await next.evaluate(() => bank.takeRecovered());
    const heard = await until(async () => (await recovered(next)).length > 0 && recovered(next), "the next page hears of it");
    assert.deepEqual(heard.map(({ n, status, text }) => [n, status, text]), [[deposit.n, 200, first(deposit.account, 1)]]);
    await madeOnce(server, [deposit]);
    assert.equal(proxy.changes.size, 1, "under one id");
    assert.deepEqual(browser.errors, []);
  });
}
