// What WebKit shows in a private window: it has IndexedDB there, in memory.

import { after, test } from "node:test";
import { startBank } from "../bank.mjs";
import { leaving, reload } from "../scenarios/shared.mjs";
import { browseWebKit } from "./browser.mjs";

/** Past this, what runs hangs. */
const LIMIT = { timeout: 120_000 };

const bank = await startBank(after, { start: async (after) => (await browseWebKit(after, { isPrivate: true })).browser });

test("WebKit: in a private window too a page that is reloaded in mid-request goes on, each effect is exact, and each caller's answer comes to it, once", LIMIT, leaving(bank, "private", reload));
