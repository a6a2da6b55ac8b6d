// WebKit, on a disk that refuses to sync.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { first, make, recovered, small, startBank } from "../bank.mjs";
import { until } from "../lossy.mjs";
import { browseWebKit } from "./browser.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 120_000 };

const folder = mkdtempSync(join(tmpdir(), "semel-sync-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const [library, flag] = [join(folder, "sync.so"), join(folder, "refuses")];
execFileSync("cc", ["-shared", "-fPIC", "-o", library, fileURLToPath(new URL("sync.c", import.meta.url))]);
const bank = await startBank(after, { start: async (after) => (await browseWebKit(after, { preload: { LD_PRELOAD: library, SEMEL_REFUSES: flag } })).browser });

// WebKit ends such a transaction without an error, and may find the row at its next start.
test("WebKit: a request whose row the disk refuses to sync is not said never to have run", LIMIT, async (t) => {
  const { browser, server, through } = bank;
  const { open, blank, tab } = await through(t);
  const page = await tab();
  const [before, refused, next] = [small("before", 1), small("refused", 1), small("next", 1)];
  assert.equal((await make(page, before)).text, first("before", 1));
  writeFileSync(flag, "");
  const { error } = await make(page, refused);
  await browser.kill();
  rmSync(flag);
  await browser.start();
  const later = await blank();
  await open(later);
  await later.evaluate(() => bank.takeRecovered());
  // What is stored goes first, so it has its answer by now.
  assert.equal((await make(later, next)).text, first("next", 1));
  await until(async () => (await later.evaluate(() => bank.pending())).length === 0, "nothing is pending");
  assert.deepEqual([error?.code, error?.executed], ["store-failed", "unknown"]);
  const { entries } = await server.account("refused");
  const heard = (await recovered(later)).filter(({ n }) => n === refused.n);
  assert.deepEqual(heard.map(({ status }) => status), entries ? [200] : []);
});
