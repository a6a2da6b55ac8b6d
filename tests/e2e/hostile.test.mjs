// Attacks by a stranger, each written by hand: names that contain SQL, lines for the log, bodies that expand or nest without end.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:net";
import { after, afterEach, test } from "node:test";
import { serve } from "./server.mjs";

const server = await serve(after, "ledger");
const VICTIM = { id: "victim", balance: 100, entries: 1 };
await server.deposit("victim", 100);
afterEach(async () => assert.deepEqual(await server.account("victim"), VICTIM));

const SQL = [
  "'; DROP TABLE semel_records; --",
  "' OR '1'='1",
  '") OR 1=1; DELETE FROM account; --',
  "a'||(SELECT principal FROM semel_records)||'",
  "%' ESCAPE '!",
  "1; ATTACH DATABASE '/tmp/x' AS x",
  "?1 :id @id $id",
  "NULL",
];
const quoted = (text) => `"${text.replace(/["\\]/g, (char) => `\\${char}`)}"`;

test("SQL in ids, principals, keys and names of sessions is stored as text, and matches only itself", async () => {
  await server.deposit("sql", 50, { id: "hers", as: "alice" });
  let entries = 1;
  for (const text of SQL) {
    for (const as of ["alice", text]) {
      const lookUp = () => server.send("GET", `/semel/v1/keys/accounts%2Fsql/outcomes/${encodeURIComponent(text)}`, { as });
      assert.equal((await lookUp()).semel, "not-seen", text);
    }
    const first = await server.deposit("sql", 1, { id: quoted(text), as: text });
    entries += 1;
    assert.deepEqual([first.semel, first.json.entries], ["executed", entries], text);
    const again = await server.deposit("sql", 1, { id: quoted(text), as: text });
    assert.deepEqual([again.semel, again.text], ["replayed", first.text], text);
    assert.equal((await server.deposit("sql", 1, { id: quoted(text), as: "alice" })).semel, "fingerprint-mismatch", text);
    const body = JSON.stringify({ ids: [text] });
    assert.equal((await server.send("POST", "/semel/v1/keys/accounts%2Fsql/acks", { as: "alice", body })).status, 204);
    assert.equal((await server.deposit("sql", 1, { id: quoted(text), as: text })).semel, "replayed", `${text}: another's acknowledgement`);
    // A session with this name is a session of its own.
    const takeOver = (by) => server.send("POST", "/semel/v1/keys/accounts%2Fsql/sessions", { id: randomUUID(), as: by, body: JSON.stringify({ name: text }) });
    const { name, epoch, lastSeq } = (await takeOver("alice")).json;
    assert.deepEqual([name, lastSeq, (await takeOver("mallory")).semel], [text, 0, "forbidden"], text);
    const headers = { "semel-session": `${quoted(text)};epoch=${epoch};seq=1` };
    const placed = await server.send("POST", "/accounts/sql/deposit", { as: "alice", headers, body: '{"amount":1}' });
    entries += 1;
    assert.deepEqual([placed.semel, placed.json.entries], ["executed", entries], text);
    // An account with this name is a key of its own.
    const path = `/accounts/${encodeURIComponent(text).replace(/'/g, "%27")}/deposit`;
    const named = await server.send("POST", path, { id: randomUUID(), body: '{"amount":1}' });
    if (text.includes("/")) assert.equal(named.semel, "key-invalid");
    else assert.equal(named.json.balance, 1, text);
  }
  assert.equal((await server.deposit("sql", 50, { id: "hers", as: "alice" })).semel, "replayed");
  assert.deepEqual(await server.account("sql"), { id: "sql", balance: 50 + 2 * SQL.length, entries });
});

test("a line of the log is one line without control characters, whatever an error message holds", async (t) => {
  const probe = await serve((end) => t.after(end), "probe");
  const bombs = ["a\nsemel: forged", "a\r\nsemel: forged", "\u001b[2J\u001b[31mred", "\u009b31m", "\u0000\u0007", "a\u2028semel: forged", "\u202egnp.exe", "\u200b"];
  for (const what of ["fail-saying", "panic-saying"]) {
    for (const [n, body] of bombs.entries()) {
      const id = `${what}-${n}-end`;
      const answer = await probe.send("POST", `/${what}`, { id, body: `${body} ${id}`, key: '"k%E2%80%AE"', as: "pr;incipal" });
      assert.equal(answer.semel, "rolled-back", body);
      assert.ok(!answer.text.includes("forged"), "nothing of it is told");
    }
  }
  await probe.lineOf(`panic-saying-${bombs.length - 1}-end`);
  const lines = probe.log.split("\n");
  for (const what of ["fail-saying", "panic-saying"]) {
    for (const n of bombs.keys()) assert.ok(lines.some((line) => line.includes(`${what}-${n}-end`)), `${what} ${n} is in the log`);
  }
  assert.ok(!lines.some((line) => line.startsWith("semel: forged")));
  assert.doesNotMatch(probe.log.replaceAll("\n", ""), /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202e\u200b]/);
});

test("header injection: nothing in the headers of a request adds a header to the answer", async () => {
  const smuggled = ["x\r\nx-injected: yes", "x%0d%0ax-injected:%20yes", "x\nx-injected: yes", "x\u010ax-injected: yes"];
  for (const text of smuggled) {
    for (const line of [`Idempotency-Key: "${text}"`, `Semel-Key: "accounts/${text}"`, `Semel-Principal: "${text}"`, `Origin: ${text}`, `Access-Control-Request-Headers: ${text}`, `Authorization: Bearer ${text}`]) {
      for (const method of ["POST", "OPTIONS"]) {
        const head = `${method} /accounts/other/deposit HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n${line}\r\n\r\n`;
        const [answered] = (await server.raw(Buffer.from(head, "latin1"))).split("\r\n\r\n");
        assert.doesNotMatch(answered, /^x-injected/im, `${method} ${line}`);
      }
    }
  }
});

test("a Unicode line separator in a header neither adds a header of the router nor hides the id", async () => {
  const ends = ["\u0085", "\u2028", "\u2029"];
  for (const [n, end] of ends.entries()) {
    for (const name of ["semel-key", "semel-principal"]) {
      const id = randomUUID();
      const ask = async (id) => {
        const lines = [`Idempotency-Key: ${id}`, `X-Last: ${end}${name}:"accounts/victim"`];
        const head = `POST /accounts/ends/deposit HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 12\r\n${lines.join("\r\n")}\r\n\r\n{"amount":1}`;
        return /^semel-status: (.*)$/im.exec(await server.raw(Buffer.from(head)))?.[1].trim();
      };
      assert.deepEqual([await ask(id), await ask(id)], ["executed", "replayed"], `${name} behind ${n}`);
    }
  }
  // A separator in a header in front of the id does not hide the id.
  const lines = `Accept: \u2028semel-key:x\r\nIdempotency-Key: ${randomUUID()}`;
  const head = `POST /accounts/ends/deposit HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${lines}\r\nContent-Length: 12\r\n\r\n{"amount":1}`;
  assert.match(await server.raw(Buffer.from(head)), /semel-status: executed/i);
});

test("request smuggling: of two requests in the bytes of one, the inner one never runs", async () => {
  const inner = `POST /accounts/victim/deposit HTTP/1.1\r\nHost: x\r\nIdempotency-Key: ${randomUUID()}\r\nContent-Length: 12\r\n\r\n{"amount":1}`;
  for (const framing of [
    `Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${inner}`,
    `Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n${inner}`,
    `Content-Length: 0\r\nContent-Length: ${inner.length}\r\n\r\n${inner}`,
    `Transfer-Encoding:\x0bchunked\r\nContent-Length: ${inner.length}\r\n\r\n${inner}`,
  ]) {
    // The inner request must not run, not even where a server takes these bytes for two requests of one client.
    const answered = await server.raw(Buffer.from(`POST /accounts/smuggle/deposit HTTP/1.1\r\nHost: x\r\nIdempotency-Key: ${randomUUID()}\r\n${framing}`, "latin1"));
    assert.doesNotMatch(answered, /"id":"victim"/, framing);
  }
});

test("a chunked body over 1 MiB is refused even if a smaller Content-Length stands beside it", async () => {
  for (const [bytes, status] of [[1 << 20, 400], [(1 << 20) + 1, 413]]) {
    const id = randomUUID();
    const head = `POST /accounts/chunks/deposit HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: ${id}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n`;
    const answered = await server.raw(Buffer.from(`${head}${bytes.toString(16)}\r\n${"[".repeat(bytes)}\r\n0\r\n\r\n`));
    assert.match(answered, new RegExp(`^HTTP/1.1 ${status} `), `${bytes} bytes`);
  }
});

test("JSON bombs are body-invalid to the protocol, the handler's to refuse, and each costs under 5 s of CPU", async () => {
  const mib = 1 << 20;
  const bombs = {
    brackets: "[".repeat(mib),
    braces: '{"ids":'.repeat(mib / 7 - 1),
    nested: `{"ids":${"[".repeat(200_000)}${"]".repeat(200_000)}}`,
    digits: `{"ids":[${"9".repeat(mib - 20)}]}`,
    exponent: '{"ids":["a"],"until":1e999999999}',
    escapes: `{"ids":["${"\\u0000".repeat(150_000)}"]}`,
    surrogates: '{"ids":["\\ud800"]}',
    many: `{"ids":[${Array(200_000).fill('"a"').join()}]}`,
    doubled: '{"ids":["a"],"ids":["b"]}',
    proto: '{"__proto__":{"ids":["a"]}}',
    bytes: Buffer.concat([Buffer.from('{"ids":["'), Buffer.alloc(1000, 0xff), Buffer.from('"]}')]),
  };
  for (const [name, body] of Object.entries(bombs)) {
    // The time is CPU time of the server: others may slow the machine down, which is not the body's doing.
    const startedMs = server.cpuMs();
    for (const control of ["acks", "cancel", "sessions", "batch"]) {
      const answer = await server.send("POST", `/semel/v1/keys/accounts%2Fvictim/${control}`, { id: randomUUID(), body });
      assert.deepEqual([answer.status, answer.semel], [400, "body-invalid"], `${name}: ${control}`);
      assert.ok(answer.text.length < 1000, `${name}: the refusal is as long as the bomb`);
    }
    const answer = await server.send("POST", "/accounts/victim/deposit", { id: randomUUID(), body });
    assert.deepEqual([answer.status, answer.semel], [400, "executed"], name);
    const tookMs = server.cpuMs() - startedMs;
    assert.ok(tookMs < 5_000, `${name} took ${tookMs} ms`);
  }
});

test("a principal that sends bodies slowly uses up only its own share of memory", async () => {
  const mib = 1 << 20;
  const { hostname, port } = new URL(server.url);
  const body = Buffer.alloc(mib, " ");
  const slow = await Promise.all(
    Array.from({ length: 31 }, async () => {
      const socket = connect({ host: hostname, port: Number(port) });
      await once(socket, "connect");
      socket.write(`POST /accounts/slow/deposit HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer mallory\r\nIdempotency-Key: ${randomUUID()}\r\nPrefer: wait=60\r\nContent-Length: ${mib}\r\n\r\n`);
      await new Promise((sent) => socket.write(body.subarray(1), sent));
      return socket;
    }),
  );
  const large = (as) => server.send("POST", "/accounts/slow/deposit", { id: randomUUID(), as, body });
  // The server reads the slow bodies little by little, so it may take some requests until the share is used up.
  let refused = await large("mallory");
  for (let n = 0; n < 64 && refused.semel !== "unavailable"; n += 1) refused = await large("mallory");
  assert.deepEqual([refused.status, refused.json.executed, refused.json.retry, refused.headers.get("retry-after")], [503, "unknown", "same-id", "1"]);
  assert.match(refused.json.detail, /too much of this principal/);
  assert.equal((await large("alice")).semel, "executed", "another has theirs");
  assert.equal((await server.deposit("slow", 1, { as: "mallory" })).semel, "executed", "and what is small is none of it");
  const answers = slow.map((socket) => once(socket, "data").then(([data]) => /^semel-status: (\S+)/im.exec(String(data))?.[1]));
  for (const socket of slow) socket.write(" ");
  assert.deepEqual(await Promise.all(answers), Array(31).fill("executed"));
  assert.equal((await large("mallory")).semel, "executed", "there is room again");
  for (const socket of slow) socket.destroy();
});
