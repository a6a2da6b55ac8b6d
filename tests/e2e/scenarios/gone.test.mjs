// A page that goes away in mid-request: by a reload, a crash of the tab, or `kill -9` of the browser and a new start with the same profile.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { startBank } from "../bank.mjs";
import { crash } from "../browser.mjs";
import { leaving, reload } from "./shared.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 60_000 };

const bank = await startBank(after);
const { browser } = bank;

const WAYS = {
  "a reload": reload,
  "a crash of the tab": async (page, blank) => {
    await crash(page);
    return blank();
  },
  "kill -9 of the browser": async (_, blank) => {
    await browser.kill();
    await browser.start();
    return blank();
  },
};

for (const [place, [way, leave]] of Object.entries(WAYS).entries()) {
  test(`${way} in mid-request: each effect is exact, and the answer of each request comes once to the next page`, LIMIT, leaving(bank, `gone-${place}`, leave));
}

test("no page has had an uncaught error", () => assert.deepEqual(browser.errors, []));
