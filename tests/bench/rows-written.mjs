// The rows that Semel writes of a request from its execution until nothing of it is left, without the handler's own.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { clockedLedger, forward } from "../e2e/scenarios/clocked.mjs";
import { serve } from "../e2e/server.mjs";
import { Counted, countingWorker, leaving } from "./rows.mjs";

const MANY = 256;
const BATCH = 64;
/** The account's row is written once a commit. */
const ROWS_OF_HANDLER = 1;

/** Resolves to the rows of a request `plain`, in a `session` by itself, and in one `batched` with others. `after` is called with what ends all. */
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
  /** Of the requests that `send` sends, so many a commit, to an account that has its tables. */
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
