// Tests the inspector in Chromium as somebody uses it who has a keyboard alone.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { until } from "../e2e/lossy.mjs";
import { at, hasRows, inspect, isOf, rows, shows, stateField } from "./inspector.mjs";
import { SMALL, idOf, numberOf } from "./world.mjs";

/** A test that takes longer hangs. */
const LIMIT = { timeout: 90_000 };

const { open } = await inspect(after);

/** The text of what has the focus; undefined if a part of the page covers it, or it is out of sight. */
const focused = (tab) =>
  tab.evaluate(() => {
    const { left, top, height } = document.activeElement.getBoundingClientRect();
    const there = document.elementFromPoint(left + 10, top + height / 2);
    return document.activeElement.contains(there) ? document.activeElement.textContent : undefined;
  });

test("whoever chooses a state of a key's records by keyboard stays in the field, and can choose the next", LIMIT, async (t) => {
  const { tab } = await open(t, at(SMALL));
  await hasRows(tab, 100);
  await stateField(tab).focus();
  for (const state of ["executed", "poisoned", "cancelled"]) {
    await tab.keyboard.press("ArrowDown");
    await until(async () => (await rows(tab)).every(([, word]) => word === state), state);
    assert.equal(await tab.evaluate(() => document.activeElement.id), "state", state);
  }
});

test("whoever goes back through a long list by keyboard sees each key that has the focus, because the head of the list covers none", LIMIT, async (t) => {
  const { tab } = await open(t, "#", { viewport: { width: 1200, height: 600 } });
  await hasRows(tab, 200);
  const keys = (await rows(tab)).map(([key]) => key);
  await tab.locator(".page a").nth(60).focus();
  for (let n = 59; n >= 0; n -= 1) {
    await tab.keyboard.press("Shift+Tab");
    assert.equal(await focused(tab), keys[n], `key ${n}`);
  }
});

test("a dialog takes the focus, Escape gives it back to its button, and after a change it is on the title of what is shown", LIMIT, async (t) => {
  const id = idOf(numberOf(SMALL), 0);
  const { tab } = await open(t, at(SMALL, id));
  await isOf(tab, id);
  const remove = "Delete this record…";
  await tab.getByRole("button", { name: remove }).focus();
  await tab.keyboard.press("Enter");
  assert.equal(await focused(tab), "Do nothing");
  await tab.keyboard.press("Escape");
  assert.equal(await focused(tab), remove);
  await tab.keyboard.press("Enter");
  await tab.keyboard.press("Tab");
  await tab.keyboard.press("Enter");
  await shows(tab, "The record is reduced to its id");
  assert.equal(await focused(tab), "Close");
  await tab.keyboard.press("Enter");
  await until(async () => (await tab.evaluate(() => document.activeElement.id)) === "title", "the title has the focus");
});
