// The SDK in Chromium, against workerd, through a lossy proxy, while pages, browser and server crash.
//
// Amounts are powers of two, so the balance of an account tells which deposits it has. It has as many entries as its balance has ones in binary, so
// each deposit was made once. Each answer of the ledger, too, tells which deposits had been made by then.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { begin, first, make, numberOf, pending, recovered, small, startBank, unheard } from "./bank.mjs";
import { acknowledged, until } from "./lossy.mjs";

/** The change runs, but its answer is lost. Preflights and requests for the clock get their answers. */
const UNHEARD = { loseAnswers: 1, spare: ({ method }) => method !== "POST" };

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 120_000 };

const { server, browser, through } = await startBank(after);

test("200 deposits through crashes of page, browser and server are each made once and answered, and none stays pending", LIMIT, async (t) => {
  const ACCOUNTS = 4;
  const EACH = 50;
  const AT_A_TIME = 16;
  const { proxy, open, tab } = await through(t, { loseRequests: 1 / 3, loseAnswers: 1 / 3, duplicate: 1 / 20, delayMsMax: 20 });
  const deposits = Array.from({ length: ACCOUNTS * EACH }, (_, n) => ({ n, account: `all-${n % ACCOUNTS}`, amount: 2 ** Math.floor(n / ACCOUNTS) }));
  const book = new Book(deposits, browser.told, proxy.changes);
  const answeredBy = (count) => until(() => book.settled() >= count, `${count} are answered`);

  let page = await tab();
  const run = (some) => page.evaluate(([some, atATime]) => void bank.run(some, atATime), [some, AT_A_TIME]);
  /** Does what a new page does: looks at what is stored, takes the answers, and makes the deposits that never reached the SDK. */
  const goOn = async () => {
    const stored = (await pending(page)).map(({ url }) => numberOf(url));
    assert.ok(stored.length > 0, "the page before left something unfinished");
    await run(await book.afterCrash({ stored, atATime: AT_A_TIME, account: (id) => server.account(id) }));
    await page.evaluate(() => bank.takeRecovered());
  };

  await run(deposits);
  await answeredBy(30);
  await server.restart();
  await answeredBy(70);
  await page.reload();
  await open(page);
  await goOn();
  await answeredBy(100);
  await server.restart();
  await answeredBy(130);
  await browser.kill();
  await browser.start();
  page = await tab();
  await goOn();
  await answeredBy(165);
  await server.restart();
  await answeredBy(deposits.length);

  proxy.calm();
  await until(async () => (await pending(page)).length === 0, "nothing is pending");
  await acknowledged(server, proxy.changes);
  for (let index = 0; index < ACCOUNTS; index += 1) {
    const id = `all-${index}`;
    assert.deepEqual(await server.account(id), { id, balance: 2 ** EACH - 1, entries: EACH });
  }
  book.check();
  const { lostRequests, lostAnswers, duplicates, unreachable } = proxy.counts;
  assert.ok(Math.min(lostRequests, lostAnswers, duplicates, unreachable) > 0, JSON.stringify(proxy.counts));
  assert.deepEqual(browser.errors, []);
  t.diagnostic(JSON.stringify({ ...proxy.counts, recovered: book.recoveries, startedAgain: book.startedAgain, unheard: book.unheard }));
});

/** What has become of each deposit, by what the pages reported and the proxy saw. */
class Book {
  startedAgain = 0;
  /** Deposits whose answer reached a page that was gone before it could report it. No client could do better. */
  #unheard = new Set();
  #deposits;
  #told;
  #changes;

  constructor(deposits, told, changes) {
    this.#deposits = deposits;
    this.#told = told;
    this.#changes = changes;
  }

  /** The answers, by number. Checks that an answer that came twice was the same both times. */
  answered() {
    const answers = new Map();
    for (const { n, by, status, text, error } of this.#told) {
      if (by === "started" || n >= this.#deposits.length) continue;
      assert.equal(error, undefined, `deposit ${n} by ${by}`);
      assert.equal(status, 200, text);
      assert.equal(text, answers.get(n) ?? text, `deposit ${n} has one answer`);
      answers.set(n, text);
    }
    return answers;
  }

  /** How many deposits are answered, or unheard. */
  settled() {
    return this.answered().size + this.unheard.length;
  }

  get unheard() {
    const answered = this.answered();
    return [...this.#unheard].filter((n) => !answered.has(n));
  }

  get recoveries() {
    return this.#told.filter(({ by }) => by === "onrecovered").length;
  }

  /** By number, what the proxy saw of its request. Checks that each deposit has one id at most, in spite of crashes. */
  #sent() {
    const sent = new Map();
    for (const [id, change] of this.#changes) {
      const n = numberOf(change.path);
      assert.ok(!sent.has(n), `deposit ${n} was sent under two ids, one of them ${id}`);
      sent.set(n, change);
    }
    return sent;
  }

  /**
   * After a crash of the page, with the deposits that the SDK says are `stored`. Returns the deposits that have to be made now: those that nobody
   * started, and those that were started but never reached the store, and so were never sent.
   */
  async afterCrash({ stored, atATime, account }) {
    const [answered, sent] = [this.answered(), this.#sent()];
    const started = new Set(this.#told.filter(({ by }) => by === "started").map(({ n }) => n));
    const open = this.#deposits.filter(({ n }) => !answered.has(n) && !stored.includes(n) && !this.#unheard.has(n));
    const lost = open.filter(({ n }) => sent.has(n));
    for (const { n } of lost) {
      assert.ok(sent.get(n).outcome, `deposit ${n} was sent and had no answer, and the SDK does not know it any more`);
      this.#unheard.add(n);
    }
    assert.ok(lost.length <= atATime, `${lost.length} answers were not heard`);
    const again = open.filter(({ n }) => !sent.has(n));
    for (const { account: id, amount, n } of again) assert.ok(!has((await account(id)).balance, amount), `deposit ${n} was never sent`);
    const dropped = again.filter(({ n }) => started.has(n)).length;
    assert.ok(dropped <= atATime, `${dropped} were started and not stored`);
    this.startedAgain += dropped;
    return again;
  }

  /** Checks that every caller got the answer to its own deposit: from one entry to the next, the balance grew by exactly its amount. */
  check() {
    const answered = this.answered();
    this.#sent();
    assert.equal(this.settled(), this.#deposits.length);
    const balances = new Map();
    const balanceAt = (account, entries) => (entries === 0 ? 0 : balances.get(`${account} ${entries}`));
    for (const [n, text] of answered) {
      const { id, balance, entries } = JSON.parse(text);
      assert.equal(bits(balance), entries, `deposit ${n}: each is made once`);
      assert.equal(balanceAt(id, entries), undefined, `deposit ${n} has an answer of its own`);
      balances.set(`${id} ${entries}`, balance);
    }
    for (const [n, text] of answered) {
      const { id, balance, entries } = JSON.parse(text);
      const { account, amount } = this.#deposits[n];
      // The deposit before this one may be unheard.
      const before = balanceAt(id, entries - 1) ?? balance - amount;
      assert.ok(has(balance, amount), `deposit ${n} is in its own answer`);
      assert.deepEqual([id, balance], [account, before + amount], `deposit ${n} has its own answer`);
    }
  }
}

const has = (balance, amount) => Math.floor(balance / amount) % 2 === 1;
const bits = (balance) => balance.toString(2).replaceAll("0", "").length;

test("a portal's 200, a CDN's 403 and a redirect are not taken for answers, with CORS or without", LIMIT, async (t) => {
  const { proxy, tab } = await through(t);
  const cors = { "access-control-allow-origin": "*", "access-control-expose-headers": "*" };
  const strangers = [cors, {}].flatMap((headers) => [
    { status: 200, headers: { ...headers, "content-type": "text/html" }, body: "<h1>Log in</h1>" },
    { status: 403, headers: { ...headers, "content-type": "text/html" }, body: "<h1>Blocked</h1>" },
    { status: 302, headers: { ...headers, location: `${proxy.url}/elsewhere` } },
    { status: 307, headers: { ...headers, location: `${proxy.url}/elsewhere` } },
  ]);
  const expected = strangers.length;
  const elsewhere = [];
  proxy.settings.instead = ({ method, url }) => {
    if (url === "/elsewhere") elsewhere.push(method);
    return method === "POST" ? strangers.shift() : undefined;
  };
  const answer = await make(await tab(), small("strangers", 5));
  assert.deepEqual([answer.status, answer.text, answer.semel], [200, first("strangers", 5), "executed"]);
  assert.deepEqual([proxy.counts.instead, elsewhere], [expected, []]);
});

test("unordered requests of a key go in batches once that code is loaded, each made once, with its own answer", LIMIT, async (t) => {
  const { proxy, tab } = await through(t);
  let [batches, made] = [0, 0];
  proxy.settings.instead = ({ method, url }) => void (batches += method === "POST" && url.endsWith("/batch"));
  const page = await tab();
  const entries = [];
  await until(async () => {
    made += 40;
    const round = await page.evaluate(() => {
      const one = () => bank.fetch("/accounts/gathered/deposit", { method: "POST", body: '{"amount":1}', key: "accounts/gathered", ordered: false });
      return Promise.all(Array.from({ length: 40 }, async () => (await one()).json()));
    });
    entries.push(...round.map(({ entries }) => entries));
    return batches > 0;
  }, "some go together");
  assert.deepEqual(entries.sort((one, next) => one - next), Array.from({ length: made }, (_, n) => n + 1));
  assert.deepEqual(await server.account("gathered"), { id: "gathered", balance: made, entries: made });
  await until(async () => (await pending(page)).length === 0, "nothing is pending");
  t.diagnostic(JSON.stringify({ made, batches, requests: proxy.counts.requests }));
});

test("a request that is made offline is stored, and is sent and answered once the browser is online", LIMIT, async (t) => {
  const { proxy, tab } = await through(t);
  const page = await tab();
  t.after(() => browser.offline(false));
  await browser.offline(true);
  await begin(page, small("offline", 5));
  await until(async () => (await pending(page)).length === 1, "it is stored");
  assert.equal(proxy.changes.size, 0);
  await browser.offline(false);
  const [answer] = await until(() => page.evaluate(() => bank.answers.length > 0 && bank.answers), "it is answered");
  assert.deepEqual([answer.status, answer.text], [200, first("offline", 5)]);
  await until(async () => (await pending(page)).length === 0, "nothing is pending");
});

test("after a reload onrecovered gets the answer once, and not before it is set", LIMIT, async (t) => {
  const { proxy, open, tab } = await through(t, UNHEARD);
  const page = await tab();
  const deposit = small("reloaded", 5);
  await begin(page, deposit);
  await until(() => unheard(proxy, deposit) > 0, "it ran, and nobody knows");
  const [before] = await pending(page);
  await page.reload();
  await open(page);
  proxy.calm();
  await until(async () => (await pending(page))[0].state === "answered", "it has its answer");
  await page.evaluate(() => bank.takeRecovered());
  await until(async () => (await pending(page)).length === 0, "nothing is pending");
  const [answer, ...others] = await recovered(page);
  assert.deepEqual([answer.n, answer.requestId], [deposit.n, before.requestId]);
  assert.deepEqual([answer.status, answer.text, answer.semel], [200, first("reloaded", 5), "replayed"]);
  assert.deepEqual(others, []);
  assert.equal(proxy.changes.size, 1);
});

test("a tab leaves a request of another tab alone while that tab lives", LIMIT, async (t) => {
  const [kept, own] = [small("tabs-kept", 5), small("tabs-own", 9)];
  const { proxy, tab } = await through(t, { loseAnswers: 1, spare: ({ method, url }) => method !== "POST" || numberOf(url) === own.n });
  const [one, two] = [await tab(), await tab()];
  await two.evaluate(() => bank.takeRecovered());
  await begin(one, kept);
  await until(() => unheard(proxy, kept) > 0, "tab one sends");
  assert.equal((await make(two, own)).text, first("tabs-own", 9));
  const there = async () => (await pending(two)).map(({ url, state, attempts }) => [numberOf(url), state, attempts]);
  await until(async () => (await there()).length === 1, "nothing else is pending");
  await until(() => unheard(proxy, kept) > 20, "tab one sends again and again");
  assert.deepEqual(await there(), [[kept.n, "elsewhere", 0]]);
  proxy.calm();
  const [answer] = await until(() => one.evaluate(() => bank.answers.length > 0 && bank.answers), "tab one gets its answer");
  assert.deepEqual([answer.n, answer.text], [kept.n, first("tabs-kept", 5)]);
  await until(async () => (await there()).length === 0, "nothing is pending");
  assert.deepEqual(await recovered(two), []);
});

for (const opened of ["after", "before"]) {
  test(`a tab that was opened ${opened} a request of another tab takes the request over once that tab is closed`, LIMIT, async (t) => {
    const { proxy, tab } = await through(t, UNHEARD);
    const deposit = small(`tabs-${opened}`, 5);
    const one = await tab();
    const early = opened === "before" && (await tab());
    await begin(one, deposit);
    await until(() => unheard(proxy, deposit) > 0, "it ran, and nobody knows");
    const two = early || (await tab());
    await two.evaluate(() => bank.takeRecovered());
    assert.equal((await pending(two))[0].state, "elsewhere");
    await one.close();
    proxy.calm();
    const answers = await until(async () => (await recovered(two)).length > 0 && recovered(two), "tab two gets the answer");
    assert.deepEqual(answers.map(({ n, text, semel }) => [n, text, semel]), [[deposit.n, first(deposit.account, 5), "replayed"]]);
    await until(async () => (await pending(two)).length === 0, "nothing is pending");
  });
}

test("a tab that opens while another tab checks which tabs live is not taken for gone", LIMIT, async (t) => {
  const { proxy, tab } = await through(t, UNHEARD);
  const one = await tab();
  // The tab looks who lives, and then is held before it acts on that.
  await one.evaluate(() => {
    const query = navigator.locks.query.bind(navigator.locks);
    window.look = { count: 0 };
    const released = new Promise((resolve) => (window.look.release = resolve));
    navigator.locks.query = async () => {
      const found = await query();
      window.look.count += 1;
      await released;
      return found;
    };
  });
  await until(() => one.evaluate(() => window.look.count === 1), "it looks round");
  const two = await tab();
  const deposit = small("tabs-late", 5);
  await begin(two, deposit);
  await until(() => unheard(proxy, deposit) > 0, "tab two sends");
  await one.evaluate(() => window.look.release());
  await until(() => one.evaluate(() => window.look.count > 1), "that look is over");
  assert.deepEqual((await pending(one)).map(({ state }) => state), ["elsewhere"]);
});

test("an idle tab checks which tabs live at most every five seconds", LIMIT, async (t) => {
  const { tab } = await through(t);
  const page = await tab();
  await page.evaluate(() => {
    const query = navigator.locks.query.bind(navigator.locks);
    window.looks = { count: 0, since: performance.now() };
    navigator.locks.query = () => {
      window.looks.count += 1;
      return query();
    };
  });
  await until(() => page.evaluate(() => performance.now() - window.looks.since > 1_000), "a second is over");
  const [count, ms] = await page.evaluate(() => [window.looks.count, performance.now() - window.looks.since]);
  assert.ok(count <= 1 + ms / 5_000, `it looks every five seconds: ${count} times in ${ms} ms`);
});

test("the browser sends one CORS preflight for all attempts of a request", LIMIT, async (t) => {
  const preflights = [];
  const instead = ({ method, url }) => void (method === "OPTIONS" && preflights.push(url));
  const { proxy, tab } = await through(t, { ...UNHEARD, instead });
  const page = await tab();
  const deposit = small("leave", 5);
  await begin(page, deposit);
  await until(() => unheard(proxy, deposit) > 5, "it is sent again and again");
  proxy.calm();
  await until(async () => (await pending(page)).length === 0, "nothing is pending");
  assert.equal(preflights.filter((url) => numberOf(url) === deposit.n).length, 1);
});
