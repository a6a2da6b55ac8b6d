// Writes without a savepoint: in Node, which failures end the object; on workerd, a ledger whose storage fails between the two writes of a commit.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { cp, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { workerFolder } from "../../scripts/setup/worker.mjs";
import { endBy, rowsOf, run, runPlain, transact } from "../../worker/storage.js";
import { serve } from "./server.mjs";

/**
 * A storage whose statements succeed, or fail with `fails`. `isOpen`: whether a transaction is open, since a pragma can be set only without one.
 * `ended`: how often the object was ended.
 */
function storage() {
  const its = { ended: 0, fails: undefined, isOpen: true, foreignKeys: 1 };
  its.sql = {
    exec: (statement) => {
      const [isPragma, set] = /^(?:PRAGMA foreign_keys=(\d);)?PRAGMA foreign_keys$/.exec(statement) ?? [];
      if (set !== undefined && !its.isOpen) its.foreignKeys = Number(set);
      if (isPragma) return { one: () => ({ foreign_keys: its.foreignKeys }) };
      if (its.fails) throw new Error(its.fails);
      return { rowsWritten: /insert|update/i.test(statement) ? 1 : 0, raw: () => [[1]] };
    },
  };
  endBy(its, () => (its.ended += 1));
  return its;
}

/** How often the object is ended if `work` is rolled back. */
function endedBy(work) {
  const its = storage();
  const undone = new Error("undone");
  const body = () => {
    work(its);
    throw undone;
  };
  assert.throws(() => transact(its, true, body));
  return its.ended;
}

test("a rollback of a light transaction ends the object only if something was written", () => {
  assert.equal(transact(storage(), true, () => 7), 7);
  const writes = { run: ({ sql }) => run(sql, "INSERT", []), plain: ({ sql }) => runPlain(sql, "INSERT", new Float64Array(1), new Uint8Array(1)), rows: ({ sql }) => rowsOf(sql, "INSERT … RETURNING 1", []) };
  assert.equal(endedBy(() => {}), 0);
  for (const reads of ["SELECT 1", "select 1", "SELECT\n1", " \n\tSELECT 1", "-- one\nSELECT 1", "/* a\nb */ SELECT 1", "WITH one AS (SELECT 1) SELECT * FROM one", "VALUES (1)"]) assert.equal(endedBy(({ sql }) => rowsOf(sql, reads, [])), 0, reads);
  for (const other of ["WITH one AS (SELECT 1) INSERT INTO a SELECT * FROM one RETURNING 1", "CREATE TABLE a (b)", "PRAGMA user_version = 1", "-- SELECT 1\nDELETE FROM a", "selected"]) assert.equal(endedBy(({ sql }) => rowsOf(sql, other, [])), 1, other);
  for (const [name, write] of Object.entries(writes)) {
    assert.equal(endedBy(write), 1, name);
    // A statement that fails has written nothing.
    const fails = (its) => assert.throws(() => write(Object.assign(its, { fails: "the statement failed" })));
    assert.equal(endedBy(fails), 0, name);
    assert.equal(endedBy((its) => (write(its), fails(its))), 1, name);
    assert.equal(transact(storage(), true, () => "done"), "done", "what was written before is no concern of the next");
    assert.equal(endedBy(() => {}), 0, name);
  }
});

test("a conflict that rolls back the whole transaction ends the object even if it is caught; other failures do not", () => {
  const writes = { run: (sql) => run(sql, "INSERT", []), plain: (sql) => runPlain(sql, "INSERT", new Float64Array(1), new Uint8Array(1)), rows: (sql) => rowsOf(sql, "INSERT … RETURNING 1", []) };
  const conflict = "UNIQUE constraint failed: a.b: SQLITE_CONSTRAINT";
  for (const [name, write] of Object.entries(writes)) {
    for (const [fails, isOpen, ended] of [[conflict, false, 1], [conflict, true, 0], ["no such table: a: SQLITE_ERROR", false, 0]]) {
      for (const foreignKeys of [1, 0]) {
        const its = Object.assign(storage(), { fails, isOpen, foreignKeys });
        assert.throws(() => write(its.sql), { message: fails });
        assert.equal(its.ended, ended, `${name}: ${fails}, ${isOpen}, ${foreignKeys}`);
      }
    }
    const { sql } = Object.assign(storage(), { fails: conflict, isOpen: false });
    assert.throws(() => write({ ...sql }), { message: conflict }, "of nobody's object");
  }
});

/** The ledger, on a storage that fails to write to a table: from `/breaks/{table}` until `/mends`, or, with `/slips/{table}`, once. */
const BROKEN = `
import ledger, { NaiveObject, SemelObject as Ledger, SemelRegistry } from "./ledger.js";
let broken;
let isOnce;
export class SemelObject extends Ledger {
  storage() {
    const { sql } = super.storage();
    const exec = (statement, ...values) => {
      if (broken !== undefined && new RegExp("^(?:INSERT|UPDATE)[A-Z ]* " + broken + " ").test(statement)) {
        if (isOnce) broken = undefined;
        throw new Error("the disk is not there");
      }
      return sql.exec(statement, ...values);
    };
    const transactionSync = (work) => super.storage().transactionSync(work);
    return { sql: { exec, get databaseSize() { return sql.databaseSize; } }, transactionSync };
  }
}
export { NaiveObject, SemelRegistry };
export default {
  fetch(request, env) {
    const [, what, table] = new URL(request.url).pathname.split("/");
    if (!["breaks", "slips", "mends"].includes(what)) return ledger.fetch(request, env);
    broken = table;
    isOnce = what === "slips";
    return new Response(null, { status: 204 });
  },
};`;

/** A server of that ledger, with what a test asks of it. */
async function breaking() {
  const folder = await mkdtemp(join(tmpdir(), "semel-broken-"));
  after(() => rm(folder, { recursive: true, force: true }));
  await cp(workerFolder("ledger"), folder, { recursive: true });
  await rename(join(folder, "index.js"), join(folder, "ledger.js"));
  await writeFile(join(folder, "index.js"), BROKEN);
  const server = await serve(after, "ledger", {}, { folder });
  const deposit = (account, attempt) => server.send("POST", `/accounts/${account}/deposit`, { body: '{"amount":5}', ...attempt });
  const balance = async (account) => (await server.send("GET", `/accounts/${account}`)).json.balance;
  return { server, deposit, balance };
}

/** Where the storage fails, and what the log then says. */
const breaks = (recorded) => [[recorded, /storage failed: the disk is not there/], ["account", /the object failed: Error: the storage failed between two writes/]];

test("if effect or record can't be written neither is there, earlier records stay, and the id can be sent again", { timeout: 60_000 }, async () => {
  const { server, deposit, balance } = await breaking();
  const named = () => ({ id: randomUUID(), firstSent: Math.floor(Date.now() / 1000) });
  for (const [table, reason] of breaks("semel_records")) {
    const [alice, bob, first, second] = [`alice-${table}`, `bob-${table}`, named(), named()];
    for (const [account, attempt] of [[alice, first], [bob, named()]]) assert.equal((await deposit(account, attempt)).semel, "executed");
    await server.send("POST", `/breaks/${table}`);
    const refused = await deposit(alice, second);
    assert.deepEqual([refused.status, refused.semel, refused.json.executed, refused.json.retry], [503, "unavailable", "unknown", "same-id"]);
    await server.line(reason);
    assert.equal(await balance(alice), 5, table);
    assert.equal((await deposit(alice, second)).semel, "unavailable");
    await server.send("POST", "/mends");
    assert.equal((await deposit(alice, first)).semel, "replayed");
    for (const expected of ["executed", "replayed"]) assert.equal((await deposit(alice, second)).semel, expected);
    assert.deepEqual([await balance(alice), await balance(bob)], [10, 5]);
    assert.equal((await deposit(bob, named())).json.balance, 10);
  }
});

test("if effect or place can't be written neither is there, and the place can be sent again", { timeout: 60_000 }, async () => {
  const { server, deposit, balance } = await breaking();
  for (const [table, reason] of breaks("semel_places")) {
    const account = `carol-${table}`;
    assert.equal((await deposit(account, { id: randomUUID() })).semel, "executed");
    const taken = await server.send("POST", `/semel/v1/keys/accounts%2F${account}/sessions`, { id: randomUUID(), body: '{"name":"s"}' });
    const place = (seq) => ({ headers: { "semel-session": `"s";epoch=${taken.json.epoch};seq=${seq}` } });
    assert.equal((await deposit(account, place(1))).semel, "executed");
    await server.send("POST", `/breaks/${table}`);
    const refused = await deposit(account, place(2));
    assert.deepEqual([refused.status, refused.semel, refused.json.executed, refused.json.retry], [503, "unavailable", "unknown", "same-id"]);
    await server.line(reason);
    assert.equal(await balance(account), 10, table);
    await server.send("POST", "/mends");
    assert.equal((await deposit(account, place(1))).semel, "replayed");
    for (const expected of ["executed", "replayed"]) assert.equal((await deposit(account, place(2))).semel, expected);
    assert.equal(await balance(account), 15);
  }
});

test("if the start of a suspect can't be counted it does not run, alone or in a batch, and the id can be sent again", { timeout: 60_000 }, async () => {
  const { server } = await breaking();
  const [alone, element] = [randomUUID(), randomUUID()];
  // It was first sent before the object started, and so may have ended the one before.
  const firstSent = Math.floor(Date.now() / 1000) - 60;
  const deposit = async () => (await server.deposit("carol", 5, { id: alone, firstSent })).semel;
  const batch = async () => {
    const elements = [{ id: element, firstSent, method: "POST", path: "/accounts/carol/deposit", body: '{"amount":5}' }];
    const { json } = await server.send("POST", "/semel/v1/keys/accounts%2Fcarol/batch", { body: JSON.stringify(elements) });
    return json.map(({ headers }) => headers["semel-status"]).join();
  };
  const balances = [];
  for (const send of [deposit, batch]) {
    await server.send("POST", "/slips/semel_records");
    for (const expected of ["unavailable", "executed", "replayed"]) {
      assert.equal(await send(), expected);
      balances.push((await server.account("carol")).balance);
    }
  }
  assert.deepEqual(balances, [0, 5, 5, 5, 10, 10]);
});
