// Tests that a change costs what docs/operations.md says: rows written, as the runtime counts them.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { clockedLedger, forward } from "../e2e/scenarios/clocked.mjs";
import { serve } from "../e2e/server.mjs";
import { Counted, countingWorker, leaving } from "./rows.mjs";

const BURST = 200;
const SPARSE = 20;
const MINUTE_MS = 60_000;

const scratch = await mkdtemp(join(tmpdir(), "semel-rows-"));
after(() => rm(scratch, { recursive: true, force: true }));
const folder = await clockedLedger(after, await countingWorker(join(scratch, "counting")));
const server = await serve(after, "ledger", {}, { folder });

let aheadMs = 0;
const now = () => Date.now() + aheadMs;
async function pass(ms) {
  aheadMs += ms;
  await forward(server, ms);
}

/** A client of an account whose tables exist. */
async function opened(account) {
  const client = new Counted(server.url, account);
  await client.change(now(), false);
  await client.acknowledge(now());
  return client;
}

/** How many rows a change costs from its execution until nothing of it is left, if one comes each `everyMs`. */
async function life(account, many, everyMs) {
  const client = await opened(account);
  let rows = 0;
  for (let sent = 0; sent < many; sent += 1) {
    rows += await client.change(now(), true);
    if (everyMs > 0) await pass(everyMs);
  }
  rows += await client.acknowledge(now());
  return (rows + (await leaving(client, pass))) / many;
}

test("the rows that a change writes are those in the table of docs/operations.md", { timeout: 60_000 }, async () => {
  const client = await opened("each");
  const sentMs = now();
  const measured = [
    ["a change, executed", await client.change(now(), false)],
    ["a change that acknowledges the one before it", await client.change(sentMs, true)],
    // This attempt has the first-sent and the deadline of the change. A deadline that is later by a few ms could round up to the next ten seconds,
    // and so write a row.
    ["a change sent again, replayed", await client.again(sentMs)],
    ["an acknowledgement by itself", await client.acknowledge(now())],
    ["a read", await client.read()],
    ["all of a change's life, many in a burst", await life("burst", BURST, 0)],
    ["all of a change's life, one a minute", await life("sparse", SPARSE, MINUTE_MS)],
  ];
  const rows = measured.map(([what, many]) => `| ${what} | ${many.toFixed(1)} |`);
  const document = await readFile(join(ROOT, "docs/operations.md"), "utf8");
  const [, table] = /<!-- rows -->\n[^\n]*\n[^\n]*\n([\s\S]*?)\n<!-- \/rows -->/.exec(document) ?? [];
  assert.deepEqual(table?.split("\n"), rows, `docs/operations.md has other rows than were measured:\n${rows.join("\n")}`);
});
