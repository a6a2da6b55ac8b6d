// What Firefox shows: the scenarios that need nothing but its tabs, reloads, and `kill -9`.

import { after, test } from "node:test";
import { findFirefox } from "../../../scripts/setup/firefox.mjs";
import { startBank } from "../bank.mjs";
import { anyBody, leaving, leftOver, sameId } from "../scenarios/shared.mjs";
import { browseFirefox } from "./browser.mjs";

/** Past this, what runs hangs. */
const LIMIT = { timeout: 120_000 };

const path = await findFirefox();
if (path === undefined) throw new Error("There is no Firefox: install it, or set SEMEL_FIREFOX to its path.");
const bank = await startBank(after, { start: (after) => browseFirefox(after, path) });
const { browser } = bank;

const reload = async (page) => {
  await page.reload();
  return page;
};
const kill = async (_, blank) => {
  await browser.kill();
  await browser.start();
  return blank();
};

for (const [name, way, leave] of [["reload", "a reload", reload], ["kill", "kill -9 of the browser", kill]]) {
  test(`Firefox: ${way} in mid-request: each effect is exact, and each caller's answer comes to the next page, once`, LIMIT, leaving(bank, name, leave));
}

test("Firefox: of two tabs one is closed in mid-request: what it left goes on in the other, and each effect is exact", LIMIT, leftOver(bank, 2, (page) => page.close()));

test("Firefox: two tabs without Web Locks send one id at once: it runs once, and both are told the truth", LIMIT, sameId(bank));

// A Request of Firefox gives no stream of its body, and makes a text of a stream that it is given.
test("Firefox: a body of any kind is sent as it is", LIMIT, anyBody(bank));
