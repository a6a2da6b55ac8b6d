// Tests the layout of the inspector in Chromium, in windows of several sizes.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { at, hasRows, inspect, shows } from "./inspector.mjs";
import { FOREIGN } from "./world.mjs";

/** A test that takes longer hangs. */
const LIMIT = { timeout: 90_000 };

const { open } = await inspect(after);

test("few records that are below what is seen have the room of few: nobody scrolls through what is empty", LIMIT, async (t) => {
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

test("on a phone no date beside a plot is broken in two", LIMIT, async (t) => {
  const { tab } = await open(t, at(FOREIGN), { viewport: { width: 360, height: 740 } });
  await shows(tab, "in steps of");
  const lines = await tab.locator(".plot-text .hint").evaluate(({ firstChild: text }) => {
    const range = document.createRange();
    return [...text.data.matchAll(/\d+-\d+-\d+/g)].map(({ index, 0: date }) => (range.setStart(text, index), range.setEnd(text, index + date.length), range.getClientRects().length));
  });
  assert.deepEqual(lines, [1, 1]);
});

test("a field stands beside its name, however wide the window is", LIMIT, async (t) => {
  const { tab } = await open(t);
  const middles = () => tab.locator("[for=prefix], #prefix").evaluateAll((both) => both.map((each) => each.getBoundingClientRect()).map(({ top, bottom }) => Math.round((top + bottom) / 2)));
  for (let width = 300; width <= 1300; width += 50) {
    await tab.setViewportSize({ width, height: 700 });
    const [name, field] = await middles();
    assert.ok(Math.abs(name - field) <= 2, `at ${width} px: ${name}, ${field}`);
    assert.equal(await tab.evaluate(() => document.documentElement.scrollWidth), width);
  }
});
