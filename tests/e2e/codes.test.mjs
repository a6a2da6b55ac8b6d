// The rows of the code table, over HTTP on workerd. No refusal changes the account.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { serve } from "./server.mjs";

const server = await serve(after, "ledger", { SEMEL_RETENTION_SECONDS: "86400" });
const seconds = () => Math.floor(Date.now() / 1000);
const KEYS = "/semel/v1/keys/";

/** Checks a problem against its row of the table. */
function assertProblem(answer, status, code, executed, retry) {
  assert.equal(answer.semel, code, answer.text);
  assert.equal(answer.status, status);
  assert.equal(answer.headers.get("content-type"), "application/problem+json");
  const problem = answer.json;
  assert.deepEqual(
    { status: problem.status, code: problem.code, executed: problem.executed, retry: problem.retry },
    { status, code, executed, retry },
  );
  assert.equal(problem.type, `urn:semel:problem:${code}`);
  assert.ok(problem.title.length > 0 && problem.detail.length > 0);
  assert.match(answer.headers.get("semel-now"), /^\d{13}$/);
  assert.equal(answer.headers.get("idempotent-replayed"), null);
}

async function unchanged(account, work) {
  const before = await server.account(account);
  await work();
  assert.deepEqual(await server.account(account), before);
}

test("key-missing: a change without an id", () =>
  unchanged("k1", async () => {
    const answer = await server.send("POST", "/accounts/k1/deposit", { body: '{"amount":1}' });
    assertProblem(answer, 400, "key-missing", "no", "after-fix");
    assert.equal(answer.headers.get("semel-key"), '"accounts/k1"');
  }));

test("key-invalid: malformed headers", () =>
  unchanged("k2", async () => {
    const bad = [
      { id: "x".repeat(256) },
      { id: '""' },
      { id: "two, ids" },
      { id: randomUUID(), deadline: -1 },
      { id: randomUUID(), deadline: "soon" },
      { id: randomUUID(), deadline: "1000000000000000" },
      { id: randomUUID(), deadline: Date.now() + 125_000 },
      { id: randomUUID(), firstSent: seconds() + 125 },
      { id: randomUUID(), ack: Array(65).fill('"a"').join(", ") },
      { id: randomUUID(), ack: "unquoted" },
      { id: randomUUID(), key: "unquoted/key" },
      { id: randomUUID(), headers: { "semel-session": '"s";epoch=1;seq=1' } },
    ];
    for (const headers of bad) assertProblem(await server.deposit("k2", 1, headers), 400, "key-invalid", "no", "after-fix");
  }));

test("body-invalid: a malformed control body", async () => {
  for (const body of ["", "{}", "[]", "nonsense", '{"ids":1}', '{"ids":[1]}', '{"ids":["a"],"more":1}', '{"ids":[{"id":"a","until":-1}]}']) {
    assertProblem(await server.send("POST", `${KEYS}accounts%2Fk3/acks`, { body }), 400, "body-invalid", "no", "after-fix");
  }
  for (const body of ["", "{}", '{"id":""}', '{"id":"a","firstSent":"now"}', '{"id":"a","first_sent":1}', '["a",1]']) {
    const answer = await server.send("POST", `${KEYS}accounts%2Fk3/cancel`, { id: randomUUID(), body });
    assertProblem(answer, 400, "body-invalid", "no", "after-fix");
  }
});

test("key-mismatch: a Semel-Key other than the key of the rule", () =>
  unchanged("k4", async () => {
    const answer = await server.deposit("k4", 1, { key: '"accounts/other"' });
    assertProblem(answer, 400, "key-mismatch", "no", "after-fix");
    assert.equal((await server.account("other")).balance, 0);
    const control = await server.send("POST", `${KEYS}accounts%2Fk4/acks`, { key: '"accounts/other"', body: '{"ids":[]}' });
    assertProblem(control, 400, "key-mismatch", "no", "after-fix");
  }));

test("unauthorized: a Worker with no authentication configured refuses a change, and still answers health", async (t) => {
  const closed = await serve((end) => t.after(end), "ledger", { SEMEL_OPEN: "false" });
  const refused = await closed.deposit("k5", 1);
  assertProblem(refused, 401, "unauthorized", "no", "after-fix");
  assert.equal(refused.headers.get("www-authenticate"), "Bearer");
  assert.equal((await closed.send("GET", "/semel/v1/health")).status, 200);
});

test("forbidden: Semel-Principal names another principal than the one that is authenticated", () =>
  unchanged("k6", async () => {
    const answer = await server.deposit("k6", 1, { as: "mallory", headers: { "semel-principal": '"alice"' } });
    assertProblem(answer, 403, "forbidden", "no", "after-fix");
  }));

test("not-found: an unknown path, method or control path", async () => {
  for (const [method, path] of [
    ["POST", "/"],
    ["POST", "/accounts"],
    ["POST", "/accounts/k7"],
    ["PUT", "/accounts/k7/deposit"],
    ["DELETE", "/accounts/k7"],
    ["GET", "/accounts/k7/deposit"],
    ["POST", "/semel/v1/transactions"],
    ["GET", `${KEYS}accounts%2Fk7/log`],
    ["POST", "/semel/v2/health"],
  ]) {
    assertProblem(await server.send(method, path, { id: randomUUID() }), 404, "not-found", "no", "after-fix");
  }
  assertProblem(await server.send("POST", `${KEYS}accounts%2Fk7/log`, { body: "[]" }), 404, "not-found", "no", "after-fix");
  assertProblem(await server.send("POST", "/accounts"), 400, "key-missing", "no", "after-fix");
});

test("not-seen: a look-up of an id that was never seen, or that belongs to another principal", async () => {
  const id = randomUUID();
  const lookUp = (as) => server.send("GET", `${KEYS}accounts%2Fk8/outcomes/${id}`, { as });
  assertProblem(await lookUp("alice"), 404, "not-seen", "unknown", "same-id");
  const outcome = await server.deposit("k8", 3, { id, as: "alice" });
  assertProblem(await lookUp("mallory"), 404, "not-seen", "unknown", "same-id");
  const found = await lookUp("alice");
  assert.equal(found.semel, "replayed");
  assert.deepEqual(found.body, outcome.body);
  assert.equal((await server.account("k8")).entries, 1);
});

test("attempt-expired: a deadline in the past", () =>
  unchanged("k9", async () => {
    const answer = await server.deposit("k9", 1, { deadline: Date.now() - 1000 });
    assertProblem(answer, 408, "attempt-expired", "no", "same-id");
  }));

test("cancelled: an id that was cancelled before it ran never runs", () =>
  unchanged("k10", async () => {
    const [id, own] = [randomUUID(), randomUUID()];
    const body = JSON.stringify({ id, firstSent: seconds() }); // one body for both: if a second began in between, it would be another payload
    const cancel = () => server.send("POST", `${KEYS}accounts%2Fk10/cancel`, { id: own, body });
    const first = await cancel();
    assert.deepEqual([first.status, first.semel, first.json], [200, "executed", { state: "cancelled" }]);
    assert.equal((await cancel()).semel, "replayed");
    assertProblem(await server.deposit("k10", 1, { id }), 410, "cancelled", "no", "never");
  }));

test("cancelling an id that has run already answers with its outcome", async () => {
  const id = randomUUID();
  const outcome = await server.deposit("k11", 4, { id });
  const late = await server.send("POST", `${KEYS}accounts%2Fk11/cancel`, { id: randomUUID(), body: JSON.stringify({ id }) });
  assert.equal(late.json.state, "executed");
  assert.equal(late.json.outcome.status, 200);
  assert.equal(late.json.outcome.body, outcome.text);
  assert.equal(late.json.outcome.headers["content-type"], "application/json");
});

test("acknowledged: an id that was acknowledged with a later request, or by a request of its own", async () => {
  const [rides, goes, next] = [randomUUID(), randomUUID(), randomUUID()];
  await server.deposit("k12", 1, { id: rides });
  await server.deposit("k12", 1, { id: goes });
  const until = Date.now() + 30_000;
  assert.equal((await server.deposit("k12", 1, { id: next, ack: `"${rides}";until=${until}` })).semel, "executed");
  const acks = await server.send("POST", `${KEYS}accounts%2Fk12/acks`, { body: JSON.stringify({ ids: [{ id: goes, until }, "never-seen"] }) });
  assert.deepEqual([acks.status, acks.semel], [204, "executed"]);
  assert.equal(acks.headers.get("semel-key"), '"accounts/k12"');
  for (const id of [rides, goes]) assertProblem(await server.deposit("k12", 1, { id }), 410, "acknowledged", "yes", "never");
  assert.deepEqual(await server.account("k12"), { id: "k12", balance: 3, entries: 3 });
});

test("an acknowledgement on a refused request counts, and a principal can't acknowledge the id of another", async () => {
  const id = randomUUID();
  await server.deposit("k13", 1, { id, as: "alice" });
  await server.deposit("k13", 1, { as: "mallory", ack: `"${id}"` });
  assert.equal((await server.deposit("k13", 1, { id, as: "alice" })).semel, "replayed");
  assertProblem(await server.send("POST", "/accounts/k13/deposit", { as: "alice", ack: `"${id}"` }), 400, "key-missing", "no", "after-fix");
  assertProblem(await server.deposit("k13", 1, { id, as: "alice" }), 410, "acknowledged", "yes", "never");
});

test("outside-window: first sent before the fence", () =>
  unchanged("k14", async () => {
    const answer = await server.deposit("k14", 1, { firstSent: seconds() - 2 * 86_400 });
    assertProblem(answer, 412, "outside-window", "unknown", "never");
  }));

test("too-large: a body over 1 MiB, announced or not", () =>
  unchanged("k15", async () => {
    const body = Buffer.alloc((1 << 20) + 1, " ");
    // A client that is still sending must get its answer, and not a broken connection.
    for (const large of [body, Buffer.alloc(8 << 20, " ")]) {
      const answer = await server.send("POST", "/accounts/k15/deposit", { id: randomUUID(), body: large });
      assertProblem(answer, 413, "too-large", "no", "after-fix");
    }
    const chunks = new Blob([body]).stream();
    const streamed = await fetch(`${server.url}/accounts/k15/deposit`, { method: "POST", headers: { "idempotency-key": randomUUID() }, body: chunks, duplex: "half" });
    assert.equal(streamed.headers.get("semel-status"), "too-large");
    // The registry reads bodies of its own.
    assertProblem(await server.admin("POST", "forget", { id: randomUUID(), body }), 413, "too-large", "no", "after-fix");
  }));

test("fingerprint-mismatch: the same id with another amount, path, content type or principal", async () => {
  const id = randomUUID();
  const key = '"accounts/k16"';
  await server.deposit("k16", 1, { id, as: "alice", headers: { "content-type": "application/json" } });
  const others = [
    ["/accounts/k16/deposit", { amount: 2 }, "application/json", "alice"],
    ["/accounts/k16/withdraw", { amount: 1 }, "application/json", "alice"],
    ["/accounts/k16/deposit?x=1", { amount: 1 }, "application/json", "alice"],
    ["/accounts/k16/deposit", { amount: 1 }, "text/plain", "alice"],
    ["/accounts/k16/deposit", { amount: 1 }, "application/json", "mallory"],
  ];
  for (const [path, body, type, as] of others) {
    const answer = await server.send("POST", path, { id, key, as, headers: { "content-type": type }, body: JSON.stringify(body) });
    assertProblem(answer, 422, "fingerprint-mismatch", "no", "after-fix");
    assert.ok(!answer.text.includes("alice"));
  }
  assert.deepEqual(await server.account("k16"), { id: "k16", balance: 1, entries: 1 });
});

test("health tells versions, limits, retention and clock", async () => {
  const { json, semel, headers } = await server.send("GET", "/semel/v1/health");
  assert.equal(semel, "read");
  assert.equal(json.versions.protocol, 1);
  assert.equal(json.retentionSeconds, 86_400);
  assert.equal(json.limits.requestBodyBytes, 1 << 20);
  assert.equal(String(json.now), headers.get("semel-now"));
});

test("a preflight allows all request headers of the protocol, and answers expose all of its response headers", async () => {
  const asked = { "access-control-request-method": "POST", "access-control-request-headers": "x-own" };
  const answer = await server.send("OPTIONS", "/accounts/k17/deposit", { headers: asked });
  assert.equal(answer.status, 204);
  const allowed = answer.headers.get("access-control-allow-headers").toLowerCase().split(", ");
  for (const name of ["idempotency-key", "semel-key", "semel-ack", "semel-first-sent", "semel-deadline", "semel-session", "semel-principal", "prefer", "authorization", "content-type", "x-own"]) {
    assert.ok(allowed.includes(name), name);
  }
  const exposed = (await server.deposit("k17", 0)).headers.get("access-control-expose-headers").toLowerCase().split(", ");
  for (const name of ["semel-status", "semel-now", "idempotent-replayed", "semel-key", "semel-expires", "retry-after", "content-type"]) {
    assert.ok(exposed.includes(name), name);
  }
});
