// Storage that fails in mid-request: it is full, or the browser has deleted what was in it.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { answers, attempts, begin, first, madeOnce, make, neverMade, numberOf, pending, recovered, small, startBank, unheard } from "../bank.mjs";
import { gate, until } from "../lossy.mjs";
import { evicted, inMidRequest } from "./shared.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 60_000 };

const bank = await startBank(after);
const { server, browser, through } = bank;

const QUOTA_BYTES = 4 << 20;

/** Fills a database of its own, as a careless page does, until nothing more goes in. Resolves to the number of bytes that went in. */
async function fill() {
  const opening = indexedDB.open("careless");
  opening.onupgradeneeded = () => opening.result.createObjectStore("rows", { autoIncrement: true });
  await new Promise((resolve) => (opening.onsuccess = resolve));
  let written = 0;
  for (let bytes = 1 << 18; bytes > 0; ) {
    const row = new Uint8Array(bytes);
    for (let at = 0; at < bytes; at += 1 << 16) crypto.getRandomValues(row.subarray(at, at + (1 << 16)));
    const isIn = await new Promise((resolve) => {
      const transaction = opening.result.transaction("rows", "readwrite");
      transaction.objectStore("rows").put(row);
      transaction.oncomplete = () => resolve(true);
      transaction.onabort = () => resolve(false);
    });
    if (isIn) written += bytes;
    else bytes >>= 2;
  }
  opening.result.close();
  return written;
}

for (const reloads of [false, true]) {
  test(`if the quota is full in mid-request${reloads ? ", and the page is reloaded" : ""}, a new request fails unsent, and pending ones end given space`, LIMIT, async (t) => {
    const name = `full-${reloads}`;
    const [flight, lost, fresh, later] = ["flight", "lost", "fresh", "later"].map((what) => small(`${name}-${what}`, 1));
    const wire = gate(({ method, url }) => method === "POST" && numberOf(url) === flight.n);
    const { proxy, open, blank } = await through(t, { loseAnswers: 1, spare: ({ method, url }) => method !== "POST" || numberOf(url) !== lost.n, hold: wire.hold });
    const page = await blank();
    // Each test has an origin of its own, because the browser remembers for a while how much of an origin's quota is left.
    await page.goto(page.url().replace("127.0.0.1", `${name}.localhost`));
    const devtools = await page.context().newCDPSession(page);
    const { origin } = new URL(page.url());
    await devtools.send("Storage.overrideQuotaForOrigin", { origin, quotaSize: QUOTA_BYTES });
    await open(page);
    await begin(page, flight);
    await begin(page, lost);
    await until(() => wire.held.length > 0 && unheard(proxy, lost) > 0, "one is in the network, the other ran unheard");

    assert.ok((await page.evaluate(fill)) < QUOTA_BYTES, "it is full");
    const { error } = await make(page, fresh);
    assert.deepEqual([error?.code, error?.executed, error?.cause], ["store-failed", "no", "store-full"]);
    proxy.calm();
    wire.open();
    // The outcome can't be stored, but its caller gets it.
    const told = async () => (await answers(page)).filter(({ n }) => n !== fresh.n).map(({ n, status, text }) => `${n} ${status} ${text}`);
    const [flown, unknown] = [flight, lost].map(({ n, account }) => `${n} 200 ${first(account, 1)}`);
    await until(async () => (await told()).length > 0, "what was in the network is answered");
    assert.deepEqual(await told(), [flown]);
    assert.equal((await pending(page)).length, 2, "nothing is forgotten");
    if (reloads) {
      await page.reload();
      await open(page);
      await page.evaluate(() => bank.takeRecovered());
      // The next page knows only that both may have run.
      assert.deepEqual((await pending(page)).map(({ url }) => numberOf(url)).sort(), [flight.n, lost.n]);
    }
    await devtools.send("Storage.overrideQuotaForOrigin", { origin });
    await until(async () => (await pending(page)).length === 0, "with space again nothing stays pending");
    if (reloads) assert.deepEqual((await recovered(page)).map(({ n, status, text }) => `${n} ${status} ${text}`).sort(), [flown, unknown]);
    else assert.deepEqual(await told(), [flown, unknown]);
    assert.equal((await make(page, later)).text, first(later.account, 1));
    await madeOnce(server, [flight, lost, later]);
    await neverMade(server, fresh.account);
    assert.equal(attempts(proxy, fresh), 0);
  });
}

/** Deletes what the page's origin has in IndexedDB, as a browser does that runs out of space. */
async function evict(page) {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("Storage.clearDataForOrigin", { origin: new URL(page.url()).origin, storageTypes: "indexeddb" });
}

test("the store is evicted in mid-request: nothing runs twice, and a call whose answer was lost is told outcome-lost", LIMIT, evicted(bank, evict));

test("the store is evicted while the browser is closed: the next page is told once, sends none of it again, and works", LIMIT, async (t) => {
  const { proxy, open, blank, wire, page: before, flight, lost } = await inMidRequest(bank, t, "evicted");
  assert.equal(await before.evaluate(() => bank.storesLost), 0);
  // The browser is slow to write down that the store existed: in the first seconds, a kill -9 would lose that too. So it is closed.
  await browser.close();
  await browser.evict();
  await browser.start();
  const page = await blank();
  await open(page);
  await page.evaluate(() => bank.takeRecovered());
  assert.deepEqual([await pending(page), await page.evaluate(() => bank.storesLost)], [[], 1]);
  const tried = [flight, lost].map((deposit) => attempts(proxy, deposit));
  proxy.calm();
  wire.open();
  const later = small("evicted-later", 1);
  assert.equal((await make(page, later)).text, first(later.account, 1));
  await until(async () => (await server.account(flight.account)).entries > 0, "what was in the network has arrived");
  assert.deepEqual([flight, lost].map((deposit) => attempts(proxy, deposit)), tried);
  assert.deepEqual(await recovered(page), []);
  await madeOnce(server, [flight, lost, later]);
  await page.reload();
  await open(page);
  assert.equal(await page.evaluate(() => bank.storesLost), 0, "it is told once");
});
