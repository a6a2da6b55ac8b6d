// Counts the rows that Semel writes for a request, from its execution until nothing of it is left. The handler's own rows are not counted.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { clockedLedger, forward } from "../e2e/scenarios/clocked.mjs";
import { serve } from "../e2e/server.mjs";
import { Counted, countingWorker, leaving } from "./rows.mjs";

const MANY = 256;
const BATCH = 64;
/** The handler writes the account's row once in each commit. */
const ROWS_OF_HANDLER = 1;

/** Resolves to the rows of a request that is `plain`, alone in a `session`, and `batched` with others. `after` is called with what ends everything. */
export async function rowsWritten(after) {
  const scratch = await mkdtemp(join(tmpdir(), "semel-rows-"));
  after(() => rm(scratch, { recursive: true, force: true }));
  const folder = await clockedLedger(after, await countingWorker(join(scratch, "counting")));
  const server = await serve(after, "ledger", {}, { folder });
  let aheadMs = 0;
  const now = () => Date.now() + aheadMs;
  const pass = async (ms) => {
    aheadMs += ms;
    await forward(server, ms);
  };
  /** The rows of each request that `send` sends, `together` in each commit, to an account whose tables exist. */
  const life = async (account, send, together = 1) => {
    const client = new Counted(server.url, account);
    await client.change(now(), false);
    await client.acknowledge(now());
    const rows = await send(client);
    return (rows + (await leaving(client, pass))) / MANY - ROWS_OF_HANDLER / together;
  };
  const sum = async (times, send) => {
    let rows = 0;
    for (let time = 0; time < times; time += 1) rows += await send(time);
    return rows;
  };
  return {
    plain: await life("plain", async (client) => (await sum(MANY, (time) => client.change(now(), time > 0))) + (await client.acknowledge(now()))),
    session: await life("session", async (client) => {
      await client.takeOver(now());
      return sum(MANY, () => client.numbered(now()));
    }),
    batched: await life(
      "batched",
      async (client) => {
        await client.takeOver(now());
        return sum(MANY / BATCH, () => client.batch(now(), BATCH));
      },
      BATCH,
    ),
  };
}
