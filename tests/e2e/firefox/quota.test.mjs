// What Firefox shows where it has no space left.

import { after, test } from "node:test";
import { findFirefox } from "../../../scripts/setup/firefox.mjs";
import { startBank } from "../bank.mjs";
import { noRoom } from "../scenarios/shared.mjs";
import { browseFirefox } from "./browser.mjs";

/** Past this, what runs hangs. */
const LIMIT = { timeout: 120_000 };
/** Room for the database, and for no body of a megabyte. */
const QUOTA_KIB = 1_000;

const path = await findFirefox();
if (path === undefined) throw new Error("There is no Firefox: install it, or set SEMEL_FIREFOX to its path.");
const preferences = { "dom.quotaManager.temporaryStorage.fixedLimit": QUOTA_KIB };
const bank = await startBank(after, { start: (after) => browseFirefox(after, path, preferences) });

// A transaction of Firefox that was told to commit from within a request's `success` is complete though what it was to put has failed.
test("Firefox: what the quota has no room for is refused, and not sent", LIMIT, noRoom(bank));
