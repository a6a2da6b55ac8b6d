// Logout in mid-request, and login as another user: no request runs, and no answer comes, under the wrong user, and nothing is lost.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { answers, attempts, begin, first, madeOnce, make, neverMade, numberOf, pending, recovered, small, startBank, unheard } from "../bank.mjs";
import { gate, until } from "../lossy.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 60_000 };

const { server, browser, through } = await startBank(after);

const as = (name) => ({ identity: name, token: name });
const onlyPosts = { spare: ({ method }) => method !== "POST" };
/** Notes who sent each attempt of a deposit: by its token, and by its `Semel-Principal`. */
function watched(deposit) {
  const senders = [];
  const instead = ({ method, url, headers }) => {
    if (method === "POST" && numberOf(url) === deposit.n) senders.push(`${headers.authorization} ${headers["semel-principal"]}`);
  };
  return { senders, instead };
}

for (const reloads of [false, true]) {
  test(`after logout in mid-request and login as another user${reloads ? ", each with a new page" : ""}, a request waits until its own user is back`, LIMIT, async (t) => {
    const account = `logout-${reloads}`;
    const [deposit, behind, others] = [small(account, 1), small(account, 2), small(account, 4)];
    const { senders, instead } = watched(deposit);
    const { proxy, open, tab } = await through(t, { loseAnswers: 1, ...onlyPosts, instead });
    const page = await tab(as("alice"));
    const change = async (name) => {
      if (reloads) await page.reload();
      else await page.evaluate(() => bank.close());
      await open(page, as(name));
      await page.evaluate(() => bank.takeRecovered());
    };
    await begin(page, deposit);
    await begin(page, behind);
    await until(() => unheard(proxy, deposit) > 0, "it ran, and nobody knows");
    await until(async () => (await pending(page)).length === 2, "both are stored");

    await change("bob");
    if (!reloads) {
      const told = await until(async () => (await answers(page)).length === 2 && answers(page), "its callers are told");
      assert.deepEqual(told.map(({ error }) => `${error.code} ${error.executed}`), Array(2).fill("closed unknown"));
    }
    proxy.calm();
    const tried = attempts(proxy, deposit);
    assert.deepEqual(await pending(page), [], "bob sees nothing of alice's");
    assert.equal((await make(page, others)).text, JSON.stringify({ id: account, balance: 5, entries: 2 }));
    await until(async () => (await pending(page)).length === 0, "nothing of bob's is pending");
    assert.deepEqual([attempts(proxy, deposit), attempts(proxy, behind), await recovered(page)], [tried, 0, []]);

    await change("alice");
    await until(async () => (await pending(page)).length === 0, "nothing of alice's is pending");
    const heard = (await recovered(page)).map(({ n, status, text }) => `${n} ${status} ${text}`);
    assert.deepEqual(heard, [`${deposit.n} 200 ${first(account, 1)}`, `${behind.n} 200 ${JSON.stringify({ id: account, balance: 7, entries: 3 })}`]);
    await madeOnce(server, [deposit, behind, others]);
    assert.deepEqual(new Set(senders), new Set(['Bearer alice "alice"']));
    assert.deepEqual(browser.errors, []);
  });
}

test("a page whose token becomes that of another user gets forbidden, and goes on once its own is back", LIMIT, async (t) => {
  const [deposit, held] = [small("cookie-unheard", 1), small("cookie-held", 1)];
  const { senders, instead } = watched(deposit);
  const wire = gate(({ method, url }) => method === "POST" && numberOf(url) === held.n && wire.held.length === 0);
  const { proxy, tab } = await through(t, { loseAnswers: 1, ...onlyPosts, instead, hold: wire.hold });
  // It is as if another tab had logged in as bob: from some time on, each attempt gets bob's token.
  const page = await tab({ ...as("alice"), attemptTimeoutMs: 500 });
  await begin(page, deposit);
  await begin(page, held);
  await until(() => unheard(proxy, deposit) > 0 && wire.held.length > 0, "one ran unheard, the other is in the network");
  await page.evaluate(() => (bank.token = "bob"));
  proxy.calm();
  await until(() => page.evaluate(() => bank.paused.length === 2), "both wait for a login");
  const paused = await page.evaluate(() => bank.paused.map(({ error }) => `${error.code} ${error.executed}`));
  assert.deepEqual(paused, Array(2).fill("forbidden unknown"));
  assert.deepEqual((await pending(page)).map(({ state }) => state), ["paused", "paused"]);
  await neverMade(server, held.account);
  await page.evaluate(() => {
    bank.token = "alice";
    bank.resume();
  });
  await until(async () => (await answers(page)).length === 2, "both are answered");
  wire.open();
  const heard = (await answers(page)).map(({ n, status, text }) => `${n} ${status} ${text}`).sort();
  assert.deepEqual(heard, [`${deposit.n} 200 ${first(deposit.account, 1)}`, `${held.n} 200 ${first(held.account, 1)}`]);
  await until(async () => (await pending(page)).length === 0, "nothing is pending");
  assert.deepEqual(new Set(senders), new Set(['Bearer alice "alice"', 'Bearer bob "alice"']));
  await madeOnce(server, [deposit, held]);
});
