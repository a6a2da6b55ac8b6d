// Tests the layout of the inspector in Chromium, in windows of several sizes.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { at, hasRows, inspect, shows } from "./inspector.mjs";
import { FOREIGN } from "./world.mjs";

/** A test that takes longer hangs. */
const LIMIT = { timeout: 90_000 };

const { open } = await inspect(after);

test("a list of few records below the fold reserves only about as much height as its rows need", LIMIT, async (t) => {
  for (const viewport of [{ width: 1200, height: 300 }, { width: 360, height: 300 }]) {
    const { tab } = await open(t, at(FOREIGN), { viewport });
    await hasRows(tab, 12);
    const height = () => tab.evaluate(() => document.querySelector(".list").offsetHeight);
    const unseen = await height();
    await tab.locator(".page [role=row]").first().scrollIntoViewIfNeeded();
    const seen = await tab.evaluate(() => [...document.querySelectorAll(".list [role=row]")].reduce((sum, row) => sum + row.offsetHeight, 0));
    assert.ok(Math.abs(unseen - seen) < 300, `${unseen} px unseen, ${seen} px of rows`);
  }
});

test("on a phone no date beside a plot is broken over two lines", LIMIT, async (t) => {
  const { tab } = await open(t, at(FOREIGN), { viewport: { width: 360, height: 740 } });
  await shows(tab, "in steps of");
  const lines = await tab.locator(".plot-text .hint").evaluate(({ firstChild: text }) => {
    const range = document.createRange();
    return [...text.data.matchAll(/\d+-\d+-\d+/g)].map(({ index, 0: date }) => (range.setStart(text, index), range.setEnd(text, index + date.length), range.getClientRects().length));
  });
  assert.deepEqual(lines, [1, 1]);
});

test("the prefix field stands beside its label at every window width, and the page never scrolls sideways", LIMIT, async (t) => {
  const { tab } = await open(t);
  const middles = () => tab.locator("[for=prefix], #prefix").evaluateAll((both) => both.map((each) => each.getBoundingClientRect()).map(({ top, bottom }) => Math.round((top + bottom) / 2)));
  for (let width = 300; width <= 1300; width += 50) {
    await tab.setViewportSize({ width, height: 700 });
    const [name, field] = await middles();
    assert.ok(Math.abs(name - field) <= 2, `at ${width} px: ${name}, ${field}`);
    assert.equal(await tab.evaluate(() => document.documentElement.scrollWidth), width);
  }
});

test("at every window width there is room for a UUID in the list of records, and for a name of 30 characters in that of keys", LIMIT, async (t) => {
  const { tab } = await open(t);
  for (const [hash, room] of [["#", 30], [at(FOREIGN), 36]]) {
    await tab.evaluate((hash) => (location.hash = hash), hash);
    await hasRows(tab, 12);
    for (let width = 384; width <= 1280; width += 32) {
      await tab.setViewportSize({ width, height: 700 });
      const shown = await tab.locator(".page .wide").first().evaluate((cell) => {
        const text = document.createElement("a");
        text.textContent = "0".repeat(100);
        cell.replaceChildren(text);
        return (100 * cell.clientWidth) / Math.max(text.scrollWidth, text.offsetWidth);
      });
      assert.ok(shown >= room, `at ${width} px the list at ${hash} shows ${shown} characters`);
    }
  }
});
