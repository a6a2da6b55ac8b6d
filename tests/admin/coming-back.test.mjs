// Tests navigation in the inspector, in Chromium: who goes back finds a view as it was left, and who comes from elsewhere sees what is there now.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { until } from "../e2e/lossy.mjs";
import { at, hasRows, inspect, rows, shows, stateField } from "./inspector.mjs";
import { EMPTY, HEAVY, SMALL, idOf, numberOf, stateOf } from "./world.mjs";

/** A test that takes longer hangs. */
const LIMIT = { timeout: 90_000 };

const { fake, open } = await inspect(after);
const placeOf = (tab) => tab.evaluate(() => scrollY);
/** Waits until all poisoned records are listed. The page looks for more each time its foot comes into sight. */
const allAreFound = (tab) =>
  until(async () => {
    await tab.evaluate(() => scrollTo(0, document.body.scrollHeight));
    return /^24 records$/.test(await tab.locator(".endless .count").textContent());
  }, "all are found");
const addressOf = (tab) => tab.evaluate(() => location.hash);

test("going back from a record shows its key as it was left, at the same place, without a new request for the list", LIMIT, async (t) => {
  const { mine, tab } = await open(t, at(HEAVY));
  await hasRows(tab, 100);
  await tab.evaluate(() => scrollTo(0, document.body.scrollHeight));
  await hasRows(tab, 200);
  const id = idOf(0, 150);
  await tab.getByRole("link", { name: id, exact: true }).scrollIntoViewIfNeeded();
  const [place, count, calls] = [await placeOf(tab), (await rows(tab)).length, fake.calls.length];
  assert.ok(place > 1000);
  for (const back of [() => tab.goBack(), () => tab.locator(".way").getByRole("link", { name: HEAVY }).click()]) {
    await tab.getByRole("link", { name: id, exact: true }).click();
    await until(async () => (await tab.locator("h1 code").textContent()) === id, "the record is shown");
    await back();
    await until(async () => (await placeOf(tab)) === place, "the place is the same");
    assert.deepEqual([(await rows(tab)).length, await addressOf(tab)], [count, at(HEAVY)]);
  }
  // The view of a record also asks for its key, whose limits it shows.
  const asked = new Set(fake.calls.slice(calls).map(({ path }) => decodeURIComponent(path).replace(`/semel/v1/admin/keys/${HEAVY}`, "")));
  assert.deepEqual(asked, new Set([`/records/${id}`, ""]));
  assert.deepEqual(mine.complaints, []);
});

test("going back shows a key in the state chosen there; coming from another key asks for its records again", LIMIT, async (t) => {
  const { mine, tab } = await open(t, at(SMALL));
  await hasRows(tab, 100);
  await stateField(tab).selectOption("poisoned");
  await allAreFound(tab);
  const state = `${at(SMALL)}&state=poisoned`;
  const calls = () => fake.calls.filter(({ path }) => path.includes("/records?")).length;
  const asked = calls();
  const first = Array.from({ length: 1_200 }, (_, n) => n).find((n) => stateOf(n) === "poisoned");
  const look = async () => {
    await tab.getByRole("link", { name: idOf(numberOf(SMALL), first), exact: true }).click();
    await shows(tab, "The handler crashed on it too often, so it never runs again.");
  };
  await look();
  await tab.goBack();
  await stateField(tab).waitFor();
  assert.deepEqual([await addressOf(tab), await stateField(tab).inputValue(), (await rows(tab)).length, calls()], [state, "poisoned", 24, asked]);
  await look();
  // Go to another key, and from there to this one.
  await tab.evaluate((fragment) => (location.hash = fragment), at(EMPTY));
  await shows(tab, "There are no records here.");
  await tab.evaluate((fragment) => (location.hash = fragment), state);
  await allAreFound(tab);
  assert.ok(calls() > asked + 1, "they are asked for");
  assert.deepEqual(mine.complaints, []);
});

test("leaving a key closes its open dialog, and going back after a change asks for the records again", LIMIT, async (t) => {
  const { mine, tab } = await open(t, at(SMALL));
  const id = Array.from({ length: 1_200 }, (_, n) => n).filter((n) => stateOf(n) === "suspect").map((n) => idOf(numberOf(SMALL), n)).at(0);
  await hasRows(tab, 100);
  await tab.evaluate((fragment) => (location.hash = fragment), at(SMALL, id));
  await tab.getByRole("button", { name: "Cancel it…" }).waitFor();
  await tab.goBack();
  await tab.getByRole("button", { name: "Delete this key…" }).click();
  await tab.getByRole("dialog").waitFor();
  await tab.goForward();
  await tab.getByRole("button", { name: "Cancel it…" }).waitFor();
  assert.equal(await tab.getByRole("dialog").count(), 0);
  await tab.goBack();
  await hasRows(tab, 100);
  await tab.goForward();
  const asked = fake.calls.filter(({ path }) => path.includes("/records?")).length;
  await tab.getByRole("button", { name: "Cancel it…" }).click();
  await tab.getByRole("button", { name: "Cancel the id" }).click();
  await tab.getByRole("button", { name: "Close" }).click();
  await shows(tab, "It was cancelled.");
  await tab.goBack();
  await hasRows(tab, 100);
  assert.ok(fake.calls.filter(({ path }) => path.includes("/records?")).length > asked, "the records are asked for again");
  assert.deepEqual(mine.complaints, []);
});

test("a key that is opened after going back to a list leads back to that list", LIMIT, async (t) => {
  const { mine, tab } = await open(t, "#order=name");
  await hasRows(tab, 100);
  await tab.getByRole("link", { name: "Heaviest" }).click();
  await shows(tab, HEAVY);
  await tab.goBack();
  await until(async () => (await addressOf(tab)) === "#order=name", "the list by name");
  await until(async () => ![undefined, HEAVY].includes((await rows(tab))[0]?.[0]), "it is shown");
  await tab.locator(".page a").first().click();
  await tab.locator(".way").getByRole("link", { name: "Keys" }).click();
  await until(async () => (await addressOf(tab)).startsWith("#order="), "a list");
  assert.equal(await addressOf(tab), "#order=name");
  assert.deepEqual(mine.complaints, []);
});
