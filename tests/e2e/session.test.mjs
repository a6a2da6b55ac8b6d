// Sessions of the SDK against workerd: in Node through a lossy network and kills of the server, and in Chromium with reloads, several tabs and a lost
// store.
//
// Unless a test says otherwise, deposits are 1, 2, 4 and so on, in the order of the calls: see `scenarios/sessions.mjs`.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { FencedError, Semel } from "../../sdk/npm/node.js";
import { startBank } from "./bank.mjs";
import { startLossy, until } from "./lossy.mjs";
import { answerTo, answers, begin, expected, inOrder, isChange, playSessions, recovered, take, told } from "./scenarios/sessions.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 60_000 };

const bank = await startBank(after);
const { server, browser, through } = bank;

test("100 deposits in two sessions, through a lossy network and kills of the server, run once, in order, all answered", LIMIT, async (t) => {
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
      // So some calls come while others are on their way.
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

test("of two holders in Node the fenced one hears the answer to what ran, and a FencedError for what never ran", LIMIT, async (t) => {
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

playSessions("Chromium", LIMIT, bank);

test("a tab that takes over fences the other tab, whose later calls are fenced and never run, and goes on itself", LIMIT, async (t) => {
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

test("five tabs contend for one session for a minute: each call runs once, in one order, and gets its own answer", { timeout: 180_000 }, async (t) => {
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
  // Deposits are 1, 2, 3 and so on, so the balance of an answer tells which were made before it.
  let balance = 0;
  for (const [at, answer] of all.sort((one, other) => one.entries - other.entries).entries()) {
    balance += answer.n + 1;
    assert.deepEqual([answer.entries, answer.balance], [at + 1, balance], `the answer to ${answer.n}`);
  }
  assert.deepEqual(await server.account("session-five"), { id: "session-five", balance, entries: all.length });
  t.diagnostic(JSON.stringify({ ...proxy.counts, takeOvers, deposits: all.length }));
});

test("after the store is lost, a take-over tells the last seq, nothing runs again, and the next call goes on behind it", LIMIT, async (t) => {
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

test("no page has had an uncaught error", () => assert.deepEqual(browser.errors, []));
