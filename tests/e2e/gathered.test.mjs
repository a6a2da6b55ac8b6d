// Requests that may overlap at a key are sent together, on workerd: how many HTTP requests that takes, what of them ran, and which one is blamed for
// a crash. The SDK runs in Node; `sdk-browser.test.mjs` has the same in Chromium.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Semel } from "../../sdk/npm/node.js";
// The outbox loads this module with the first burst. Imported here, it is there in time for the second burst, however slow the disk is.
import "../../sdk/npm/session-node.js";
import { startLossy, until } from "./lossy.mjs";
import { otherSide } from "./other-side.mjs";
import { serve } from "./server.mjs";

const BURST = 200;
/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 120_000 };

const ledger = await serve(after, "ledger");
const probe = await serve(after, "probe");
const other = await otherSide(after);
const front = await serve(after, "upstream", { SEMEL_UPSTREAM: other.url, SEMEL_UPSTREAM_ROUTES: '[{"path":"/orders","methods":["POST"]}]' }, { reachesLocal: true });

/** An outbox, and counts of what it sent: `batches`, and `requests` of any kind. */
async function outbox(t, url, options) {
  const sent = { requests: 0, batches: 0 };
  const counting = (url, init) => {
    sent.requests += 1;
    sent.batches += `${url}`.endsWith("/batch");
    return fetch(url, init);
  };
  const semel = await Semel.open({ url, durability: "memory", fetch: counting, retryIntervalMs: 50, attemptTimeoutMs: 60_000, ...options });
  t.after(() => semel.close());
  const reset = () => Object.assign(sent, { requests: 0, batches: 0 });
  return { semel, sent, reset };
}

const overlapping = (semel, path, key, body = '{"amount":1}') => semel.fetch(path, { method: "POST", body, key, ordered: false, headers: { "content-type": "application/json" } });
const deposits = (semel, account, count) => Promise.all(Array.from({ length: count }, async () => (await overlapping(semel, `/accounts/${account}/deposit`, `accounts/${account}`)).json()));
/** Checks that in each answer balance and entries are the same, because each deposit is 1. Returns these numbers, sorted. */
const inOrder = (answers) => answers.map(({ balance, entries }) => (assert.equal(balance, entries), entries)).sort((one, next) => one - next);
const upTo = (count, from = 0) => Array.from({ length: count }, (_, n) => from + n + 1);

test("200 requests at once take fewer than 100 HTTP requests, each is made once, and each caller has its own answer", LIMIT, async (t) => {
  const { semel, sent, reset } = await outbox(t, ledger.url);
  // The first of these loads the code that sends requests together.
  assert.deepEqual(inOrder(await deposits(semel, "many", BURST)), upTo(BURST));
  reset();
  assert.deepEqual(inOrder(await deposits(semel, "many", BURST)), upTo(BURST, BURST));
  assert.ok(sent.batches > 0 && sent.requests < BURST / 2, JSON.stringify(sent));
  assert.deepEqual(await ledger.account("many"), { id: "many", balance: 2 * BURST, entries: 2 * BURST });
  const kept = async () => (await ledger.admin("GET", "keys/accounts%2Fmany")).json;
  await until(async () => (await semel.pending()).length === 0, "nothing is pending");
  // What was settled last is acknowledged with the next request.
  await deposits(semel, "many", 1);
  await until(async () => (await kept()).records <= 1, "all that is settled is acknowledged", 30_000);
  t.diagnostic(JSON.stringify(sent));
});

test("where a proxy loses requests and answers of an outbox that sends batches, each request is made once", LIMIT, async (t) => {
  const proxy = await startLossy({ target: () => ledger.url, seed: 5, loseRequests: 1 / 10, loseAnswers: 1 / 10, duplicate: 1 / 10, delayMsMax: 5 });
  t.after(() => proxy.close());
  // After a batch is lost, an outbox sends no batches for a minute. So each round has an outbox of its own.
  const rounds = await Promise.all(Array.from({ length: 5 }, () => outbox(t, proxy.url)));
  let batches = 0;
  for (const [round, { semel, sent }] of rounds.entries()) {
    await deposits(semel, "warm", 40);
    await deposits(semel, `lossy-${round}`, 100);
    assert.deepEqual(await ledger.account(`lossy-${round}`), { id: `lossy-${round}`, balance: 100, entries: 100 });
    batches += sent.batches;
  }
  assert.ok(batches > 0 && proxy.counts.lostAnswers > 0, JSON.stringify(proxy.counts));
});

test("a request that crashes the handler is poisoned, and the others of its batch are executed", LIMIT, async (t) => {
  const { semel, sent } = await outbox(t, probe.url);
  const at = (path) => overlapping(semel, path, "crowd").then(({ status }) => status, ({ code }) => code);
  await Promise.all(Array.from({ length: 40 }, () => at("/status/200")));
  const before = sent.batches;
  const all = await Promise.all(Array.from({ length: 40 }, (_, n) => at(n === 20 ? "/panic" : "/status/200")));
  assert.ok(sent.batches > before);
  assert.deepEqual(all.map((status, n) => (n === 20 ? status === "poisoned" : status === 200)), Array(40).fill(true));
  const runs = await probe.send("GET", "/runs", { key: '"crowd"' });
  assert.equal(Number(runs.text) - 1, 79);
});

test("a caller reads a body that the handler has compressed, alone or in a batch, from an outbox or a session", LIMIT, async (t) => {
  const { semel, sent } = await outbox(t, probe.url);
  const session = await semel.session("gzip", "s");
  const read = async (answer) => [(await answer).headers.get("content-encoding"), await (await answer).text()];
  const together = (make) => Promise.all(Array.from({ length: 40 }, (_, n) => read(make(n))));
  for (const make of [() => overlapping(semel, "/gzip", "gzip"), () => overlapping(semel, "/gzip", "gzip"), (n) => session.fetch("/gzip", { method: "POST", body: `${n}` })]) {
    assert.deepEqual(await together(make), Array(40).fill(["gzip", "once"]));
  }
  assert.ok(sent.batches > 1, "of both");
});

test("requests executed elsewhere go by themselves once a batch of them was tried, and the outbox does not pause", LIMIT, async (t) => {
  const { semel, sent, reset } = await outbox(t, front.url, { retryIntervalMs: 3_600_000, onpaused: ({ error }) => assert.fail(error.message) });
  const order = async (n) => (await overlapping(semel, "/orders", "orders", JSON.stringify({ ref: `r${n}` }))).json();
  const orders = (first) => Promise.all(Array.from({ length: 40 }, (_, n) => order(first + n)));
  const expected = (first) => Array.from({ length: 40 }, (_, n) => ({ ref: `r${first + n}`, times: 1 }));
  assert.deepEqual(await orders(0), expected(0));
  assert.deepEqual(await orders(40), expected(40));
  assert.ok(sent.batches > 0, "one was tried");
  reset();
  assert.deepEqual(await orders(80), expected(80));
  assert.equal(sent.batches, 0, "and then none");
});
