// The state goes back in time, because a copy of its files is put in place: what docs/operations.md says about ids must hold then.

import assert from "node:assert/strict";
import { cp, rm } from "node:fs/promises";
import { after, test } from "node:test";
import { serve } from "./server.mjs";

const RETENTION_S = 86_400;
const server = await serve(after, "ledger");
const copy = `${server.state}-copy`;
after(() => rm(copy, { recursive: true, force: true }));

const seconds = () => Math.floor(Date.now() / 1000);

/** Stops the server, runs `work` on its files, and starts it again. */
async function whileStopped(work) {
  await server.kill();
  await work();
  await server.restart();
}

test("after the state is restored from a copy, ids are gone with their effects, and a late attempt changes nothing", { timeout: 60_000 }, async () => {
  const sent = (id, more) => server.deposit("back", 5, { id, firstSent: seconds(), ...more });
  const before = await sent("before");
  await whileStopped(() => cp(server.state, copy, { recursive: true }));

  assert.equal((await sent("lost")).semel, "executed");
  const cancel = { id: "control", body: JSON.stringify({ id: "cancelled", firstSent: seconds() }) };
  assert.equal((await server.send("POST", "/semel/v1/keys/accounts%2Fback/cancel", cancel)).json.state, "cancelled");
  assert.equal((await sent("cancelled")).semel, "cancelled");
  assert.equal((await server.account("back")).balance, 10);

  await whileStopped(async () => {
    await rm(server.state, { recursive: true });
    await cp(copy, server.state, { recursive: true });
  });
  assert.deepEqual(await server.account("back"), { id: "back", balance: 5, entries: 1 });

  const replayed = await sent("before");
  assert.deepEqual([replayed.semel, replayed.text], ["replayed", before.text]);
  // This attempt was on its way while the state went back, and its deadline has passed.
  assert.equal((await sent("cancelled", { deadline: Date.now() - 1000 })).semel, "attempt-expired");
  assert.equal((await sent("ancient", { firstSent: seconds() - RETENTION_S - 60 })).semel, "outside-window");
  assert.equal((await server.account("back")).balance, 5);

  assert.equal((await sent("lost")).semel, "executed");
  assert.equal((await sent("lost")).semel, "replayed");
  assert.equal((await server.account("back")).balance, 10);
  // The document warns of this: without a deadline, nothing remembers the cancellation.
  assert.equal((await sent("cancelled")).semel, "executed");
});
