// What WebKit shows: the scenarios that need nothing but its tabs, reloads, and `kill -9`, of all of it and of the process that keeps the rows; and a page that it keeps
// whole when it is left.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { answers, begin, madeOnce, pending, recovered, small, startBank, unheard } from "../bank.mjs";
import { until } from "../lossy.mjs";
import { play } from "../scenarios/shared.mjs";
import { browseWebKit } from "./browser.mjs";

/** Past this, what runs hangs. */
const LIMIT = { timeout: 120_000 };

let killNetwork;
const start = async (after) => {
  const started = await browseWebKit(after);
  killNetwork = started.killNetwork;
  return started.browser;
};
const bank = await startBank(after, { start });
const { browser } = bank;

play("WebKit", LIMIT, bank);

test("WebKit: a page that is left and shown again as it was goes on with what it has under way, and no other tab takes that from it", LIMIT, async (t) => {
  const [before, since] = [small("shown-again", 1), small("shown-again", 2)];
  const { proxy, tab } = await bank.through(t, { loseAnswers: 1, spare: ({ method }) => method !== "POST" });
  const page = await tab();
  const url = await page.evaluate(() => {
    addEventListener("pageshow", ({ persisted }) => (window.isShownAgain = persisted));
    return location.href;
  });
  await begin(page, before);
  await until(() => unheard(proxy, before) > 0, "one ran, and nobody knows");
  await page.goto(`${url}?next`);
  await page.back();
  await until(() => page.evaluate(() => window.isShownAgain).catch(() => false), "it is shown again, and not loaded");

  // It waits its turn: the first has no answer yet.
  await begin(page, since);
  const other = await tab();
  await other.evaluate(() => bank.takeRecovered());
  await until(async () => (await pending(other)).length === 2, "both are stored");
  assert.deepEqual((await pending(other)).map(({ state }) => state), ["elsewhere", "elsewhere"]);
  proxy.calm();
  await until(async () => (await answers(page)).length === 2, "its callers are answered");
  assert.deepEqual((await answers(page)).map(({ n, status }) => [n, status]), [[before.n, 200], [since.n, 200]]);
  assert.deepEqual([await pending(other), await recovered(other)], [[], []]);
  await madeOnce(bank.server, [before, since]);
  assert.equal(proxy.changes.size, 2, "each under one id");
});

test("WebKit: the process that keeps the rows is killed under a page: what it has under way and what it makes then happens once, and is answered", LIMIT, async (t) => {
  const { proxy, tab } = await bank.through(t);
  const page = await tab();
  const deposits = Array.from({ length: 40 }, (_, n) => ({ account: "server-lost", amount: 2 ** n }));
  await page.evaluate(async (deposits) => {
    const make = ({ account, amount }) =>
      bank.fetch(`/accounts/${account}/deposit`, { method: "POST", body: JSON.stringify({ amount }) }).then(({ status }) => status, ({ code, executed, cause }) => `${code} ${executed}: ${cause}`);
    const answers = [];
    const tell = () => fetch("/tell", { method: "POST", body: JSON.stringify({ answers }) }).catch(() => new Promise((again) => setTimeout(again, 50)).then(tell));
    (async () => {
      for (const deposit of deposits) answers.push(await make(deposit));
      await tell();
    })();
  }, deposits);
  await until(() => proxy.changes.size > 5, "it is at work");
  await killNetwork();
  try {
    const { answers } = await until(() => browser.told.find(({ answers }) => answers), "all are answered", 60_000);
    assert.deepEqual(answers, deposits.map(() => 200));
    await madeOnce(bank.server, deposits);
    assert.equal(proxy.changes.size, deposits.length, "each under one id");
  } finally {
    await browser.kill();
    await browser.start();
  }
});
