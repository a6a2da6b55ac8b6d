// The lab and the inspector in WebKit.

import { after } from "node:test";
import { playPages } from "../scenarios/pages.mjs";
import { browseWebKit } from "./browser.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 120_000 };

const { browser } = await browseWebKit(after);
await playPages("WebKit", LIMIT, browser, after);
