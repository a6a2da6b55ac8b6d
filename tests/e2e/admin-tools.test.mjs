// The command line and the inspector against the real server: what each shows and changes.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { SDK_PACKAGE } from "../../scripts/setup/sdk.mjs";
import { WWW_FOLDER } from "../../scripts/setup/www.mjs";
import { labs } from "./lab.mjs";
import { startLossy, until } from "./lossy.mjs";
import { ADMIN_TOKEN, serve } from "./server.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 60_000 };
const KEY = "accounts/alice";

const FULL = { keys: "accounts/full", recordsMax: 2 };
const server = await serve(after, "ledger", { SEMEL_REPORT_SECONDS: "1", SEMEL_KEY_RULES: JSON.stringify([FULL]) }, { assets: WWW_FOLDER });
const ids = Array.from({ length: 5 }, () => randomUUID()).sort();

/** Runs the command line. Resolves to `{ code, stdout, stderr }`. */
const semel = (args, { url = server.url, token = ADMIN_TOKEN } = {}) =>
  new Promise((resolve) => {
    const env = { PATH: process.env.PATH, SEMEL_URL: url, SEMEL_ADMIN_TOKEN: token };
    execFile(join(SDK_PACKAGE, "bin/semel.cjs"), args, { env }, (error, stdout, stderr) => resolve({ code: error?.code ?? 0, stdout, stderr }));
  });
const asJson = async (args) => {
  const { code, stdout, stderr } = await semel([...args, "--json"]);
  assert.equal(code, 0, stderr);
  return stdout.trimEnd().split("\n").filter(Boolean).map((line) => JSON.parse(line));
};

before(async () => {
  const firstSent = Math.floor(Date.now() / 1000);
  for (const id of ids) assert.equal((await server.deposit("alice", 5, { id, firstSent })).semel, "executed");
  await server.deposit("bob", 1, { firstSent });
});

test("the command line lists the keys, and shows a key and a record with what they keep", LIMIT, async () => {
  await until(async () => (await asJson(["keys", "--order", "name"])).map(({ key }) => key).join() === "accounts/alice,accounts/bob", "both keys are listed");
  const [shown] = await asJson(["show", KEY]);
  assert.deepEqual([shown.key, shown.records, shown.tombstones, shown.sessions, shown.retentionSeconds, shown.counters.executed], [KEY, 5, 0, 0, 86_400, 5]);
  assert.match((await semel(["show", KEY])).stdout, /records +5 {2}below 0\.1 % of 10,000,000/);
  await server.send("POST", "/semel/v1/keys/accounts%2Fbob/sessions", { id: randomUUID(), body: '{"name":"till"}' });
  assert.match((await semel(["show", "accounts/bob"])).stdout, /\n {2}sessions +1 {2}below 0\.1 % of 100,000\n/);
  const [record] = await asJson(["show", KEY, ids[0]]);
  assert.deepEqual([record.id, record.state, record.executed, JSON.parse(record.outcome.body)], [ids[0], "executed", "yes", { id: "alice", balance: 5, entries: 1 }]);
  assert.match((await semel(["show", KEY, ids[0]])).stdout, /Status 200[\s\S]*"balance": 5/);
});

test("a wrong token, an unknown key and an unknown id are told as failures of the command", LIMIT, async () => {
  for (const [args, options, says] of [
    [["keys"], { token: "some-token-or-another" }, /^(The administration token was refused|This token is not the administrator's)\./],
    [["show", "accounts/nobody"], {}, /^There is no such key here\./],
    [["show", KEY, "nobody"], {}, /^This key knows no such id\./],
  ]) {
    const { code, stderr } = await semel(args, options);
    assert.equal(code, 1);
    assert.match(stderr, says);
  }
});

test("over a network that loses answers the command makes each change once, and a request that ran stays", LIMIT, async (t) => {
  const proxy = await startLossy({ target: () => server.url, seed: 7, loseAnswers: 0.5, loseRequests: 0.2 });
  t.after(() => proxy.close());
  const cancelled = await semel(["cancel", KEY, "never-sent"], { url: proxy.url });
  assert.deepEqual([cancelled.code, cancelled.stdout], [0, "It is cancelled: from now on it never runs.\n"], cancelled.stderr);
  assert.equal((await server.deposit("alice", 5, { id: "never-sent" })).semel, "cancelled");
  const deleted = await semel(["delete", KEY, ids[1], "--yes"], { url: proxy.url });
  assert.deepEqual([deleted.code, deleted.stdout], [0, "The record is reduced to its id. Did it run: yes, once.\n"], deleted.stderr);
  assert.equal((await server.deposit("alice", 5, { id: ids[1] })).semel, "outcome-expired");
  assert.equal((await server.account("alice")).balance, 25);
  const ran = await semel(["cancel", KEY, ids[2]]);
  assert.deepEqual([ran.code, ran.stderr], [1, "It had run already. Its effect and its outcome stay.\n"]);
});

test("deleting a record of a full key makes room for another request", LIMIT, async () => {
  const [first, second, third] = Array.from({ length: 3 }, () => randomUUID());
  const send = async (id) => (await server.deposit("full", 1, { id, firstSent: Math.floor(Date.now() / 1000) })).semel;
  assert.deepEqual([await send(first), await send(second), await send(third)], ["executed", "executed", "capacity"]);
  assert.equal((await semel(["delete", "accounts/full", first, "--yes"])).code, 0);
  assert.equal(await send(third), "executed");
  assert.equal((await semel(["delete", "accounts/full", second, "--yes"])).code, 0);
  const [{ records }] = await asJson(["show", "accounts/full"]);
  assert.equal(records, 1);
});

test("the inspector leads from the list of keys to a record, and deletes that", LIMIT, async (t) => {
  const { visitor } = await labs((end) => t.after(end), server.url);
  const mine = await visitor(t);
  const tab = await mine.open("/inspector");
  await tab.getByLabel("Administration token").fill(ADMIN_TOKEN);
  await tab.keyboard.press("Enter");
  await tab.getByRole("link", { name: KEY, exact: true }).click();
  await tab.getByRole("meter").first().waitFor();
  await tab.getByText(/\d records? .*\d tombstones?/).first().waitFor();
  await tab.getByRole("link", { name: ids[3], exact: true }).click();
  await tab.getByText('"balance": 20').waitFor();
  await tab.getByRole("button", { name: "Delete this record…" }).click();
  await tab.getByRole("button", { name: "Delete the record" }).dblclick();
  await tab.getByText("The request had run, and its effect stays.").waitFor();
  await tab.getByRole("button", { name: "Close" }).click();
  await tab.getByText("It is no longer kept.").waitFor();
  assert.deepEqual(mine.complaints, []);
});

test("forget keeps records that are not old enough, and delete empties a key with one id though answers are lost", LIMIT, async (t) => {
  const [job] = await asJson(["forget", "--before", "1h", "--yes"]);
  assert.deepEqual([job.state, job.keys, job.done], ["done", 3, 3]);
  assert.equal((await semel(["show", KEY, ids[4]])).code, 0, "it is not as old");
  const proxy = await startLossy({ target: () => server.url, seed: 11, loseAnswers: 0.6 });
  t.after(() => proxy.close());
  const deleted = await semel(["delete", KEY, "--whole", "--yes"], { url: proxy.url });
  assert.equal(deleted.code, 0, deleted.stderr);
  assert.match(deleted.stdout, /^The key is deleted\. What is first sent before 20\S+Z is refused, new requests too\.\n$/);
  const changes = [...proxy.changes.values()].filter(({ method }) => method === "DELETE");
  assert.equal(changes.length, 1, "one id, however often it was sent");
  assert.deepEqual(await server.account("alice"), { id: "alice", balance: 0, entries: 0 });
});

test("a deleted key shows its fence, and a request first sent after that runs on an empty account", LIMIT, async () => {
  const [shown] = await asJson(["show", KEY]);
  assert.deepEqual([shown.key, shown.fence > 0], [KEY, true]);
  assert.equal((await server.deposit("alice", 1, { id: randomUUID(), firstSent: shown.fence + 1 })).semel, "executed");
  assert.equal((await server.account("alice")).balance, 1);
});
