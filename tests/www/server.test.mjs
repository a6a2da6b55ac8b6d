// Tests the referee: what it asks the server, and what it concludes from the answers.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Referee } from "../../www/lab/server.js";
import { Clock, gate, settled } from "./fakes.mjs";

const PAGE_ROWS = 1_000;

/** A server with a log for each lane, with the API of `/lab/`. */
class Server {
  clock = new Clock();
  lanes = { naive: { balance: 0, rows: [] }, semel: { balance: 0, rows: [] } };
  asked = [];
  /** Runs before each request is answered, and may answer it instead. */
  before = () => {};
  /** The lane whose log is full. */
  fullLane;

  referee = new Referee("lab-1", {
    now: this.clock.now,
    fetch: async (path, init) => {
      this.asked.push(path);
      const instead = await this.before(path, init);
      if (instead instanceof Response) return instead;
      const [, lane, after] = /^\/lab\/accounts\/lab-1\/(naive|semel)\?after=(\d+)$/.exec(path);
      const { rows, ...account } = this.lanes[lane];
      const attempts = rows.slice(Number(after), Number(after) + PAGE_ROWS).map(([attempt, status]) => ({ attempt, status }));
      return Response.json({ ...account, entries: rows.length, records: 1, tombstones: 2, full: lane === this.fullLane, last: Number(after) + attempts.length, attempts });
    },
  });

  /** Executes an attempt. */
  run(lane, attempt, status = "executed") {
    this.lanes[lane].rows.push([attempt, status]);
    this.lanes[lane].balance += 10;
  }
}

test("the referee reads both accounts and their logs, and then asks only for what is new", async () => {
  const server = new Server();
  const { referee } = server;
  assert.deepEqual([referee.accounts, referee.logged.size, referee.asOfMs, referee.isDown], [{ naive: undefined, semel: undefined }, 0, 0, false]);
  server.run("naive", "1-naive-a");
  server.run("naive", "1-naive-b", "failed");
  server.run("semel", "1-semel-a");
  assert.equal(await referee.ask(), true);
  assert.deepEqual(server.asked, ["/lab/accounts/lab-1/naive?after=0", "/lab/accounts/lab-1/semel?after=0"]);
  assert.deepEqual([...referee.logged], [["1-naive-a", "executed"], ["1-naive-b", "failed"], ["1-semel-a", "executed"]]);
  assert.deepEqual(referee.accounts.naive, { balance: 20, entries: 2, records: 1, tombstones: 2, full: false });
  assert.equal(referee.accounts.semel.balance, 10);
  server.run("semel", "2-semel-a", "replayed");
  assert.equal(await referee.ask(), true);
  assert.deepEqual(server.asked.slice(2), ["/lab/accounts/lab-1/naive?after=2", "/lab/accounts/lab-1/semel?after=1"]);
  assert.deepEqual([referee.logged.get("2-semel-a"), referee.logged.get("1-semel-a"), referee.accounts.semel.balance], ["replayed", "executed", 20]);
});

test("the referee reads a log of many pages to its end in one ask", async () => {
  for (const rows of [PAGE_ROWS - 1, PAGE_ROWS, PAGE_ROWS + 1, 2 * PAGE_ROWS + 5]) {
    const server = new Server();
    for (let k = 0; k < rows; k += 1) server.run("naive", `${k}-naive-a`);
    assert.equal(await server.referee.ask(), true);
    assert.equal(server.referee.logged.size, rows);
    const pages = server.asked.filter((path) => path.includes("naive")).map((path) => Number(path.split("=")[1]));
    assert.deepEqual(pages, Array.from({ length: Math.floor(rows / PAGE_ROWS) + 1 }, (_, page) => page * PAGE_ROWS));
    assert.equal(server.asked.length, pages.length + 1);
  }
});

test("an account that changes while its log is read is as of the last page", async () => {
  const server = new Server();
  for (let k = 0; k < PAGE_ROWS; k += 1) server.run("naive", `${k}-naive-a`);
  server.before = (path) => path.endsWith("naive?after=1000") && server.run("naive", "new-naive-a");
  await server.referee.ask();
  assert.deepEqual([server.referee.accounts.naive.entries, server.referee.logged.size], [PAGE_ROWS + 1, PAGE_ROWS + 1]);
});

test("what the referee knows is as of the moment at which it began to ask", async () => {
  const server = new Server();
  server.before = () => server.clock.sleep(500);
  server.clock.nowMs = 4_000;
  const asking = server.referee.ask();
  await server.clock.pass(300);
  assert.equal(server.referee.asOfMs, 0);
  await server.clock.pass(300);
  assert.equal(await asking, true);
  assert.equal(server.referee.asOfMs, 4_000);
});

for (const [name, fail] of [
  ["does not connect", () => Promise.reject(new TypeError("refused"))],
  ["answers with an error", () => new Response("{}", { status: 503 })],
  ["answers with an error that looks like an answer", () => Response.json({ balance: 0, entries: 0, last: 0, attempts: [] }, { status: 500 })],
  ["answers with something else", () => new Response("<h1>Log in</h1>")],
]) {
  test(`a server that ${name} for either account is down; then it is back, and nothing was missed`, async () => {
    for (const lane of ["naive", "semel"]) {
      const server = new Server();
      const { referee } = server;
      await referee.ask();
      const { asOfMs } = referee;
      await server.clock.pass(1_000);
      for (const each of ["naive", "semel"]) server.run(each, `1-${each}-a`);
      server.before = (path) => path.includes(lane) && fail();
      assert.equal(await referee.ask(), false);
      assert.deepEqual([referee.isDown, referee.asOfMs], [true, asOfMs]);
      server.before = () => {};
      await server.clock.pass(1_000);
      assert.equal(await referee.ask(), true);
      assert.deepEqual([referee.isDown, referee.asOfMs, referee.logged.size], [false, server.clock.now(), 2]);
    }
  });
}

test("each request of the referee has an abort signal of its own", async () => {
  const server = new Server();
  const signals = [];
  server.before = (_, { signal }) => void signals.push(signal);
  await server.referee.ask();
  await server.referee.ask();
  assert.ok(signals.every((signal) => signal instanceof AbortSignal));
  assert.equal(new Set(signals).size, 4);
});

test("the referee asks once at a time: a second caller shares the answer, and a later one asks anew", async () => {
  const server = new Server();
  const { open, opened } = gate();
  server.before = () => opened;
  const [one, other] = [server.referee.ask(), server.referee.ask()];
  await settled();
  assert.equal(server.asked.length, 2);
  open();
  assert.deepEqual(await Promise.all([one, other]), [true, true]);
  await server.referee.ask();
  assert.equal(server.asked.length, 4);
});

test("if one account fails, the ask still waits for the other, so an old answer can't replace a newer one", async () => {
  const server = new Server();
  const { referee } = server;
  server.run("semel", "1-semel-a");
  const { open, opened } = gate();
  let isFirst = true;
  server.before = async (path) => {
    if (path.includes("naive")) throw new TypeError("refused");
    if (!isFirst) return;
    isFirst = false;
    const answer = Response.json({ balance: 10, entries: 1, last: 1, attempts: [{ attempt: "1-semel-a", status: "executed" }] });
    await opened;
    return answer;
  };
  const first = referee.ask();
  await settled();
  server.run("semel", "2-semel-a");
  const second = referee.ask();
  await settled();
  assert.equal(server.asked.length, 2, "the first ask goes on");
  open();
  assert.deepEqual(await Promise.all([first, second]), [false, false]);
  await referee.ask();
  assert.deepEqual([referee.accounts.semel.balance, referee.logged.size], [20, 2]);
});

test("askAnew asks once more after the ask under way, which may have missed what happened since", async () => {
  const server = new Server();
  const { referee } = server;
  const { open, opened } = gate();
  let isHeld = true;
  server.before = async (path) => {
    if (path.includes("naive") && isHeld) await opened;
  };
  const first = referee.ask();
  await settled();
  server.run("semel", "1-semel-a");
  const anew = referee.askAnew();
  await settled();
  isHeld = false;
  open();
  assert.equal(await first, true);
  assert.equal(referee.logged.size, 0, "that one had passed it");
  assert.equal(await anew, true);
  assert.equal(referee.logged.size, 1);
  assert.equal(await referee.askAnew(), true);
});

test("the server says whether it can be killed, and one that does not say so can't", async () => {
  const answers = [[() => Response.json({ canKill: true }), true], [() => Response.json({ canKill: false }), false], [() => Response.json({ canKill: "true" }), false], [() => new Response(null, { status: 404 }), false]];
  for (const [answer, canKill] of answers) {
    const asked = [];
    const referee = new Referee("lab-1", { fetch: async (...request) => (asked.push(request), answer()) });
    assert.equal(await referee.canBeKilled(), canKill);
    assert.deepEqual(asked, [["/lab/server"]]);
  }
});

test("if the server is down, the referee asks again whether it can be killed", async () => {
  const clock = new Clock();
  let asked = 0;
  const referee = new Referee("lab-1", { sleep: clock.sleep, fetch: async () => ((asked += 1) < 3 ? Promise.reject(new TypeError("refused")) : Response.json({ canKill: true })) });
  const canBeKilled = referee.canBeKilled();
  await clock.pass(1_000);
  assert.deepEqual([await canBeKilled, asked], [true, 3]);
});

test("whenUp resolves once the server answers, and reports each failed try until then", async () => {
  const clock = new Clock();
  const answers = [() => Promise.reject(new TypeError("refused")), () => new Response(null, { status: 503 }), () => new Response()];
  const asked = [];
  let waits = 0;
  const referee = new Referee("lab-1", { sleep: clock.sleep, fetch: async (...request) => (asked.push(request), answers[asked.length - 1]()) });
  const up = referee.whenUp(() => (waits += 1));
  await clock.pass(1_000);
  await up;
  assert.deepEqual([asked, waits], [Array(3).fill(["/", { method: "HEAD", cache: "no-store" }]), 2]);
});

test("the log is full if that of either lane is full", async () => {
  const server = new Server();
  const { referee } = server;
  await referee.ask();
  assert.equal(referee.isFull, false);
  server.fullLane = "naive";
  await referee.ask();
  assert.equal(referee.isFull, true);
});

test("kill rejects if the server refuses, and not if it accepts", async () => {
  const asked = [];
  const answering = (status) => new Referee("lab-1", { fetch: async (...request) => (asked.push(request), new Response(null, { status })) });
  await answering(202).kill();
  assert.deepEqual(asked, [["/lab/server/kill", { method: "POST" }]]);
  await assert.rejects(answering(404).kill(), /404/);
});
