// The lab's page where nobody can kill the server, as on the deployed demonstration, and other things that a visitor can do to it.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { WWW_FOLDER } from "../../scripts/setup/www.mjs";
import { accounts, labs, result, text } from "./lab.mjs";
import { gate, until } from "./lossy.mjs";
import { serve } from "./server.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 120_000 };

const { url } = await serve(after, "ledger", {}, { assets: WWW_FOLDER });
const { visitor } = await labs(after, url);

test("if a link asks to kill a server that can't be killed, the run goes on, and the page shows no kill", LIMIT, async (t) => {
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

test("a second run counts only its own clicks", LIMIT, async (t) => {
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

test("starting over in the middle of a run gives every tab a new account, without complaints", LIMIT, async (t) => {
  const mine = await visitor(t);
  const one = await mine.open("/#lose-requests=50&run=100");
  const two = await mine.open();
  await until(async () => Number.parseInt(await text(one, "progress-text")) > 20, "the run is under way");
  await Promise.all([...[one, two].map((tab) => tab.waitForEvent("load")), one.locator("#over").click()]);
  for (const tab of [one, two]) await until(async () => (await text(tab, "clicked")) === "$0", "nothing is clicked in the new account");
  assert.deepEqual(mine.complaints, []);
});

test("a tab that opens while another makes its first click keeps the account and shows the click", LIMIT, async (t) => {
  const mine = await visitor(t);
  const one = await mine.open("/#lose-requests=0");
  await until(() => one.locator("#deposit").isEnabled(), "the page is interactive");
  const two = await mine.page();
  // The new tab has read the journal, which is empty, and now asks the server. It gets its answer only after the click.
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

test("a tab that opens while another starts over joins the new account, however far it has loaded", LIMIT, async (t) => {
  const mine = await visitor(t);
  const one = await mine.open("/#lose-requests=0");
  await until(() => one.locator("#deposit").isEnabled(), "the page is interactive");
  for (const step of ["before its journal", "with an empty journal", "with the journal of clicks"]) {
    if (step === "with the journal of clicks") {
      await one.locator("#deposit").click();
      await result(one, 1);
    }
    const two = await mine.page();
    const held = gate(() => true);
    const isEarly = step === "before its journal";
    // The first lock that a tab asks for is that of its number.
    if (isEarly) {
      await two.exposeFunction("held", () => held.hold({ url: "the lock" }));
      await two.addInitScript(() => {
        const request = navigator.locks.request.bind(navigator.locks);
        navigator.locks.request = async (...asked) => (await globalThis.held(), request(...asked));
      });
    } else {
      await two.route("**/lab/accounts/**", async (route) => {
        await held.hold({ url: route.request().url() });
        await route.continue();
      });
    }
    await two.goto(url);
    await until(() => held.held.length > 0, "the new tab has come so far");
    const account = await one.evaluate(() => localStorage["semel lab account"]);
    await Promise.all([one.waitForEvent("load"), one.locator("#over").click()]);
    const next = await one.evaluate(() => localStorage["semel lab account"]);
    assert.notEqual(next, account);
    held.open();
    await until(() => one.locator("#deposit").isEnabled(), "the page is interactive again");
    await two.locator("#deposit").click();
    await until(async () => (await text(two, "clicked")) === "$10", `${step}: the new tab acts`);
    await until(async () => (await text(one, "clicked")) === "$10", `${step}: in the account of the other`);
    assert.equal(await one.evaluate(() => localStorage["semel lab account"]), next);
    await two.close();
    await Promise.all([one.waitForEvent("load"), one.locator("#over").click()]);
    await until(() => one.locator("#deposit").isEnabled(), "there is another account for the next");
  }
  assert.deepEqual(mine.complaints, []);
});

test("starting over without a server keeps the page until there is one, in every tab", LIMIT, async (t) => {
  const mine = await visitor(t);
  const tabs = [await mine.open(), await mine.open()];
  let isGone = true;
  for (const tab of tabs) {
    await tab.route(`${url}/`, (route) => (isGone ? route.abort("connectionrefused") : route.continue()));
    await until(() => tab.locator("#deposit").isEnabled(), "the page is interactive");
  }
  const waits = (tab) => until(async () => /^This page starts over as soon as /.test(await text(tab, "told")), "it says that it waits");
  await tabs[0].locator("#over").click();
  await waits(tabs[0]);
  await tabs[0].locator("#deposit").click();
  await until(async () => (await text(tabs[1], "clicked")) === "$10", "the account is as it was");
  isGone = false;
  for (const tab of tabs) await until(async () => (await text(tab, "clicked")) === "$0", "it is in a new account");
  assert.deepEqual(mine.complaints, []);
});

test("when the browser clears the data of the site, the page begins with a new account", LIMIT, async (t) => {
  const mine = await visitor(t);
  const tab = await mine.open("/#lose-requests=0&run=5");
  await result(tab, 5);
  const session = await tab.context().newCDPSession(tab);
  await Promise.all([tab.waitForEvent("load"), session.send("Storage.clearDataForOrigin", { origin: url, storageTypes: "all" })]);
  await until(async () => (await text(tab, "clicked")) === "$0", "nothing is clicked in the new account");
  await tab.locator("#deposit").click();
  await result(tab, 1);
});
