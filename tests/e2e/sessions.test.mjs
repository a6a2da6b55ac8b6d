// Sessions by HTTP on workerd: numbers, fencing, take-overs while requests are under way, and kill -9 between them.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { serve } from "./server.mjs";

const server = await serve(after, "ledger");

/** A session at an account. */
class Session {
  constructor(account, name = "tab") {
    this.account = account;
    this.name = name;
  }

  #control(path, body) {
    return server.send("POST", `/semel/v1/keys/accounts%2F${this.account}/${path}`, { id: randomUUID(), body: JSON.stringify(body) });
  }

  takeOver(after) {
    return this.#control("sessions", { name: this.name, after });
  }

  close(epoch, seq) {
    return this.#control("cancel", { session: { name: this.name, epoch, seq } });
  }

  deposit(epoch, seq, { ack = 0, amount = 1 } = {}) {
    const headers = { "semel-session": `"${this.name}";epoch=${epoch};seq=${seq};ack=${ack}` };
    return server.send("POST", `/accounts/${this.account}/deposit`, { headers, body: JSON.stringify({ amount }) });
  }
}

const said = (answer) => [answer.status, answer.semel, answer.json.executed];

test("a session by HTTP: its numbers, its holders, what is freed and what is closed", async () => {
  const session = new Session("s1");
  assert.deepEqual(said(await session.deposit(1, 1)), [410, "session-unknown", "unknown"]);
  assert.deepEqual((await session.takeOver(0)).json, { name: "tab", epoch: 1, lastSeq: 0 });
  const first = await session.deposit(1, 1);
  assert.deepEqual([first.semel, first.json.balance], ["executed", 1]);
  assert.deepEqual([(await session.deposit(1, 1)).text, (await session.deposit(1, 1)).semel], [first.text, "replayed"]);
  assert.deepEqual(said(await session.deposit(1, 1, { amount: 2 })), [422, "fingerprint-mismatch", "no"]);
  const gap = await session.deposit(1, 3);
  assert.deepEqual([...said(gap), gap.json.expectedSeq], [409, "sequence-gap", "no", 2]);
  assert.equal((await session.close(1, 2)).json.state, "cancelled");
  assert.deepEqual(said(await session.deposit(1, 2)), [410, "cancelled", "no"]);
  assert.deepEqual((await session.takeOver(1)).json, { name: "tab", epoch: 2, lastSeq: 2 });
  const late = await session.takeOver(1);
  assert.deepEqual([...said(late), late.json.currentEpoch], [409, "fenced", "no", 2]);
  assert.deepEqual(said(await session.deposit(1, 3)), [409, "fenced", "no"]);
  assert.equal((await session.deposit(2, 3, { ack: 2 })).semel, "executed");
  assert.deepEqual(said(await session.deposit(1, 1)), [410, "acknowledged", "unknown"]);
  assert.deepEqual(await server.account("s1"), { id: "s1", balance: 2, entries: 2 });
  assert.equal((await server.admin("GET", "keys/accounts%2Fs1")).json.sessions, 1);
});

test("requests that are under way while another takes over run before it or never", async () => {
  const session = new Session("s2");
  let epoch = (await session.takeOver()).json.epoch;
  let seq = 0;
  let executed = 0;
  for (let round = 0; round < 6; round += 1) {
    const sent = Array.from({ length: 10 }, (_, n) => session.deposit(epoch, seq + n + 1));
    const [took, answers] = await Promise.all([session.takeOver(epoch), Promise.all(sent)]);
    // What is beyond the next when it comes has not run, and what came after the take-over neither.
    const ran = answers.filter((answer) => answer.semel === "executed").length;
    for (const answer of answers) assert.ok(["executed", "fenced", "sequence-gap"].includes(answer.semel), answer.text);
    assert.deepEqual([took.json.lastSeq, took.json.epoch], [seq + ran, epoch + 1]);
    executed += ran;
    [epoch, seq] = [took.json.epoch, took.json.lastSeq];
    // Of the old holder's numbers, each is what it was; none runs now.
    const again = await Promise.all(Array.from({ length: 10 }, (_, n) => session.deposit(epoch - 1, seq - ran + n + 1)));
    assert.deepEqual(again.map((answer) => answer.semel), again.map((_, n) => (n < ran ? "replayed" : "fenced")));
    await session.deposit(epoch, seq + 2, { ack: seq });
  }
  assert.deepEqual(await server.account("s2"), { id: "s2", balance: executed, entries: executed });
});

test("kill -9 between any two: every number once, and the answers are those of before", { timeout: 120_000 }, async () => {
  const session = new Session("s3");
  let { epoch } = (await session.takeOver()).json;
  let last = 0;
  for (let round = 0; round < 6; round += 1) {
    const outcomes = [];
    for (let n = 1; n <= 3; n += 1) outcomes.push((await session.deposit(epoch, last + n, { ack: last })).text);
    const dying = session.deposit(epoch, last + 4).catch(() => undefined);
    await server.restart();
    await dying;
    for (const [n, outcome] of outcomes.entries()) {
      const again = await session.deposit(epoch, last + n + 1);
      assert.deepEqual([again.semel, again.text], ["replayed", outcome]);
    }
    assert.ok(["executed", "replayed"].includes((await session.deposit(epoch, last + 4)).semel));
    const took = (await session.takeOver(epoch)).json;
    assert.equal(took.lastSeq, last + 4);
    assert.deepEqual(said(await session.deposit(epoch, last + 5)), [409, "fenced", "no"]);
    [epoch, last] = [took.epoch, took.lastSeq];
  }
  assert.deepEqual(await server.account("s3"), { id: "s3", balance: last, entries: last });
});
