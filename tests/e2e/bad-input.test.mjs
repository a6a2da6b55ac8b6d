// Bad input, byte by byte. The answer to each is the one in the code table, or the connection just closes. No balance ever changes.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readdir } from "node:fs/promises";
import { after, afterEach, test } from "node:test";
import { ADMIN_TOKEN, serve } from "./server.mjs";

const server = await serve(after, "ledger", { SEMEL_LOG_SAMPLE: "1" });
const ACCOUNT = { id: "victim", balance: 100, entries: 1 };
await server.deposit("victim", 100);
afterEach(async () => assert.deepEqual(await server.account("victim"), ACCOUNT));

/** Sends a deposit exactly as given. Resolves to `answer`, all of its text, and `summary`: status and `Semel-Status`, with `none` for what is missing. */
async function rawDeposit({ path = "/accounts/victim/deposit", lines = [`Idempotency-Key: ${randomUUID()}`], body = '{"amount":1}', length = Buffer.byteLength(body) }) {
  const head = [`POST ${path} HTTP/1.1`, "Host: localhost", "Connection: close", `Content-Length: ${length}`, ...lines];
  const bytes = Buffer.concat([Buffer.from(`${head.join("\r\n")}\r\n\r\n`, "latin1"), Buffer.from(body)]);
  const answer = await server.raw(bytes);
  const status = /^HTTP\/1\.1 (\d{3})/.exec(answer)?.[1] ?? "none";
  const semel = /^semel-status: (.*?)\r?$/im.exec(answer)?.[1] ?? "none";
  return { summary: `${status} ${semel}`, answer };
}

/** Where the HTTP server itself refuses a request before Semel, it is enough that nothing happens. */
const REFUSED_BY_SERVER = /^(none|4\d\d) none$/;

test("ids: a missing, doubled, too long, half-quoted or non-ASCII id, or one with control characters, is refused", async () => {
  const cases = [
    [[], "400 key-missing"],
    [["Idempotency-Key: a", "Idempotency-Key: b"], "400 key-invalid"],
    [['Idempotency-Key: "a"', 'Idempotency-Key: "b"'], "400 key-invalid"],
    [[`Idempotency-Key: ${"x".repeat(256)}`], "400 key-invalid"],
    [["Idempotency-Key: a\tb"], "400 key-invalid"],
    [['Idempotency-Key: "a'], "400 key-invalid"],
    [["Idempotency-Key: caf\u00e9"], "400 key-invalid"],
    [["Idempotency-Key:"], "400 key-invalid"],
  ];
  for (const [lines, expected] of cases) assert.equal((await rawDeposit({ lines })).summary, expected, lines.join());
  for (const control of ["\0", "\x01", "\x7f"]) {
    const { summary } = await rawDeposit({ lines: [`Idempotency-Key: a${control}b`] });
    assert.ok(summary === "400 key-invalid" || REFUSED_BY_SERVER.test(summary), summary);
  }
});

test("paths: bad escapes, encoded slashes, dots, control characters and empty segments are refused", async () => {
  const cases = [
    ["/accounts/%00/deposit", "400 key-invalid"],
    ["/accounts/%ff/deposit", "400 key-invalid"],
    ["/accounts/%zz/deposit", "400 key-invalid"],
    ["/accounts/..%2f..%2faccounts%2fvictim/deposit", "400 key-invalid"],
    ["/accounts/x%2fvictim/deposit", "400 key-invalid"],
    ["/accounts/%5cvictim/deposit", "400 key-invalid"],
    ["/accounts//deposit", "400 key-invalid"],
    ["//accounts/victim/deposit", "400 key-invalid"],
    ["/accounts/victim/deposit/", "400 key-invalid"],
    ["/accounts/victim%0a/deposit", "400 key-invalid"],
    // `new URL` resolves these as `..` before any of Semel's code sees them.
    ["/accounts/%2e%2e/deposit", "404 not-found"],
    ["/accounts/../deposit", "404 not-found"],
    [`/accounts/${"x".repeat(600)}/deposit`, "400 key-invalid"],
    ["/nowhere", "404 not-found"],
    ["/semel/v1/keys/%00/cancel", "400 key-invalid"],
    ["/semel/v1/keys/%zz/acks", "400 key-invalid"],
    [`/semel/v1/keys/${"x".repeat(513)}/acks`, "400 key-invalid"],
    ["/semel/v1/keys//acks", "400 key-invalid"],
  ];
  for (const [path, expected] of cases) assert.equal((await rawDeposit({ path })).summary, expected, path);
});

test("an unknown method is refused", async () => {
  const answer = await server.raw(`BREW /accounts/victim/deposit HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
  assert.match(answer, /^HTTP\/1\.1 (400|404|405|501)/);
});

test("header injection through ids, keys and paths is refused or comes back escaped", async () => {
  const key = "accounts%2Fvictim%0d%0ax-injected%3a%20yes";
  for (const bytes of [
    { lines: [`Idempotency-Key: ${randomUUID()}`, `Semel-Key: "${key}"`] },
    { path: `/accounts/a%0d%0ax-injected:%20yes/deposit` },
    { path: `/semel/v1/keys/${key}/acks` },
  ]) {
    const { answer, summary } = await rawDeposit(bytes);
    assert.equal(summary, "400 key-invalid");
    assert.doesNotMatch(answer, /^x-injected/im);
  }
  const { answer } = await rawDeposit({ path: "/accounts/a%22%3b%20b/deposit", body: '{"amount":0}' });
  assert.match(answer, /^semel-key: "accounts\/a%22;%20b"\r?$/im);
});

test("a request whose body is cut short gets 503, has no effect, and leaves no line in the log", async () => {
  const [cut, next] = [randomUUID(), randomUUID()];
  const { summary, answer } = await rawDeposit({ lines: [`Idempotency-Key: ${cut}`], length: 500 });
  assert.equal(summary, "503 unavailable");
  assert.match(answer, /"detail":"the body of the request did not arrive whole"/);
  await server.deposit("next", 1, { id: next });
  await server.lineOf(next);
  assert.ok(!server.log.includes(cut), server.log);
});

test("a body that never ends gets 503 in time and a closed connection, and nothing runs", async () => {
  const account = randomUUID();
  const begin = (path, ...more) => server.raw([`POST ${path} HTTP/1.1`, "host: x", `idempotency-key: ${randomUUID()}`, "prefer: wait=1", ...more].join("\r\n"), { end: false });
  const answers = await Promise.all([
    begin(`/accounts/${account}/deposit`, "content-length: 20", "", '{"amount":1'),
    begin(`/accounts/${account}/deposit`, "transfer-encoding: chunked", "", 'b', '{"amount":1', ""),
    begin(`/semel/v1/keys/accounts%2F${account}/batch`, "content-length: 20", "", "["),
    begin("/semel/v1/admin/forget", `authorization: Bearer ${ADMIN_TOKEN}`, "content-length: 20", "", "{"),
  ]);
  for (const answer of answers) assert.match(answer, /^HTTP\/1\.1 503 .*\r\nsemel-status: unavailable\r\n/is);
  assert.equal((await server.account(account)).entries, 0);
});

test("a body that is no amount gets 400 as its outcome, and changes nothing", async () => {
  const bodies = [
    "", "{}", "[]", "null", "5", '"5"', "[5]", "{", '{"amount":}', '{"amount":0}', '{"amount":-1}', '{"amount":-0}', '{"amount":1.0}', '{"amount":1e3}',
    '{"amount":"1"}', '{"amount":null}', '{"amount":9007199254740992}', '{"amount":1e400}', '{"amount":1,"amount":2}', '{"amount":1}x', '{"amount":9007199254740991}',
  ];
  for (const body of [...bodies, Buffer.from([0x7b, 0xff, 0xfe, 0x7d])]) {
    const answer = await server.send("POST", "/accounts/victim/deposit", { id: randomUUID(), body });
    assert.deepEqual([answer.status, answer.semel], [400, "executed"], String(body));
  }
});

test("a withdrawal of too much gets 409, one of no amount 400, both as outcomes", async () => {
  for (const [body, status] of [['{"amount":101}', 409], ['{"amount":0}', 400], ["", 400]]) {
    const answer = await server.send("POST", "/accounts/victim/withdraw", { id: randomUUID(), body });
    assert.deepEqual([answer.status, answer.semel], [status, "executed"]);
  }
});

/** The files of the objects of all keys. Each that was ever asked has one. */
const objects = async () => (await readdir(server.state, { recursive: true })).filter((name) => /SemelObject.*\.sqlite$/.test(name)).sort();
/** Whether a key has tables, as the administrator is told. */
const isUsed = async (account) => (await server.admin("GET", `keys/accounts%2F${account}`)).semel === "read";

test("a path that nothing handles, and what the Worker refuses by itself, make no object", async () => {
  const before = await objects();
  for (const [method, path, options] of [
    ["POST", "/nowhere"],
    ["GET", "/nowhere"],
    ["POST", "/accounts/made"],
    ["PUT", "/accounts/made/deposit"],
    ["POST", "/semel/v1/keys/accounts%2Fmade/nothing"],
    ["POST", "/semel/v1/transactions"],
    ["POST", "/accounts/made/deposit", { key: '"accounts/made-too"' }],
    ["POST", "/accounts/made/deposit", { headers: { "semel-principal": '"another"' } }],
    ["POST", "/accounts//deposit"],
    ["GET", "/semel/v1/admin/keys/accounts%2Fmade", { as: "no administrator" }],
    ["GET", "/semel/v1/health"],
  ]) {
    const answer = await server.send(method, path, { id: randomUUID(), ...options });
    assert.equal(answer.headers.get("semel-key"), null, path);
    assert.deepEqual(await objects(), before, `${method} ${path}`);
  }
  await server.deposit("made", 1);
  assert.equal((await objects()).length, before.length + 1, "a deposit does make one");
});

test("an unknown account has balance 0 and no entries, and what reads it or is refused there leaves no tables", async () => {
  assert.deepEqual(await server.account("nobody"), { id: "nobody", balance: 0, entries: 0 });
  const late = { deadline: Date.now() - 1_000 };
  for (const [method, path, options, semel] of [
    ["HEAD", "/accounts/nobody", {}, "read"],
    ["GET", `/semel/v1/keys/accounts%2Fnobody/outcomes/${randomUUID()}`, {}, "not-seen"],
    ["POST", "/semel/v1/keys/accounts%2Fnobody/acks", { body: '{"ids":["a"]}' }, "executed"],
    ["POST", "/accounts/nobody/deposit", {}, "key-missing"],
    ["POST", "/accounts/nobody/deposit", { id: randomUUID(), ...late }, "attempt-expired"],
    ["POST", "/accounts/nobody/deposit", { id: randomUUID(), body: Buffer.alloc((1 << 20) + 1, " ") }, "too-large"],
    ["POST", "/accounts/nobody/deposit", { headers: { "semel-session": '"s";epoch=1;seq=1' } }, "session-unknown"],
    ["POST", "/semel/v1/keys/accounts%2Fnobody/cancel", { id: randomUUID(), body: "{}" }, "body-invalid"],
    ["POST", "/semel/v1/keys/accounts%2Fnobody/batch", { body: '[{"method":"GET","path":"/accounts/nobody"}]' }, "executed"],
  ]) {
    assert.equal((await server.send(method, path, options)).semel, semel, `${method} ${path}`);
    assert.equal(await isUsed("nobody"), false, `${method} ${path}: ${semel}`);
  }
  await server.deposit("nobody", 1);
  assert.equal(await isUsed("nobody"), true, "a deposit does leave some");
});
