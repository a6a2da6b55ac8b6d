// Tests very many rows in a store, calls at one moment, and lines of a table. A function call takes fewer arguments than there are of these.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Terminal } from "../../sdk/cli/terminal.js";
import * as sessions from "./session-stub.mjs";
import { Rows, Stub, deposit, hang, keeping, minutes, outbox, rejection, until, within } from "./stub.mjs";

const MANY = 70_000;
const CALLS = 30_000;
const TOLD_MS_MAX = 60_000;

test("many calls at once cause no warning of the runtime", async (t) => {
  const warned = [];
  const listener = (warning) => warned.push(warning.message);
  process.on("warning", listener);
  t.after(() => process.off("warning", listener));
  const { semel } = await outbox(t);
  await Promise.all(Array.from({ length: 60 }, (_, n) => (n % 2 ? deposit(semel) : semel.fetch("/accounts/a"))));
  await new Promise((resolve) => setTimeout(resolve, 10));
  assert.deepEqual(warned, []);
});

test("a thousand requests may be pending, and one more is outbox-full and never ran", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  server.each = (call, serve) => (call.kind === "change" ? hang() : serve());
  // CPU time, so that other work of a busy machine doesn't count.
  const before = process.cpuUsage();
  const waiting = Array.from({ length: 1_000 }, () => rejection(deposit(semel)));
  const error = await rejection(deposit(semel));
  const { user, system } = process.cpuUsage(before);
  const tookMs = (user + system) / 1000;
  const { name, code, executed, retry } = error;
  assert.deepEqual({ name, code, executed, retry }, { name: "OutboxFullError", code: "outbox-full", executed: "no", retry: "never" });
  await until(() => store.rows.size === 1_000 && server.attempts.length > 0, "all are stored, and some sent");
  assert.equal((await semel.pending()).length, 1_000);
  await semel.close();
  assert.equal(store.rows.size, 1_000);
  assert.ok(server.attempts.every(({ id }) => store.rows.has(id)));
  assert.equal((await Promise.all(waiting)).filter((each) => each.code === "closed").length, 1_000);
  assert.ok(tookMs < 3_000, `${Math.round(tookMs)} ms, in which a page would stand still`);
});

/** Fills the store with very many rows: copies of the row that `call` leaves if `close` ends it before its answer. */
async function manyRows(store, server, call, close) {
  server.each = (each, serve) => (each.kind === "health" || each.path.endsWith("/sessions") ? serve() : hang());
  const left = Promise.allSettled([call()]);
  await until(() => store.rows.size === 1, "it is stored");
  await close();
  await left;
  server.each = (_call, serve) => serve();
  const [row] = store.rows.values();
  for (let n = 0; n < MANY; n += 1) store.rows.set(`other-${n}`, row);
}

test("an outbox opens, lists its requests and sends on a store with 70,000 rows of another identity", async (t) => {
  const [store, server] = [new Rows(), new Stub()];
  const { semel: other } = await outbox(t, { store, server, identity: "bob" });
  await manyRows(store, server, () => deposit(other), () => other.close());
  const { semel } = await outbox(t, { store, server });
  assert.deepEqual(await semel.pending(), []);
  assert.equal((await deposit(semel)).status, 200);
});

test("a session opens, lists its requests and sends on a store with 70,000 rows of another session", async (t) => {
  const store = new sessions.SharedRows();
  const { semel, server } = await sessions.outbox(t);
  const other = await semel.session("accounts/b", "other", { store });
  await manyRows(store, server, () => sessions.deposit(other, "x"), other.close);
  const session = await semel.session("accounts/a", "s", { store });
  assert.deepEqual(await session.pending(), []);
  assert.equal((await sessions.deposit(session, "y")).status, 200);
});

test("of 30,000 calls of a session at once 1,000 are answered, and the others are outbox-full", async (t) => {
  const { semel, server } = await sessions.outbox(t);
  const session = await semel.session("accounts/a", "s");
  const calls = await within(Promise.allSettled(Array.from({ length: CALLS }, () => sessions.deposit(session, ""))), "all are settled", TOLD_MS_MAX);
  assert.deepEqual(new Set(calls.slice(0, 1_000).map(({ value }) => value?.status)), new Set([200]));
  assert.deepEqual(new Set(calls.slice(1_000).map(({ reason }) => `${reason?.code} ${reason?.executed}`)), new Set(["outbox-full no"]));
  assert.equal(server.effects.length, 1_000);
});

test("the command line prints a table of 140,000 rows", () => {
  let lines = 0;
  const stdout = { write: (text) => (lines += text.endsWith("x  2\n")) };
  const terminal = new Terminal({ env: {}, stdin: {}, stdout, stderr: {}, isJson: false });
  terminal.table([["KEY", "RECORDS"], ...Array.from({ length: 2 * MANY }, () => ["kxx", "2"])]);
  assert.equal(lines, 2 * MANY);
});

test("an outbox keeps nothing of calls that are answered, however many keys they had", async (t) => {
  const server = new Stub();
  const size = keeping(t, server);
  const { semel } = await outbox(t, { server });
  const minute = minutes(t);
  const made = [];
  for (let n = 0; n < 40; n += 1) {
    made.push(deposit(semel, `${n}`), deposit(semel, "all", { key: `unordered/${n}`, ordered: false }), semel.fetch(`/accounts/${n}`));
  }
  assert.ok(size() > 39, "some are under way");
  await minute();
  await Promise.all(made);
  await minute();
  // The headers of one request are kept in a map too, which has a few entries.
  assert.ok(size() < 20, `of something there are ${size()}`);
});
