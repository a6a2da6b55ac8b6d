// A private window of WebKit: it has IndexedDB, but in memory.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { begin, pending, small, startBank, unheard } from "../bank.mjs";
import { until } from "../lossy.mjs";
import { leaving, reload } from "../scenarios/shared.mjs";
import { browseWebKit } from "./browser.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 120_000 };

const bank = await startBank(after, { start: async (after) => (await browseWebKit(after, { isPrivate: true })).browser });

test("WebKit: in a private window, after a reload in mid-request each request runs once, its answer heard once", LIMIT, leaving(bank, "private", reload));

test("WebKit: requests under way in a private window are gone once the browser is killed", LIMIT, async (t) => {
  const deposit = small("private-gone", 1);
  const { proxy, tab } = await bank.through(t, { loseAnswers: 1, spare: ({ method }) => method !== "POST" });
  const page = await tab();
  await begin(page, deposit);
  await until(() => unheard(proxy, deposit) > 0, "it ran, and nobody knows");
  assert.equal((await pending(page)).length, 1);
  await bank.browser.kill();
  await bank.browser.start();
  assert.deepEqual(await pending(await tab()), []);
});
