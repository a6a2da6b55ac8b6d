// A change happens once, even if duplicates arrive at the same time or the server is killed.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { serve } from "./server.mjs";

const server = await serve(after, "ledger");

test("a request that is sent twice is executed once and answered twice the same", async () => {
  const id = randomUUID();
  const first = await server.deposit("twice", 5, { id });
  const second = await server.deposit("twice", 5, { id });
  assert.equal(first.semel, "executed");
  assert.equal(first.headers.get("idempotent-replayed"), "false");
  assert.equal(second.semel, "replayed");
  assert.equal(second.headers.get("idempotent-replayed"), "true");
  assert.deepEqual(second.body, first.body);
  assert.equal(second.status, first.status);
  assert.equal(second.headers.get("content-type"), first.headers.get("content-type"));
  assert.equal(second.headers.get("semel-expires"), first.headers.get("semel-expires"));
  assert.deepEqual(await server.account("twice"), { id: "twice", balance: 5, entries: 1 });
});

test("a quoted id and a bare one are the same id", async () => {
  const id = randomUUID();
  await server.deposit("quoted", 5, { id });
  assert.equal((await server.deposit("quoted", 5, { id: `"${id}"` })).semel, "replayed");
});

test("24 identical requests at once give one effect and one outcome", async () => {
  const id = randomUUID();
  const answers = await Promise.all(Array.from({ length: 24 }, () => server.deposit("crowd", 7, { id })));
  assert.equal(answers.filter((answer) => answer.semel === "executed").length, 1);
  assert.equal(answers.filter((answer) => answer.semel === "replayed").length, 23);
  assert.equal(new Set(answers.map((answer) => `${answer.status} ${answer.text}`)).size, 1);
  assert.deepEqual(await server.account("crowd"), { id: "crowd", balance: 7, entries: 1 });
});

test("a refusal of the handler is an outcome, and is replayed even when it would be granted now", async () => {
  const id = randomUUID();
  const withdraw = () => server.send("POST", "/accounts/poor/withdraw", { id, body: '{"amount":10}' });
  const refused = await withdraw();
  assert.equal(refused.status, 409);
  assert.equal(refused.semel, "executed");
  assert.deepEqual(refused.json, { error: "insufficient-funds" });
  await server.deposit("poor", 100);
  const again = await withdraw();
  assert.equal(again.semel, "replayed");
  assert.deepEqual(again.body, refused.body);
  assert.equal((await server.account("poor")).balance, 100);
});

test("kill -9 under load: every acknowledged outcome replays, and retrying everything gives exact balances", async () => {
  const ACCOUNTS = 4;
  const requests = Array.from({ length: 200 }, (_, index) => ({ id: randomUUID(), account: `killed-${index % ACCOUNTS}`, amount: index + 1 }));
  const answered = new Map();
  const attempt = async (request) => {
    const answer = await server.deposit(request.account, request.amount, { id: request.id });
    if (answer.semel === "executed" || answer.semel === "replayed") return answer;
    throw new Error(`not an outcome: ${answer.semel}`);
  };
  // Three kills. At each, 16 requests are on their way, and more are to come.
  for (let kill = 0; kill < 3; kill += 1) {
    const open = requests.filter(({ id }) => !answered.has(id));
    const killAt = answered.size + Math.ceil(open.length / 3);
    let killed;
    const client = async () => {
      while (open.length > 0 && !killed) {
        const request = open.shift();
        answered.set(request.id, (await attempt(request)).text);
        if (answered.size >= killAt) killed ??= server.kill();
      }
    };
    await Promise.allSettled(Array.from({ length: 16 }, client));
    assert.ok(killed, "the server was killed under load");
    await killed;
    await server.restart();
  }
  assert.ok(answered.size < requests.length, "some requests were lost on the way");
  for (const request of requests) {
    const answer = await attempt(request);
    const before = answered.get(request.id);
    if (before === undefined) continue;
    assert.equal(answer.semel, "replayed", "what was answered was durable");
    assert.equal(answer.text, before);
  }
  for (let account = 0; account < ACCOUNTS; account += 1) {
    const own = requests.filter((request) => request.account === `killed-${account}`);
    const balance = own.reduce((sum, request) => sum + request.amount, 0);
    assert.deepEqual(await server.account(`killed-${account}`), { id: `killed-${account}`, balance, entries: own.length });
  }
});

test("the naive ledger executes a repeated request twice, without Semel headers, in accounts of its own", async () => {
  const id = randomUUID();
  const deposit = () => server.send("POST", "/naive/accounts/twice-naive/deposit", { id, body: '{"amount":5}' });
  await deposit();
  const again = await deposit();
  assert.deepEqual(again.json, { id: "twice-naive", balance: 10, entries: 2 });
  assert.equal(again.semel, null);
  assert.equal((await server.account("twice-naive")).balance, 0);
});
