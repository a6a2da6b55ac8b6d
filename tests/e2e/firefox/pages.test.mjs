// The lab and the inspector in Firefox.

import { after } from "node:test";
import { findFirefox } from "../../../scripts/setup/firefox.mjs";
import { playPages } from "../scenarios/pages.mjs";
import { browseFirefox } from "./browser.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 120_000 };

const path = await findFirefox();
if (path === undefined) throw new Error("There is no Firefox: install it, or set SEMEL_FIREFOX to its path.");

// The tab counts as a background tab. Firefox would hold back its timers, and the lab, which has many, would take ten times as long.
const preferences = { "dom.min_background_timeout_value": 4, "dom.min_background_timeout_value_without_budget_throttling": 4, "dom.timeout.enable_budget_timer_throttling": false };
await playPages("Firefox", LIMIT, await browseFirefox(after, path, preferences), after);
