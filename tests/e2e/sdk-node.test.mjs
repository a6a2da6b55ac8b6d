// The SDK in Node, through a proxy that loses a third of the requests and a third of the answers.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { acknowledged, startLossy, until } from "./lossy.mjs";
import { serve } from "./server.mjs";

const SDK = new URL("../../sdk/npm/node.js", import.meta.url);
const { OutcomeUnknownError, Semel, SemelError } = await import(SDK);

const server = await serve(after, "ledger");

/** An outbox, and the proxy that it sends through. */
async function outbox(t, { faults = {}, ...options } = {}) {
  const proxy = await startLossy({ target: () => server.url, seed: 11, ...faults });
  const semel = await Semel.open({ url: proxy.url, durability: "memory", retryIntervalMs: 20, ...options });
  t.after(async () => {
    await semel.close();
    await proxy.close();
  });
  return { proxy, semel };
}

function deposit(semel, account, amount) {
  return semel.fetch(`/accounts/${account}/deposit`, { method: "POST", body: JSON.stringify({ amount }) });
}

test("importing the SDK makes no global, request, timer or output, and the process ends by itself", async () => {
  const script = `
    for (const name of ["fetch", "setTimeout", "setInterval"]) globalThis[name] = () => console.log(name + " was called");
    const before = Object.getOwnPropertyNames(globalThis).sort().join();
    const semel = await import(${JSON.stringify(SDK.href)});
    const after = Object.getOwnPropertyNames(globalThis).sort().join();
    if (before !== after) throw new Error("it made a global: " + after);
    if (typeof semel.Semel.open !== "function") throw new Error("it exports no Semel");
  `;
  const { stdout, stderr } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script], { timeout: 20_000 });
  assert.deepEqual({ stdout, stderr }, { stdout: "", stderr: "" });
});

test("100 deposits through a lossy proxy are each made once, answered to their own callers, and all acknowledged", async (t) => {
  const DEPOSITS = 50;
  const faults = { loseRequests: 1 / 3, loseAnswers: 1 / 3, duplicate: 1 / 10, delayMsMax: 10 };
  const { proxy, semel } = await outbox(t, { faults });
  const accounts = ["node-a", "node-b"];
  await Promise.all(
    accounts.map(async (account) => {
      // Powers of two: the balance tells which deposits it has, and the number of entries that it has each once.
      const answers = await Promise.all(Array.from({ length: DEPOSITS }, async (_, n) => [2 ** n, await (await deposit(semel, account, 2 ** n)).json()]));
      answers.sort(([, one], [, other]) => one.entries - other.entries);
      let balance = 0;
      for (const [index, [amount, answer]] of answers.entries()) {
        balance += amount;
        assert.deepEqual(answer, { id: account, balance, entries: index + 1 });
      }
      assert.deepEqual(await server.account(account), { id: account, balance: 2 ** DEPOSITS - 1, entries: DEPOSITS });
    }),
  );
  assert.deepEqual(await semel.pending(), []);
  assert.ok(proxy.counts.lostRequests > 0 && proxy.counts.lostAnswers > 0 && proxy.counts.duplicates > 0, JSON.stringify(proxy.counts));
  assert.equal(proxy.changes.size, accounts.length * DEPOSITS, "one id for each deposit");
  await acknowledged(server, proxy.changes);
});

test("with ids: hash, an answered request is not made again under its id, before or after its acknowledgement", async (t) => {
  const { proxy, semel } = await outbox(t, { ids: "hash" });
  assert.equal((await deposit(semel, "hash", 5)).status, 200);
  const code = (error) => [error.code, error.executed];
  assert.deepEqual(await deposit(semel, "hash", 5).catch(code), ["outcome-lost", "unknown"]);
  await acknowledged(server, proxy.changes);
  // The row leaves once the answer to the acknowledgement is there. The server has acknowledged before that.
  const told = await until(async () => {
    const told = await deposit(semel, "hash", 5).catch(code);
    return told[0] !== "outcome-lost" && told;
  }, "the row has left");
  assert.deepEqual(told, ["acknowledged", "yes"]);
  const salted = await semel.fetch("/accounts/hash/deposit", { method: "POST", body: JSON.stringify({ amount: 5 }), salt: "another" });
  assert.deepEqual(await salted.json(), { id: "hash", balance: 10, entries: 2 });
});

test("a read passes through, is no change, and rejects with a TypeError if it is lost", async (t) => {
  const { proxy, semel } = await outbox(t);
  await server.deposit("read", 5);
  const answer = await semel.fetch("/accounts/read");
  assert.equal(answer.headers.get("semel-status"), "read");
  assert.deepEqual(await answer.json(), { id: "read", balance: 5, entries: 1 });
  assert.equal((await semel.fetch(`${proxy.url}/accounts/read`, { method: "HEAD" })).status, 200);
  assert.equal(proxy.changes.size, 0);
  proxy.settings.loseRequests = 1;
  await assert.rejects(semel.fetch("/accounts/read"), TypeError);
});

test("a refusal of the handler resolves to a Response, and is no error", async (t) => {
  const { semel } = await outbox(t, { faults: { loseAnswers: 1 / 2 } });
  const answer = await semel.fetch("/accounts/poor/withdraw", { method: "POST", body: '{"amount":10}' });
  assert.ok(answer instanceof Response);
  assert.equal(answer.status, 409);
  assert.deepEqual(await answer.json(), { error: "insufficient-funds" });
});

test("close() rejects waiting callers with a ClosedError whose executed is unknown", async (t) => {
  const { proxy, semel } = await outbox(t, { faults: { loseAnswers: 1, spare: ({ method }) => method !== "POST" } });
  const caller = assert.rejects(deposit(semel, "closed", 5), (error) => {
    assert.ok(error instanceof OutcomeUnknownError && error instanceof SemelError && error instanceof Error);
    const { name, code, executed, requestId, problem } = error;
    assert.deepEqual({ name, code, executed, problem }, { name: "ClosedError", code: "closed", executed: "unknown", problem: undefined });
    assert.ok(proxy.changes.has(requestId), "it tells the id that was sent");
    return true;
  });
  await until(() => proxy.counts.lostAnswers > 1, "it was sent twice");
  const [pending] = await semel.pending();
  assert.deepEqual([pending.method, pending.state, pending.attempts > 1], ["POST", "sending", true]);
  await semel.close();
  await caller;
  assert.deepEqual(await server.account("closed"), { id: "closed", balance: 5, entries: 1 }, "and so it is: this one ran");
});

test("a portal's 200, a proxy's 403, a redirect and a bare 502 are not taken for answers", async (t) => {
  const { proxy, semel } = await outbox(t);
  const strangers = [
    { status: 200, headers: { "content-type": "text/html" }, body: "<h1>Log in</h1>" },
    { status: 403, headers: { "content-type": "text/html" }, body: "<h1>Blocked</h1>" },
    { status: 307, headers: { location: `${proxy.url}/elsewhere` } },
    { status: 303, headers: { location: `${proxy.url}/elsewhere` } },
    { status: 502, headers: {}, body: "Bad Gateway" },
  ];
  const elsewhere = [];
  proxy.settings.instead = ({ url }) => {
    if (url === "/elsewhere") elsewhere.push(url);
    return strangers.shift();
  };
  const answer = await deposit(semel, "stranger", 5);
  assert.deepEqual(await answer.json(), { id: "stranger", balance: 5, entries: 1 });
  assert.deepEqual([proxy.counts.instead, elsewhere], [5, []]);
});

test("an Authorization header of a request is refused with a TypeError, and nothing is stored or sent", async (t) => {
  const { proxy, semel } = await outbox(t);
  for (const name of ["Authorization", "authorization"]) {
    await assert.rejects(semel.fetch("/accounts/safe/deposit", { method: "POST", body: '{"amount":5}', headers: { [name]: "Bearer secret" } }), TypeError);
  }
  assert.deepEqual([await semel.pending(), proxy.counts.requests], [[], 0]);
});
