// The scenarios in Firefox: those that need only tabs, reloads, and `kill -9`.

import { after } from "node:test";
import { findFirefox } from "../../../scripts/setup/firefox.mjs";
import { startBank } from "../bank.mjs";
import { playSessions } from "../scenarios/sessions.mjs";
import { play } from "../scenarios/shared.mjs";
import { browseFirefox } from "./browser.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 120_000 };

const path = await findFirefox();
if (path === undefined) throw new Error("There is no Firefox: install it, or set SEMEL_FIREFOX to its path.");
const bank = await startBank(after, { start: (after) => browseFirefox(after, path) });

play("Firefox", LIMIT, bank);
playSessions("Firefox", LIMIT, bank);
