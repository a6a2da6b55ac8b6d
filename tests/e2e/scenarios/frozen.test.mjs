// A tab that the browser freezes in mid-request: none of its code runs, and it keeps its locks, unless the browser takes them away. When it thaws,
// the world has gone on without it.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { answers, attempts, begin, first, madeOnce, make, numberOf, pending, recovered, small, startBank, unheard } from "../bank.mjs";
import { browse } from "../browser.mjs";
import { acknowledged, gate, until } from "../lossy.mjs";
import { clockedLedger, forward } from "./clocked.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 60_000 };
const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

const { server, through } = await startBank(after, { start: (after) => browse(after, { isBare: true }), folder: await clockedLedger(after) });

/** Freezes a tab: none of its timers fires, and no answer reaches it. Resolves to a function that thaws it. */
async function freeze(page) {
  await page.evaluate(() => {
    window.ticks = 0;
    setInterval(() => (window.ticks += 1), 10);
  });
  await until(() => page.evaluate(() => window.ticks > 2), "it ticks");
  const devtools = await page.context().newCDPSession(page);
  const set = (state) => devtools.send("Page.setWebLifecycleState", { state });
  await set("frozen");
  assert.equal(await page.evaluate(() => document.visibilityState), "hidden");
  const seen = await page.evaluate(() => [window.ticks, performance.now()]);
  await until(async () => (await page.evaluate(() => performance.now())) > seen[1] + 200, "time passes");
  assert.equal(await page.evaluate(() => window.ticks), seen[0], "it is frozen");
  return async () => {
    await set("active");
    await page.bringToFront();
  };
}

const outcomeOf = async (account, id) => (await server.send("GET", `/semel/v1/keys/accounts%2F${account}/outcomes/${id}`)).semel;

test("a tab that is frozen in mid-request goes on with it when it thaws, and no other tab has sent it", LIMIT, async (t) => {
  const deposit = small("frozen", 1);
  const { proxy, tab } = await through(t, { loseAnswers: 1, spare: ({ method }) => method !== "POST" });
  // The tab is frozen between two attempts, because an open transaction would keep the store from all other tabs. The interval is long, so
  // what the tab does when it thaws is caused by the thaw, and not by a timer.
  const page = await tab({ retryIntervalMs: 300_000 });
  await begin(page, deposit);
  await until(() => unheard(proxy, deposit) > 0, "it ran, and nobody knows");
  const thaw = await freeze(page);
  const tried = attempts(proxy, deposit);
  const other = await tab();
  await other.evaluate(() => bank.takeRecovered());
  assert.deepEqual((await pending(other)).map(({ state }) => state), ["elsewhere"]);
  proxy.calm();
  assert.equal((await make(other, small("frozen-other", 1))).status, 200);
  assert.equal(attempts(proxy, deposit), tried);
  await thaw();
  const [answer] = await until(async () => (await answers(page)).length > 0 && answers(page), "it is answered");
  assert.deepEqual([answer.text, answer.semel], [first("frozen", 1), "replayed"]);
  assert.deepEqual(await recovered(other), []);
  await until(async () => (await pending(other)).length === 0, "nothing is pending");
  await madeOnce(server, [deposit]);
});

test("a frozen tab that thaws after its tombstone is gone runs nothing again, and its caller gets outcome-lost", LIMIT, async (t) => {
  const deposit = small("thawed", 1);
  const wire = gate(({ method, url }) => method === "POST" && numberOf(url) === deposit.n && wire.held.length === 0);
  const { proxy, tab } = await through(t, { hold: wire.hold });
  const page = await tab();
  await begin(page, deposit);
  await until(() => wire.held.length === 1, "an attempt is in the network");
  const thaw = await freeze(page);

  const other = await tab();
  await other.evaluate(() => bank.takeRecovered());
  assert.deepEqual((await pending(other)).map(({ state }) => state), ["elsewhere"]);
  await other.evaluate(async () => {
    const { held } = await navigator.locks.query();
    const [own] = (await bank.pending()).map(({ requestId }) => requestId);
    window.id = own;
    // The browser takes the locks of a frozen tab: another tab has them for a moment.
    await Promise.all(held.map(({ name }) => navigator.locks.request(name, { steal: true }, () => {})));
  });
  await until(async () => (await recovered(other)).length > 0, "the other tab has the answer");
  const [{ text, semel, requestId }] = await recovered(other);
  assert.deepEqual([text, semel], [first("thawed", 1), "executed"]);
  await acknowledged(server, proxy.changes);
  await forward(server, 10 * MINUTE_MS);
  await until(async () => (await outcomeOf("thawed", requestId)) === "not-seen", "its tombstone is gone");

  // The server no longer knows the id. Now the attempt arrives that was in the network all the time.
  const { forwarded } = proxy.counts;
  wire.open();
  await until(() => proxy.counts.forwarded > forwarded, "it arrives");
  await madeOnce(server, [deposit]);
  const tried = attempts(proxy, deposit);
  await thaw();
  const [answer] = await until(async () => (await answers(page)).length > 0 && answers(page), "its caller is told");
  assert.deepEqual([answer.error?.code, answer.error?.executed], ["outcome-lost", "unknown"]);
  assert.deepEqual([attempts(proxy, deposit), await pending(page)], [tried, []]);
  await madeOnce(server, [deposit]);
  const next = small("thawed", 2);
  assert.equal((await make(page, next)).status, 200);
  await madeOnce(server, [deposit, next]);
});

test("a tab that is frozen for longer than outcomes are kept runs nothing again, and its caller gets outside-window", LIMIT, async (t) => {
  const deposit = small("for-days", 1);
  const { proxy, tab } = await through(t, { loseAnswers: 1, spare: ({ method }) => method !== "POST" });
  const page = await tab();
  await begin(page, deposit);
  await until(() => unheard(proxy, deposit) > 0, "it ran, and nobody knows");
  const thaw = await freeze(page);
  await forward(server, 3 * DAY_MS);
  // Nothing leaves a key until a request comes to it.
  const others = small("for-days", 2);
  assert.equal((await server.deposit(others.account, others.amount)).status, 200);
  proxy.calm();
  await thaw();
  const [answer] = await until(async () => (await answers(page)).length > 0 && answers(page), "its caller is told");
  assert.deepEqual([answer.error?.code, answer.error?.executed], ["outside-window", "unknown"]);
  await until(async () => (await pending(page)).length === 0, "nothing is pending");
  await madeOnce(server, [deposit, others]);
});
