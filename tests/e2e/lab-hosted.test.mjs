// The lab's page where nobody can kill the server, as where it is deployed; and what else a visitor does to it.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { WWW_FOLDER } from "../../scripts/setup/www.mjs";
import { accounts, labs, result, text } from "./lab.mjs";
import { gate, until } from "./lossy.mjs";
import { serve } from "./server.mjs";

/** Past this, what runs hangs. */
const LIMIT = { timeout: 120_000 };

const { url } = await serve(after, "ledger", {}, { assets: WWW_FOLDER });
const { visitor } = await labs(after, url);

test("a link that asks to kill a server that can't be killed: the run goes on, and the page does not say that it was", LIMIT, async (t) => {
  const mine = await visitor(t);
  const tab = await mine.open("/#lose-requests=0&run=20&kill=5");
  await until(async () => /^That did not work: /.test(await text(tab, "told")), "it says that it can't");
  await result(tab, 20);
  const { semel } = await accounts(tab, url);
  assert.equal(semel.balance, 200);
  assert.doesNotMatch(await text(tab, "rows"), /killed/);
  assert.ok(await tab.locator("#kill").isDisabled());
  assert.deepEqual(mine.complaints, []);
});

test("a second run counts its own clicks alone", LIMIT, async (t) => {
  const mine = await visitor(t);
  const tab = await mine.open("/#lose-requests=0&run=10");
  await result(tab, 10);
  await tab.goto(`${url}/#lose-requests=0&run=5`);
  await result(tab, 15);
  assert.equal(await text(tab, "progress-text"), "5 of 5 clicks made, 5 answered by Semel");
  assert.deepEqual(mine.complaints, []);
});

test("a link within the page leaves the settings as they are", LIMIT, async (t) => {
  const mine = await visitor(t);
  const tab = await mine.open("/#twice=40");
  await until(() => tab.locator("#deposit").isEnabled(), "the page is interactive");
  await tab.keyboard.press("Tab");
  await tab.keyboard.press("Enter");
  await until(() => tab.evaluate(() => document.activeElement.id === "lab"), "the lab has the focus");
  await until(() => tab.evaluate(() => location.hash === "#twice=40"), "the address is the scenario again");
  assert.deepEqual([await text(tab, "twice-value"), await text(tab, "loseRequests-value")], ["40 %", "none"]);
  assert.deepEqual(mine.complaints, []);
});

test("who starts over in the middle of a run has a new account, and nothing of the old one goes wrong", LIMIT, async (t) => {
  const mine = await visitor(t);
  const one = await mine.open("/#lose-requests=50&run=100");
  const two = await mine.open();
  await until(async () => Number.parseInt(await text(one, "progress-text")) > 20, "the run is under way");
  await Promise.all([...[one, two].map((tab) => tab.waitForEvent("load")), one.locator("#over").click()]);
  for (const tab of [one, two]) await until(async () => (await text(tab, "clicked")) === "$0", "nothing is clicked in the new account");
  assert.deepEqual(mine.complaints, []);
});

test("a tab that opens as the first click of another is made does not take the journal for lost", LIMIT, async (t) => {
  const mine = await visitor(t);
  const one = await mine.open("/#lose-requests=0");
  await until(() => one.locator("#deposit").isEnabled(), "the page is interactive");
  const two = await mine.page();
  // The new tab has read the journal, in which is nothing, and asks the server: what it hears is of after the click.
  const asked = gate(() => true);
  await two.route("**/lab/accounts/**", async (route) => {
    await asked.hold({ url: route.request().url() });
    await route.continue();
  });
  await two.goto(url);
  await until(() => asked.held.length > 0, "the server is asked");
  await one.locator("#deposit").click();
  await result(one, 1);
  asked.open();
  await until(async () => (await text(two, "clicked")) === "$10", "the new tab has the click");
  await until(() => two.locator("#deposit").isEnabled(), "the new tab is interactive");
  assert.equal(await text(one, "clicked"), "$10");
  assert.deepEqual(mine.complaints, []);
});
