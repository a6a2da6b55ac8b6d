// Firefox, where there is no space left.

import { after, test } from "node:test";
import { findFirefox } from "../../../scripts/setup/firefox.mjs";
import { startBank } from "../bank.mjs";
import { noRoom } from "../scenarios/shared.mjs";
import { browseFirefox } from "./browser.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 120_000 };
/** Enough for the database, but not for a body of a megabyte. */
const QUOTA_KIB = 1_000;

const path = await findFirefox();
if (path === undefined) throw new Error("There is no Firefox: install it, or set SEMEL_FIREFOX to its path.");
const preferences = { "dom.quotaManager.temporaryStorage.fixedLimit": QUOTA_KIB };
const bank = await startBank(after, { start: (after) => browseFirefox(after, path, preferences) });

// In Firefox, a transaction that is told to commit within the `success` of a request completes even if a `put` in it has failed.
test("Firefox: a request for which the quota has no room fails with store-failed, and is not sent", LIMIT, noRoom(bank));
