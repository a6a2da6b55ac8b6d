// What an administrator can do with a key, and limits for single keys, on workerd: its SQLite decides what is allowed and which size it reports.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { ADMIN_TOKEN, serve } from "./server.mjs";

/** Over several lines, as people write it. */
const RULES = `[
  { "keys": "accounts/small*", "recordsMax": 2 },
  { "keys": "accounts/large", "bytesMax": 60000 },
  { "keys": "accounts/kept", "retentionSeconds": "forever" }
]`;
const server = await serve(after, "ledger", { SEMEL_KEY_RULES: RULES });
const pathOf = (account, what = "") => `/semel/v1/admin/keys/${encodeURIComponent(`accounts/${account}`)}${what}`;
const ask = (account, what) => server.send("GET", pathOf(account, what), { as: ADMIN_TOKEN });
const remove = (account, what, id = randomUUID()) => server.send("DELETE", pathOf(account, what), { as: ADMIN_TOKEN, id });

test("a key shows its figures, its records page by page and over time to the administrator alone", async () => {
  const ids = ["a", "b", "c"];
  for (const id of ids) await server.deposit("shown", 1, { id });
  const shown = (await ask("shown")).json;
  assert.deepEqual([shown.key, shown.records, shown.tombstones, shown.retentionSeconds, shown.counters.executed], ["accounts/shown", 3, 0, 86_400, 3]);
  assert.ok(shown.bytes >= 4096 && shown.bytes % 4096 === 0 && shown.oldest <= shown.now, JSON.stringify(shown));
  const first = (await ask("shown", "/records?limit=2")).json;
  const second = (await ask("shown", `/records?limit=2&after=${first.next}`)).json;
  assert.deepEqual([...first.records, ...second.records].map(({ id, state, status }) => [id, state, status]), ids.map((id) => [id, "executed", 200]));
  assert.equal(second.next, null);
  const idsIn = async (state) => (await ask("shown", `/records?state=${state}`)).json.records.map(({ id }) => id);
  assert.deepEqual([await idsIn("executed"), await idsIn("in-doubt")], [ids, []]);
  const record = (await ask("shown", "/records/a")).json;
  assert.deepEqual([record.outcome.status, record.bytes], [200, record.outcome.body.length]);
  const times = (await ask("shown", `/times?from=${shown.oldest}&step=3600000&count=2`)).json;
  assert.deepEqual([times.records, times.tombstones], [[3, 0], [0, 0]]);
  for (const as of [undefined, "alice", "semel:admin"]) assert.equal((await server.send("GET", pathOf("shown"), { as })).semel, "unauthorized");
});

test("a deleted record never runs again; a deleted key begins anew, and its deletion is replayed after a restart", async () => {
  const firstSent = Math.floor(Date.now() / 1000);
  await server.deposit("gone", 5, { id: "a", firstSent });
  await server.deposit("gone", 7, { id: "b", firstSent });
  const record = await remove("gone", "/records/a");
  assert.deepEqual([record.status, record.json], [200, { state: "expired", executed: "yes" }]);
  assert.equal((await server.deposit("gone", 5, { id: "a", firstSent })).semel, "outcome-expired");
  const key = await remove("gone", "", "own");
  assert.deepEqual([key.semel, key.json.state], ["executed", "deleted"]);
  assert.equal((await server.account("gone")).entries, 0);
  await server.restart();
  assert.deepEqual([(await remove("gone", "", "own")).semel, (await ask("gone")).json.fence], ["replayed", key.json.fence]);
  for (const id of ["a", "b"]) assert.equal((await server.deposit("gone", 5, { id, firstSent })).semel, "forgotten");
  assert.equal((await server.deposit("gone", 2)).semel, "executed");
  assert.deepEqual([(await server.account("gone")).balance, (await server.account("gone")).entries], [2, 1]);
});

test("a key rule applies to its own keys only, and a refusal names the limit that is reached", async () => {
  for (const account of ["small", "smaller"]) {
    for (let n = 0; n < 2; n += 1) assert.equal((await server.deposit(account, 1)).semel, "executed");
    const full = await server.deposit(account, 1);
    assert.equal(full.semel, "capacity");
    assert.match(full.json.detail, /2 unacknowledged records/);
  }
  let full;
  for (let n = 0; n < 600 && full?.semel !== "capacity"; n += 1) full = await server.deposit("large", 1);
  assert.match(full.json.detail, /60000 bytes/);
  assert.ok((await ask("large")).json.bytes >= 60_000);
  assert.equal((await remove("large", "")).semel, "executed");
  assert.equal((await server.deposit("large", 1)).semel, "executed");
  const kept = await server.deposit("kept", 1);
  assert.deepEqual([kept.headers.get("semel-expires"), (await ask("kept")).json.retentionSeconds], [null, null]);
  assert.notEqual((await server.deposit("other", 1)).headers.get("semel-expires"), null);
});
