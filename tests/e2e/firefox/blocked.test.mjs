// Firefox, where a frame of another site may store nothing.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { findFirefox } from "../../../scripts/setup/firefox.mjs";
import { first, make, small, startBank } from "../bank.mjs";
import { browseFirefox } from "./browser.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 120_000 };
/** The value of the preference that denies other sites cookies and storage. */
const NOT_OF_OTHER_SITES = 1;

const path = await findFirefox();
if (path === undefined) throw new Error("There is no Firefox: install it, or set SEMEL_FIREFOX to its path.");
const { through } = await startBank(after, { start: (after) => browseFirefox(after, path, { "network.cookie.cookieBehavior": NOT_OF_OTHER_SITES }) });

test("Firefox: in a frame that may store nothing the outbox refuses with store-unavailable; by itself the site has one", LIMIT, async (t) => {
  const { proxy, open, blank } = await through(t);
  const page = await blank();
  const url = await page.evaluate(() => location.href);
  await page.goto(url.replace("127.0.0.1", "localhost"));
  await assert.rejects(open(await page.frame(url)), /StoreError: store-unavailable: /);
  assert.equal(proxy.counts.requests, 0);
  await page.goto(url);
  await open(page);
  const deposit = small("by-itself", 1);
  assert.equal((await make(page, deposit)).text, first(deposit.account, 1));
});
