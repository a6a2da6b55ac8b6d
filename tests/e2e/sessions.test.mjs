// Sessions over HTTP on workerd: numbers, fencing, take-overs while requests and batches are under way, kill -9 between requests and during them, and
// the size of a session after much use.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { serve } from "./server.mjs";

const server = await serve(after, "ledger", { SEMEL_RATE_BURST: "1000000", SEMEL_RATE_PER_SECOND: "1000000" });
/** The limit of one batch. */
const ELEMENTS_MAX = 256;

/** A session at an account. */
class Session {
  constructor(account, name = "tab") {
    this.account = account;
    this.name = name;
  }

  #control(path, body, id = randomUUID()) {
    return server.send("POST", `/semel/v1/keys/accounts%2F${this.account}/${path}`, { id, body: JSON.stringify(body) });
  }

  takeOver(after, id) {
    return this.#control("sessions", { name: this.name, after }, id);
  }

  /**
   * Deposits 1 at `count` places from `first` on, in one batch. Each acknowledges all places before its own, or up to `acked`. Resolves to the whole
   * answer.
   */
  batch(epoch, first, count, acked) {
    const body = JSON.stringify({ amount: 1 });
    const element = (seq) => ({ session: { name: this.name, epoch, seq, ack: acked ?? seq - 1 }, method: "POST", path: `/accounts/${this.account}/deposit`, headers: {}, body });
    const elements = Array.from({ length: count }, (_, at) => element(first + at));
    return server.send("POST", `/semel/v1/keys/accounts%2F${this.account}/batch`, { body: JSON.stringify(elements) });
  }

  /** What the key says that it keeps. */
  async kept() {
    const { records, tombstones, sessions, bytes } = (await server.admin("GET", `keys/accounts%2F${this.account}`)).json;
    return { records, tombstones, sessions, bytes };
  }

  close(epoch, seq, id) {
    return this.#control("cancel", { session: { name: this.name, epoch, seq } }, id);
  }

  deposit(epoch, seq, { ack = 0, amount = 1 } = {}) {
    const headers = { "semel-session": `"${this.name}";epoch=${epoch};seq=${seq};ack=${ack}` };
    return server.send("POST", `/accounts/${this.account}/deposit`, { headers, body: JSON.stringify({ amount }) });
  }
}

/** The `Semel-Status` of each answer in a batch. */
const statuses = (batch) => batch.json.map(({ headers }) => headers["semel-status"]);
/** The different ones among them. */
const statusesOf = (batch) => [...new Set(statuses(batch))];
const said = (answer) => [answer.status, answer.semel, answer.json.executed];

test("over HTTP a session replays a seq, and refuses gaps, old epochs, and seqs that are cancelled or acknowledged", async () => {
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

test("requests that are under way during a take-over run before it or never", async () => {
  const session = new Session("s2");
  let epoch = (await session.takeOver()).json.epoch;
  let seq = 0;
  let executed = 0;
  for (let round = 0; round < 6; round += 1) {
    const sent = Array.from({ length: 10 }, (_, n) => session.deposit(epoch, seq + n + 1));
    const [took, answers] = await Promise.all([session.takeOver(epoch), Promise.all(sent)]);
    // A place beyond the next when it arrived has not run, nor has one that came after the take-over.
    const ran = answers.filter((answer) => answer.semel === "executed").length;
    for (const answer of answers) assert.ok(["executed", "fenced", "sequence-gap"].includes(answer.semel), answer.text);
    assert.deepEqual([took.json.lastSeq, took.json.epoch], [seq + ran, epoch + 1]);
    executed += ran;
    [epoch, seq] = [took.json.epoch, took.json.lastSeq];
    // Each place of the old holder is still what it was, and none runs now.
    const again = await Promise.all(Array.from({ length: 10 }, (_, n) => session.deposit(epoch - 1, seq - ran + n + 1)));
    assert.deepEqual(again.map((answer) => answer.semel), again.map((_, n) => (n < ran ? "replayed" : "fenced")));
    await session.deposit(epoch, seq + 2, { ack: seq });
  }
  assert.deepEqual(await server.account("s2"), { id: "s2", balance: executed, entries: executed });
});

test("after kill -9 between two requests of a session every seq has run once, and its answer is replayed unchanged", { timeout: 120_000 }, async () => {
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

test("batches that are under way during a take-over run whole before it or never", async () => {
  const [session, count] = [new Session("s4"), 20];
  let { epoch } = (await session.takeOver()).json;
  let last = 0;
  for (let round = 0; round < 6; round += 1) {
    const batches = [0, 1, 2].map((at) => session.batch(epoch, last + at * count + 1, count));
    const [took, ...answers] = await Promise.all([session.takeOver(epoch), ...batches]);
    const whole = answers.filter((answer) => statusesOf(answer).join() === "executed").length;
    for (const answer of answers) assert.ok(["executed", "fenced", "sequence-gap"].includes(statusesOf(answer).join()), answer.text);
    assert.deepEqual([took.json.epoch, took.json.lastSeq], [epoch + 1, last + whole * count]);
    [epoch, last] = [took.json.epoch, took.json.lastSeq];
    const fenced = await session.batch(epoch - 1, last + 1, count);
    assert.deepEqual(statusesOf(fenced), ["fenced"]);
  }
  assert.deepEqual(await server.account("s4"), { id: "s4", balance: last, entries: last });
});

test("a batch, a cancelled place or a take-over that kill -9 interrupts takes effect once when it is sent again", { timeout: 120_000 }, async () => {
  const [session, count] = [new Session("s5"), 30];
  let { epoch } = (await session.takeOver()).json;
  let [last, entries] = [0, 0];
  /** Sends something, kills the server while it is under way, a little later each round, and sends it again. Resolves to both answers. */
  const killed = async (round, send) => {
    const dying = send().catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 4 * round));
    await server.restart();
    return [await dying, await send()];
  };
  for (let round = 0; round < 3; round += 1) {
    // The first request of a session is a suspect, so its batch runs one by one. Only the batches after it are all or nothing.
    assert.deepEqual(statuses(await session.batch(epoch, last + 1, 1)), ["executed"]);
    [last, entries] = [last + 1, entries + 1];
    const [before, batch] = await killed(round, () => session.batch(epoch, last + 1, count, last));
    assert.deepEqual(statusesOf(batch).length, 1, "all or none was there");
    if (before) assert.deepEqual(statusesOf(batch), ["replayed"]);
    assert.deepEqual(batch.json.map(({ body }) => JSON.parse(body).entries), Array.from({ length: count }, (_, at) => entries + at + 1));
    [last, entries] = [last + count, entries + count];

    const closing = randomUUID();
    const [, closed] = await killed(round, () => session.close(epoch, last + 1, closing));
    assert.deepEqual([closed.json.state, (await session.batch(epoch, last + 1, 1)).json[0].status], ["cancelled", 410]);
    last += 1;

    const takingOver = randomUUID();
    const [, took] = await killed(round, () => session.takeOver(epoch, takingOver));
    assert.deepEqual(took.json, { name: "tab", epoch: epoch + 1, lastSeq: last });
    assert.deepEqual(statuses(await session.batch(epoch, last + 1, 2)), ["fenced", "fenced"]);
    epoch += 1;
  }
  assert.deepEqual(await server.account("s5"), { id: "s5", balance: entries, entries });
});

test("a session keeps as many records, tombstones and bytes after 100,000 requests as after 100", { timeout: 240_000 }, async (t) => {
  const after = async (account, count) => {
    const session = new Session(account);
    const { epoch } = (await session.takeOver()).json;
    for (let first = 1; first <= count; first += ELEMENTS_MAX) {
      const elements = Math.min(ELEMENTS_MAX, count + 1 - first);
      // Reading all answers as JSON would take longer than running the requests.
      assert.equal((await session.batch(epoch, first, elements)).text.split('"semel-status":"executed"').length - 1, elements);
    }
    assert.deepEqual([statuses(await session.batch(epoch, count, 1)), statuses(await session.batch(epoch, 1, 1))], [["replayed"], ["acknowledged"]]);
    assert.deepEqual(await server.account(account), { id: account, balance: count, entries: count });
    return session.kept();
  };
  const [few, startedMs] = [await after("few", 100), Date.now()];
  assert.deepEqual(await after("many", 100_000), few);
  t.diagnostic(`${JSON.stringify(few)}, in ${Date.now() - startedMs} ms, ${await server.cpu()} s of CPU`);
});
