// Offline: requests that are under way pause, new ones are kept, and online all of them go on at once.
//
// Where the interval between attempts is long, an earlier attempt can only be caused by the network's return, and not by a timer.

import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { answers, attempts, begin, first, madeOnce, pending, recovered, small, startBank, unheard } from "../bank.mjs";
import { until } from "../lossy.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 110_000 };
const MINUTE_MS = 60_000;
const LONG = { retryIntervalMs: 3_600_000 };
const SHORT = { retryIntervalMs: 50 };

const { server, browser, through } = await startBank(after);

/** Returns a function that takes one tab's network away, or gives it back. */
async function networkOf(page) {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("Network.enable");
  return (offline) => devtools.send("Network.emulateNetworkConditions", { offline, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
}

/** From now on, `window.sent` counts the requests of this page to the worker. */
const counted = (page, url) =>
  page.evaluate((url) => {
    const own = window.fetch;
    window.sent = 0;
    window.fetch = (...call) => {
      if (String(call[0]?.url ?? call[0]).startsWith(url)) window.sent += 1;
      return own(...call);
    };
  }, url);

/**
 * A page with a deposit that ran and whose answer was lost. Then the page goes offline and makes two more deposits: one behind the first at the same
 * key, and one at another key.
 */
async function offline(t, name, options) {
  const [lost, behind, other] = [small(`${name}-one`, 1), small(`${name}-one`, 2), small(`${name}-two`, 1)];
  const net = await through(t, { loseAnswers: 1, spare: ({ method }) => method !== "POST" });
  const page = await net.blank();
  await counted(page, net.proxy.url);
  await net.open(page, options);
  const network = await networkOf(page);
  await begin(page, lost);
  await until(() => unheard(net.proxy, lost) > 0, "it ran, and nobody knows");
  await network(true);
  const [isOnline, sent] = await page.evaluate(() => [navigator.onLine, window.sent]);
  assert.equal(isOnline, false);
  await begin(page, behind);
  await begin(page, other);
  await until(async () => (await pending(page)).length === 3, "what is made offline is stored");
  net.proxy.calm();
  return { ...net, page, network, sent, lost, behind, other };
}

const texts = ({ lost, behind, other }) => [`${lost.n} ${first(lost.account, 1)}`, `${behind.n} ${JSON.stringify({ id: behind.account, balance: 3, entries: 2 })}`, `${other.n} ${first(other.account, 1)}`];
const told = (heard) => heard.map(({ n, text }) => `${n} ${text}`).sort();

// The tests run at the same time, so the minute passes only once.
describe("offline", { concurrency: 4 }, () => {
  for (const [what, options, ms] of [["a page that is offline for a minute sends nothing, and back online sends all its requests", SHORT, MINUTE_MS], ["a page that comes back online sends all its requests at once, however long the pause between attempts", LONG, 0]]) {
    test(`${what}, each once, in order`, LIMIT, async (t) => {
      const made = await offline(t, `for-${ms}`, options);
      const { proxy, page, network, sent, lost, behind, other } = made;
      const begun = Date.now();
      await until(() => Date.now() - begun >= ms, "the time is over", 2 * MINUTE_MS);
      assert.deepEqual([await page.evaluate(() => window.sent), await answers(page)], [sent, []]);
      assert.equal((await pending(page)).length, 3);
      await network(false);
      await until(async () => (await answers(page)).length === 3, "all are answered");
      assert.deepEqual(told(await answers(page)), texts(made));
      await madeOnce(server, [lost, behind, other]);
      assert.equal(proxy.changes.size, 3, "each under one id");
    });
  }

  test("requests that a page makes offline go on in the next page after it is closed", LIMIT, async (t) => {
    const made = await offline(t, "closed", LONG);
    const { proxy, page, tab, lost, behind, other } = made;
    await page.close();
    assert.deepEqual([attempts(proxy, behind), attempts(proxy, other)], [0, 0]);
    const next = await tab(LONG);
    await next.evaluate(() => bank.takeRecovered());
    await until(async () => (await pending(next)).length === 0, "nothing is pending");
    assert.deepEqual(told(await recovered(next)), texts(made));
    await madeOnce(server, [lost, behind, other]);
    assert.equal(proxy.changes.size, 3, "each under one id");
  });

  test("a page that is opened offline stores its request, and sends it when it is online", LIMIT, async (t) => {
    const deposit = small("opened", 1);
    const { proxy, open, blank } = await through(t);
    const page = await blank();
    const network = await networkOf(page);
    // The page must have the SDK and its module already, as from a service worker's cache.
    await page.evaluate(() => Promise.all(["/sdk/index.js", "/sdk/semel.js"].map((path) => import(path))));
    await counted(page, proxy.url);
    await page.evaluate(async () => {
      const wasm = await (await fetch("/sdk/semel.wasm")).arrayBuffer();
      const own = window.fetch;
      window.fetch = (...call) => (String(call[0]?.url ?? call[0]).endsWith("/semel.wasm") ? Promise.resolve(new Response(wasm, { headers: { "content-type": "application/wasm" } })) : own(...call));
    });
    await network(true);
    await open(page, LONG);
    await begin(page, deposit);
    await until(async () => (await pending(page)).length === 1, "it is stored");
    assert.deepEqual([await page.evaluate(() => window.sent), proxy.changes.size], [0, 0]);
    await network(false);
    await until(async () => (await answers(page)).length === 1, "it is answered");
    assert.deepEqual(told(await answers(page)), [`${deposit.n} ${first("opened", 1)}`]);
    await madeOnce(server, [deposit]);
  });
});

test("no page has had an uncaught error other than Failed to fetch", () => {
  assert.deepEqual(browser.errors.filter(({ message }) => !/Failed to fetch/.test(message)), []);
});
