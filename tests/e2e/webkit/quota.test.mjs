// WebKit, where there is no space left.

import { statfs } from "node:fs/promises";
import { tmpdir } from "node:os";
import { after, test } from "node:test";
import { startBank } from "../bank.mjs";
import { noRoom } from "../scenarios/shared.mjs";
import { browseWebKit } from "./browser.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 120_000 };
/** Enough for the database, but not for a body of a megabyte. */
const QUOTA_BYTES = 1_000_000;

const { blocks, bsize } = await statfs(tmpdir());
const bank = await startBank(after, { start: async (after) => (await browseWebKit(after, { share: QUOTA_BYTES / (blocks * bsize) })).browser });

test("WebKit: a request for which the quota has no room fails with store-failed, and is not sent", LIMIT, noRoom(bank));
