// Sessions of the SDK against workerd: in Node through a lossy network and kills, and in Chromium over reloads, two tabs and a lost store.
//
// Deposits are 1, 2, 4 and so on, in the order of the calls. So an answer tells which deposits were made before it, and in which order.

import assert from "node:assert/strict";
import { connect, createServer } from "node:net";
import { after, test } from "node:test";
import { FencedError, Semel } from "../../sdk/npm/node.js";
import { startBank } from "./bank.mjs";
import { startLossy, until } from "./lossy.mjs";

/** Past this, what runs hangs. */
const LIMIT = { timeout: 60_000 };

const { server, browser, through } = await startBank(after);

const isChange = ({ method, url }) => method === "POST" && !url.endsWith("/sessions");
/** The deposits of an account, and the answer to each if they are made in this order. */
const inOrder = (account, count) => Array.from({ length: count }, (_, n) => ({ n, account, amount: 2 ** n }));
const answerTo = ({ n, account }) => JSON.stringify({ id: account, balance: 2 ** (n + 1) - 1, entries: n + 1 });
const take = (page, account, transport) => page.evaluate(([account, transport]) => bank.takeSession(account, "till", transport), [account, transport]);
const begin = (page, deposits) => page.evaluate((deposits) => void bank.inSession(deposits), deposits);
const [answers, recovered] = ["answers", "recovered"].map((name) => (page) => page.evaluate((name) => bank[name], name));
/** What was told, by number. */
const told = (all) => Object.fromEntries(all.map(({ n, text, error }) => [n, text ?? `${error.code} ${error.executed}`]));
const expected = (deposits) => Object.fromEntries(deposits.map((deposit) => [deposit.n, answerTo(deposit)]));

test("100 deposits in two sessions, through a lossy network and kills of the server: in order, each once, each caller answered", LIMIT, async (t) => {
  const EACH = 50;
  const proxy = await startLossy({ target: () => server.url, seed: 7, loseRequests: 1 / 4, loseAnswers: 1 / 4, duplicate: 1 / 5, delayMsMax: 10 });
  const semel = await Semel.open({ url: proxy.url, durability: "memory", retryIntervalMs: 20 });
  t.after(async () => {
    await semel.close();
    await proxy.close();
  });
  let answered = 0;
  const all = ["session-a", "session-b"].map(async (account) => {
    const session = await semel.session(`accounts/${account}`, "till");
    const calls = [];
    for (const deposit of inOrder(account, EACH)) {
      calls.push(session.fetch(`/accounts/${account}/deposit`, { method: "POST", body: JSON.stringify({ amount: deposit.amount }) }));
      calls.at(-1).then(() => (answered += 1));
      // Some come while others are on their way.
      if (deposit.n % 10 === 9) await calls.at(-5);
    }
    return Promise.all((await Promise.all(calls)).map((response) => response.text()));
  });
  for (const count of [20, 60]) {
    await until(() => answered >= count, `${count} are answered`);
    await server.restart();
  }
  for (const [at, account] of ["session-a", "session-b"].entries()) {
    assert.deepEqual(await all[at], inOrder(account, EACH).map(answerTo));
    assert.deepEqual(await server.account(account), { id: account, balance: 2 ** EACH - 1, entries: EACH });
  }
  const { lostRequests, lostAnswers, duplicates } = proxy.counts;
  assert.ok(Math.min(lostRequests, lostAnswers, duplicates) > 0, JSON.stringify(proxy.counts));
});

test("two holders in Node: the one that is fenced hears what ran, and that nothing else did", LIMIT, async (t) => {
  const proxy = await startLossy({ target: () => server.url, seed: 7, loseAnswers: 1, spare: (request) => !isChange(request) });
  const semel = await Semel.open({ url: proxy.url, durability: "memory", retryIntervalMs: 20 });
  t.after(async () => {
    await semel.close();
    await proxy.close();
  });
  const deposit = (session, amount) => session.fetch("/accounts/session-two/deposit", { method: "POST", body: JSON.stringify({ amount }) });
  const zombie = await semel.session("accounts/session-two", "till");
  const ran = deposit(zombie, 1);
  await until(() => proxy.counts.lostAnswers > 0, "the first ran unheard");
  const holder = await semel.session("accounts/session-two", "till");
  assert.deepEqual([holder.epoch, holder.lastSeq], [zombie.epoch + 1, 1]);
  const never = deposit(zombie, 2).catch((error) => error);
  proxy.calm();
  assert.equal(await (await ran).text(), answerTo({ n: 0, account: "session-two" }));
  const error = await never;
  assert.ok(error instanceof FencedError && error.executed === "no", error);
  assert.equal(await (await deposit(holder, 2)).text(), answerTo({ n: 1, account: "session-two" }));
});

test("a reload in mid-request: what ran is not run again, what never ran runs before anything new, and the next page hears of all", LIMIT, async (t) => {
  const deposits = inOrder("session-reload", 8);
  const { proxy, open, tab } = await through(t, { loseAnswers: 1, spare: (request) => !isChange(request) });
  const page = await tab();
  assert.deepEqual((await take(page, "session-reload"))[1], 0);
  await begin(page, deposits.slice(0, 1));
  await until(() => proxy.counts.lostAnswers > 0, "the first ran unheard");
  await begin(page, deposits.slice(1, 7));
  await until(() => proxy.counts.lostAnswers > 2, "so did others");
  // From here on nothing arrives.
  Object.assign(proxy.settings, { loseRequests: 1 });
  await page.reload();
  proxy.calm();
  await open(page);
  await take(page, "session-reload");
  await begin(page, deposits.slice(7));
  await until(async () => (await answers(page)).length === 1 && (await recovered(page)).length === 7, "all is answered");
  assert.deepEqual(told([...(await answers(page)), ...(await recovered(page))]), expected(deposits));
  assert.deepEqual(await server.account("session-reload"), { id: "session-reload", balance: 255, entries: 8 });
});

test("a tab that takes over fences the other, whose calls never run, and both go on as they are told", LIMIT, async (t) => {
  const deposits = inOrder("session-tabs", 4);
  const { proxy, tab } = await through(t);
  const [zombie, holder] = [await tab(), await tab()];
  const [before] = await take(zombie, "session-tabs");
  await begin(zombie, deposits.slice(0, 2));
  await until(async () => (await answers(zombie)).length === 2, "the first holder works");
  const [epoch, lastSeq] = await take(holder, "session-tabs");
  assert.deepEqual([epoch > before, lastSeq], [true, 2]);
  const never = { n: 99, account: "session-tabs", amount: 1024 };
  await begin(zombie, [never]);
  await begin(holder, deposits.slice(2));
  await until(async () => (await answers(zombie)).length === 3 && (await answers(holder)).length === 2, "both are told");
  assert.deepEqual(told(await answers(zombie)), { ...expected(deposits.slice(0, 2)), 99: "fenced no" });
  assert.deepEqual(told(await answers(holder)), expected(deposits.slice(2)));
  const { requests } = proxy.counts;
  await begin(zombie, [{ ...never, n: 98 }]);
  await until(async () => (await answers(zombie)).length === 4, "it is told at once");
  assert.deepEqual([told(await answers(zombie))[98], proxy.counts.requests], ["fenced no", requests]);
  assert.deepEqual(await server.account("session-tabs"), { id: "session-tabs", balance: 15, entries: 4 });
});

test("five tabs contend for one session for a minute: exact effects in one order, each answer to its caller", { timeout: 180_000 }, async (t) => {
  const [TABS, FOR_MS] = [5, 60_000];
  const { proxy, tab } = await through(t, { loseRequests: 1 / 20, loseAnswers: 1 / 10, duplicate: 1 / 10, delayMsMax: 10 });
  const tabs = [];
  while (tabs.length < TABS) tabs.push(await tab());
  const contend = (page, place) => page.evaluate((asked) => bank.contend(...asked), [{ account: "session-five", first: place, step: TABS }, "till", 20 * place, FOR_MS]);
  const takeOvers = (await Promise.all(tabs.map(contend))).reduce((sum, count) => sum + count);
  assert.ok(takeOvers > TABS, `${takeOvers} take-overs`);
  const all = [];
  for (const [place, page] of tabs.entries()) {
    const own = await answers(page);
    assert.ok(own.length > 0 && own.every(({ n, text }) => n % TABS === place && text !== undefined), JSON.stringify(own.find(({ text }) => text === undefined)));
    assert.equal(new Set(own.map(({ n }) => n)).size, own.length);
    assert.deepEqual(await recovered(page), []);
    all.push(...own.map(({ n, text }) => ({ n, ...JSON.parse(text) })));
  }
  // Deposits are of 1, 2, 3 and so on: the balance says which were made before one.
  let balance = 0;
  for (const [at, answer] of all.sort((one, other) => one.entries - other.entries).entries()) {
    balance += answer.n + 1;
    assert.deepEqual([answer.entries, answer.balance], [at + 1, balance], `the answer to ${answer.n}`);
  }
  assert.deepEqual(await server.account("session-five"), { id: "session-five", balance, entries: all.length });
  t.diagnostic(JSON.stringify({ ...proxy.counts, takeOvers, deposits: all.length }));
});

test("after the store is lost, the take-over tells the last place that was taken, and nothing is run again", LIMIT, async (t) => {
  const deposits = inOrder("session-lost", 4);
  const { proxy, open, tab } = await through(t, { loseAnswers: 1, spare: (request) => !isChange(request) });
  const page = await tab();
  await take(page, "session-lost");
  await begin(page, deposits.slice(0, 3));
  await until(() => proxy.counts.lostAnswers > 1, "they ran unheard");
  await until(async () => (await server.account("session-lost")).entries === 3, "all of them");
  Object.assign(proxy.settings, { loseRequests: 1 });
  await page.reload();
  await page.evaluate(async () => {
    for (const { name } of await indexedDB.databases()) {
      const deleting = indexedDB.deleteDatabase(name);
      await new Promise((resolve) => (deleting.onsuccess = resolve));
    }
  });
  proxy.calm();
  await open(page);
  assert.deepEqual((await take(page, "session-lost"))[1], 3);
  await begin(page, deposits.slice(3));
  await until(async () => (await answers(page)).length === 1, "it goes on after them");
  assert.deepEqual(told(await answers(page)), expected(deposits.slice(3)));
  assert.deepEqual(await recovered(page), []);
});

test("by a socket: over a kill of the server and a reload, in order, each once, each caller answered", LIMIT, async (t) => {
  const deposits = inOrder("session-socket", 40);
  const { open, blank } = await through(t);
  const relay = await relayTo(t, () => server.url);
  const page = await blank();
  await open(page, { url: relay.url });
  await take(page, "session-socket", "socket");
  await begin(page, deposits.slice(0, 10));
  await until(async () => (await answers(page)).length === 10, "the first are answered");
  await server.restart();
  await begin(page, deposits.slice(10, 20));
  await until(async () => (await answers(page)).length === 20, "so are those after the kill");
  assert.deepEqual(told(await answers(page)), expected(deposits.slice(0, 20)));
  assert.ok(relay.sockets > 1, "a socket was opened anew");
  // From here on nothing arrives, until there is another page.
  const resume = relay.hold();
  const before = await page.evaluate(() => bank.rows());
  await begin(page, deposits.slice(20, 30));
  await until(async () => (await page.evaluate(() => bank.rows())) === before + 10, "all of them are stored");
  await page.reload();
  resume();
  await open(page, { url: relay.url });
  const { sockets } = relay;
  await take(page, "session-socket", "auto");
  await begin(page, deposits.slice(30));
  await until(async () => (await answers(page)).length === 10 && (await recovered(page)).length === 10, "all is answered");
  assert.equal(relay.sockets, sockets + 1, "by a socket");
  assert.deepEqual(told([...(await answers(page)), ...(await recovered(page))]), expected(deposits.slice(20)));
  assert.deepEqual(await server.account("session-socket"), { id: "session-socket", balance: 2 ** 40 - 1, entries: 40 });
});

/**
 * Passes bytes on to the server, wherever it is by now, and counts the sockets among them. `hold()`: nothing of what is connected arrives any more, nor of
 * what connects, until what it gives is called.
 */
async function relayTo(t, target) {
  const relay = { sockets: 0, hold };
  const open = new Set();
  let isHeld = false;
  function hold() {
    isHeld = true;
    for (const socket of open) socket.unpipe();
    return () => (isHeld = false);
  }
  const listening = createServer((near) => {
    if (isHeld) return open.add(near);
    const { hostname, port } = new URL(target());
    const far = connect(Number(port), hostname);
    near.once("data", (bytes) => (relay.sockets += bytes.includes("/socket HTTP") ? 1 : 0));
    for (const [one, other] of [[near, far], [far, near]]) {
      open.add(one);
      one.on("error", () => {}).on("close", () => other.destroy()).pipe(other);
    }
  });
  await new Promise((resolve) => listening.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    for (const socket of open) socket.destroy();
    return new Promise((resolve) => listening.close(resolve));
  });
  relay.url = `http://127.0.0.1:${listening.address().port}`;
  return relay;
}

test("no page has had an error that nobody caught", () => assert.deepEqual(browser.errors, []));
