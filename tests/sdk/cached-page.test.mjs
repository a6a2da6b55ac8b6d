// Tests the back/forward cache in a normal Chromium: the browser keeps a whole page when the user leaves it, and may show it again.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { browse } from "../e2e/browser.mjs";
import { until } from "./stub.mjs";

const LIMIT = { timeout: 30_000 };
const browser = await browse(after, { page: fileURLToPath(new URL("page", import.meta.url)), isBare: true, isKept: true });

/**
 * Opens an outbox in the page. Its `fetch` fails until `calm()` is called, unless `isCalmAtOnce`. The retry interval is so long that only a wake-up
 * sends a request again within the test.
 */
const begin = async ([identity, isCalmAtOnce]) => {
  window.told = [];
  let isCalm = isCalmAtOnce;
  window.calm = () => (isCalm = true);
  const answer = (url) => {
    const headers = { "semel-now": String(Date.now()), "semel-status": url.endsWith("/health") ? "read" : "executed", "semel-key": '"a"' };
    return new Response("done", { headers });
  };
  const fetch = async (url, { headers }) => {
    const id = new Headers(headers).get("idempotency-key");
    if (id) told.push(`sent ${id}`);
    if (id && !isCalm) throw new TypeError("fetch failed");
    return answer(url);
  };
  addEventListener("pageshow", ({ persisted }) => told.push(`shown ${persisted}`));
  const onrecovered = ({ requestId, response }) => void told.push(`recovered ${requestId} ${response.status}`);
  window.semel = await lab.outbox({ identity, fetch, onrecovered, retryIntervalMs: 300_000 });
};

/** A tab with a request that was sent and has no answer. */
async function sending(t, identity) {
  const tab = await browser.tab();
  t.after(() => tab.close());
  await tab.waitForFunction(() => window.lab);
  await tab.evaluate(begin, [identity, false]);
  await tab.evaluate(() => {
    semel.fetch("/things", { method: "POST", id: "x" }).then((response) => told.push(`answered ${response.status}`), (error) => told.push(`${error}`));
  });
  await tab.waitForFunction(() => window.told.includes('sent "x"'));
  return tab;
}

/** Goes to another page of the origin. The function that this returns goes back, and resolves once the first page is there again. */
async function leave(tab) {
  const url = tab.url();
  await tab.goto(`${url}?next`);
  await tab.waitForFunction(() => window.lab);
  return async () => {
    // A page from the cache is not loaded, so there is no load event to wait for.
    await tab.evaluate(() => void setTimeout(() => history.back()));
    await until(() => tab.evaluate((url) => location.href === url && window.lab !== undefined, url).catch(() => false), "it is there", LIMIT.timeout);
  };
}

test("a page restored from the back/forward cache goes on at once, with its caller and its lock", LIMIT, async (t) => {
  const tab = await sending(t, "comes back");
  await tab.evaluate(() => calm());
  const back = await leave(tab);
  await back();
  await until(() => tab.evaluate(() => window.told.includes("answered 200")), "it is answered");
  assert.deepEqual(await tab.evaluate(() => told), ['sent "x"', "shown true", 'sent "x"', "answered 200"]);
  assert.equal(await tab.evaluate(() => semel.fetch("/more", { method: "POST" }).then(({ status }) => status)), 200);
  assert.deepEqual(await tab.evaluate(() => semel.pending()), []);
  assert.equal(await tab.evaluate(() => navigator.locks.query().then(({ held }) => held.length)), 1);
});

test("a page opened beside a cached page of its outbox takes over its request, and the cached page is discarded", LIMIT, async (t) => {
  const tab = await sending(t, "gone");
  const back = await leave(tab);
  // The browser may discard the cached page at once. So the request must not be lost a second time here: it would then wait for its interval.
  await tab.evaluate(begin, ["gone", true]);
  await tab.waitForFunction(() => window.told.some((each) => each.startsWith("recovered")), undefined, { timeout: 20_000 });
  assert.deepEqual(await tab.evaluate(() => told), ['sent "x"', "recovered x 200"]);
  assert.deepEqual(await tab.evaluate(() => semel.pending()), []);
  await back();
  assert.equal(await tab.evaluate(() => window.told), undefined, "it is another page");
  assert.deepEqual(browser.errors, []);
});

test("a transaction that is open when its page is left goes on in the back/forward cache", LIMIT, async (t) => {
  const tab = await browser.tab();
  t.after(() => tab.close());
  await tab.waitForFunction(() => window.lab);
  await tab.evaluate(begin, ["in a transaction", true]);
  await tab.evaluate(() => {
    const { transaction: begin } = IDBDatabase.prototype;
    // A transaction ends when nothing more is asked of it. This one goes on until the page is shown again.
    IDBDatabase.prototype.transaction = function (...of) {
      const transaction = begin.apply(this, of);
      const rows = transaction.objectStore("rows");
      const goOn = () => void (rows.get("none").onsuccess = told.includes("shown true") ? null : goOn);
      goOn();
      transaction.addEventListener("abort", () => told.push("aborted"));
      window.isOpen = true;
      return transaction;
    };
    semel.fetch("/things", { method: "POST", id: "y" }).then((response) => told.push(`answered ${response.status}`), (error) => told.push(`${error}`));
  });
  await tab.waitForFunction(() => window.isOpen);
  const url = tab.url();
  // Nothing of this origin is opened meanwhile: it would make the browser discard the page.
  await tab.goto("about:blank");
  await tab.evaluate(() => void setTimeout(() => history.back()));
  await until(() => tab.evaluate((url) => location.href === url && window.told?.includes("answered 200"), url).catch(() => false), "it is answered", LIMIT.timeout);
  assert.deepEqual(await tab.evaluate(() => told), ["shown true", 'sent "y"', "answered 200"]);
});
