// The server's side of the demonstration: the files of the page, and the log of attempts. `lab-kills.test.mjs` has killing the server.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { stateFolder } from "./folders.mjs";
import { serve } from "./server.mjs";

const scratch = await stateFolder("semel-lab-");
after(() => rm(scratch, { recursive: true, force: true }));
const site = join(scratch, "site");
const FILES = {
  "index.html": ["text/html; charset=utf-8", "<!doctype html><title>lab</title>"],
  "inspector.html": ["text/html; charset=utf-8", "<title>inspector</title>"],
  "docs/index.html": ["text/html; charset=utf-8", "<title>docs</title>"],
  "docs/protocol.html": ["text/html; charset=utf-8", "<title>protocol</title>"],
  "assets/lab-ABCD1234.js": ["text/javascript; charset=utf-8", "export {};"],
  "assets/lab-ABCD1234.js.map": ["application/json", "{}"],
  "assets/lab.js": ["text/javascript; charset=utf-8", "export {};"],
  "assets/lab-ABCD1234.css": ["text/css; charset=utf-8", "p {}"],
  "assets/semel-ABCD1234.wasm": ["application/wasm", "\0asm"],
  "assets/icon.svg": ["image/svg+xml", "<svg/>"],
  "assets/shot.png": ["image/png", "\x89PNG"],
  "assets/facts.json": ["application/json", "{}"],
};
for (const [name, [, text]] of Object.entries(FILES)) {
  await mkdir(join(site, name, ".."), { recursive: true });
  await writeFile(join(site, name), text);
}
await writeFile(join(scratch, "secret.txt"), "secret");

const server = await serve(after, "ledger", {}, { assets: site });
const get = (path, options) => server.send("GET", path, options);

test("each file has its type and nosniff, and is cached for long only if its name has a hash", async () => {
  for (const [name, [type, text]] of Object.entries(FILES)) {
    const path = name.replace(/(index)?\.html$/, "");
    for (const method of ["GET", "HEAD"]) {
      const { status, headers, text: told } = await server.send(method, `/${path}`);
      assert.deepEqual([status, headers.get("content-type"), told], [200, type, method === "GET" ? text : ""], path);
      assert.equal(headers.get("x-content-type-options"), "nosniff");
      assert.equal(headers.get("content-security-policy"), "frame-ancestors 'none'");
      const kept = /-ABCD1234\./.test(name) ? "public, max-age=31536000, immutable" : "no-cache";
      assert.equal(headers.get("cache-control"), kept, path);
    }
  }
  const { headers } = await get("/");
  const again = await get("/", { headers: { "if-none-match": headers.get("etag") } });
  assert.equal(again.status, 304, "what is unchanged is not sent again");
});

test("other spellings of a path redirect to its one name", async () => {
  for (const [path, location] of [["/docs", "/docs/"], ["/docs/protocol.html", "/docs/protocol"], ["/docs/protocol/", "/docs/protocol"], ["/inspector/", "/inspector"], ["/assets//lab.js", "/assets/lab.js"]]) {
    const { status, headers } = await get(path);
    assert.deepEqual([status, headers.get("location")], [307, location]);
  }
});

test("a missing file, a folder, or a path that leaves the site is 404 and not cached", async () => {
  const missing = ["/assets/", "/assets/gone-ABCD1234.js", "/docs/gone", "/docs/protocol%00", "/docs/%zz", "/assets/lab", "/docs//host.example"];
  const tricks = ["/assets/..%2f..%2fsecret.txt", "/assets/..%5c..%5csecret.txt", "/docs/%2e%2e%2f%2e%2e%2fsecret.txt", "/assets/....//....//secret.txt"];
  for (const path of [...missing, ...tricks]) {
    const { status, headers, text } = await get(path);
    assert.deepEqual([status, headers.get("cache-control"), text], [404, "no-cache", ""], path);
  }
  for (const path of ["/assets/../../secret.txt", "/docs/%2e%2e/%2e%2e/secret.txt", "/../secret.txt"]) {
    const answer = await server.raw(`GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
    assert.match(answer, /^HTTP\/1\.1 404/, path);
    assert.match(answer, /^semel-status: not-found\r?$/im, "it is the API's path, once it is read as browsers do");
  }
});

test("paths that are no file, and methods that do not read one, go to the API", async () => {
  assert.equal((await server.deposit("beside", 5)).semel, "executed");
  assert.deepEqual(await server.account("beside"), { id: "beside", balance: 5, entries: 1 });
  assert.equal((await get("/assets/../accounts/beside")).json.balance, 5);
  assert.equal((await get("/semel/v1/health")).status, 200);
  for (const path of ["/", "/docs/protocol", "/assets/lab.js"]) {
    assert.equal((await server.send("POST", path, { id: "posted" })).semel, "not-found", path);
    assert.equal((await server.send("OPTIONS", path)).status, 204);
  }
  assert.equal((await get("/index.html")).semel, "not-found");
});

test("without the site its paths go to the API, and are not-found", async (t) => {
  const bare = await serve((end) => t.after(end), "ledger");
  for (const path of ["/", "/docs", "/assets/lab.js"]) assert.equal((await bare.send("GET", path)).semel, "not-found", path);
});

const SIDES = { semel: "", naive: "/naive" };

/** What the lab says about an account, with all pages of its log in one. */
async function lab(account, side, { from = server, after = 0 } = {}) {
  const all = [];
  for (let last = after; ; ) {
    const answer = await from.send("GET", `/lab/accounts/${account}/${side}?after=${last}`);
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.headers.get("cache-control"), "no-store");
    const page = answer.json;
    assert.equal(page.last, page.attempts.at(-1)?.n ?? last);
    all.push(...page.attempts);
    last = page.last;
    if (page.attempts.length < 1000) return { ...page, attempts: all };
  }
}

/** A deposit of 1 that the lab logs as `attempt`. */
function deposit(account, side, attempt, { to = server, headers, ...options } = {}) {
  const body = options.body ?? '{"amount":1}';
  return to.send("POST", `${SIDES[side]}/accounts/${account}/deposit`, { id: randomUUID(), ...options, body, headers: { "lab-attempt": attempt, ...headers } });
}

const told = ({ attempts }) => attempts.map(({ attempt, status }) => `${attempt} ${status}`);

test("kill -9 under load: each log agrees with its account, and has every attempt that was answered", async (t) => {
  const killed = await serve((end) => t.after(end), "ledger");
  const requests = Array.from({ length: 120 }, (_, index) => ({ id: randomUUID(), index, account: `killed-${index % 3}`, isDone: {} }));
  const answered = [];
  const attempt = async (request, side, round) => {
    const name = `${request.index}.${side}.${round}`;
    const answer = await deposit(request.account, side, name, { to: killed, id: request.id });
    const status = side === "semel" ? answer.semel : "executed";
    assert.equal(answer.status, 200, answer.text);
    answered.push({ account: request.account, side, name, status });
    request.isDone[side] = true;
  };
  for (let round = 0; round < 3; round += 1) {
    const open = requests.flatMap((request) => Object.keys(SIDES).map((side) => [request, side])).filter(([request, side]) => !request.isDone[side]);
    const killAt = answered.length + Math.ceil(open.length / 3);
    let end;
    const client = async () => {
      while (open.length > 0 && !end) {
        await attempt(...open.shift(), round);
        if (answered.length >= killAt) end ??= killed.kill();
      }
    };
    const failures = (await Promise.allSettled(Array.from({ length: 16 }, client))).filter(({ reason }) => reason && !(reason instanceof TypeError));
    assert.deepEqual(failures, [], "nothing but lost connections");
    assert.ok(end, "the server was killed under load");
    await end;
    await killed.restart();
    for (const account of ["killed-0", "killed-1", "killed-2"]) {
      for (const side of Object.keys(SIDES)) await isExact(killed, account, side, answered);
    }
  }
  const left = requests.filter(({ isDone }) => !isDone.semel);
  assert.ok(left.length > 0, "some requests were lost on the way");
  for (const request of left) await attempt(request, "semel", "last");
  for (const account of ["killed-0", "killed-1", "killed-2"]) {
    const { entries, balance, records, tombstones } = await isExact(killed, account, "semel", answered);
    assert.deepEqual([entries, balance, records, tombstones], [40, 40, 40, 0]);
  }
});

async function isExact(from, account, side, answered) {
  const log = await lab(account, side, { from });
  const executed = log.attempts.filter(({ status }) => status === "executed");
  assert.deepEqual([log.entries, log.balance, log.full], [executed.length, executed.length, false], `${account}, ${side}`);
  assert.deepEqual(log.attempts.map(({ n }) => n), log.attempts.map((_, index) => index + 1), "numbered without a gap");
  assert.equal(new Set(log.attempts.map(({ attempt }) => attempt)).size, log.attempts.length, "one row an attempt");
  const rows = new Set(told(log));
  for (const each of answered) {
    if (each.account === account && each.side === side) assert.ok(rows.has(`${each.name} ${each.status}`), `${each.name} is in the log as ${each.status}`);
  }
  if (side === "semel") {
    const ran = new Set(executed.map(({ attempt }) => attempt.split(".")[0]));
    assert.equal(ran.size, executed.length, "each request ran once");
    // A start that was counted and then cut off has a record too, until its request is sent again.
    assert.ok(log.records >= executed.length);
  } else {
    assert.deepEqual([log.records, log.tombstones], [0, 0]);
  }
  return log;
}

test("the log has what each attempt was answered", async () => {
  const id = randomUUID();
  const before = Date.now();
  await deposit("told", "semel", "first", { id });
  await deposit("told", "semel", "again", { id });
  await deposit("told", "semel", "other", { id, body: '{"amount":2}' });
  await deposit("told", "semel", "late", { deadline: Date.now() - 1 });
  await deposit("told", "semel", "no-amount", { body: "{}" });
  await deposit("told", "semel", "no-id", { id: undefined });
  assert.equal((await server.send("POST", "/accounts/told/nothing", { id: randomUUID(), headers: { "lab-attempt": "no-object" } })).status, 404);
  const log = await lab("told", "semel");
  assert.deepEqual(told(log), ["first executed", "again replayed", "other fingerprint-mismatch", "late attempt-expired", "no-amount executed", "no-id key-missing"]);
  assert.deepEqual([log.entries, log.balance, log.records], [1, 1, 2]);
  for (const { atMs } of log.attempts) assert.ok(atMs >= before && atMs <= Date.now());

  await server.send("POST", "/naive/accounts/told/nothing", { headers: { "lab-attempt": "no-such" } });
  await deposit("told", "naive", "first", { id });
  await deposit("told", "naive", "again", { id });
  await deposit("told", "naive", "no-amount", { body: "{}" });
  const naive = await lab("told", "naive");
  assert.deepEqual(told(naive), ["no-such failed", "first executed", "again executed", "no-amount failed"]);
  assert.deepEqual([naive.entries, naive.balance], [2, 2]);
});

test("acknowledged records are counted as tombstones, by Semel-Ack or a request of its own, also after a restart", async (t) => {
  const fresh = await serve((end) => t.after(end), "ledger");
  const counts = async () => {
    const { records, tombstones, entries, attempts } = await lab("counted", "semel", { from: fresh });
    return [records, tombstones, entries, attempts.length];
  };
  const send = (id, options) => deposit("counted", "semel", id, { to: fresh, id, ...options });
  for (const id of ["one", "two", "three"]) await send(id);
  assert.deepEqual(await counts(), [3, 0, 3, 3]);
  await send("four", { ack: '"one"' });
  assert.deepEqual(await counts(), [3, 1, 4, 4]);
  const acks = await fresh.send("POST", "/semel/v1/keys/accounts%2Fcounted/acks", { body: '{"ids":["two","three"]}', headers: { "lab-attempt": "acks" } });
  assert.deepEqual([acks.status, acks.semel], [204, "executed"]);
  assert.deepEqual(await counts(), [1, 3, 4, 4], "an acknowledgement is no attempt");
  await fresh.restart();
  assert.deepEqual(await counts(), [1, 3, 4, 4]);
});

/** Which of these texts are anywhere in the files of the objects. */
async function written(state, ...texts) {
  const found = new Set();
  for (const name of await readdir(join(state, "objects"), { recursive: true })) {
    const bytes = await readFile(join(state, "objects", name)).catch(() => "");
    for (const text of texts) if (bytes.includes(text)) found.add(text);
  }
  return [...found].sort();
}

test("an attempt without a valid name, or a read, leaves no log, and looking at a log writes nothing", async (t) => {
  const fresh = await serve((end) => t.after(end), "ledger");
  const nothing = { balance: 0, entries: 0, records: 0, tombstones: 0, full: false, attempts: [] };
  for (const side of Object.keys(SIDES)) {
    assert.deepEqual(await lab("untouched", side, { from: fresh }), { ...nothing, last: 0 });
    assert.deepEqual(await lab("untouched", side, { from: fresh, after: 7 }), { ...nothing, last: 7 });
  }
  assert.deepEqual(await written(fresh.state, "semel_records", "TABLE account", "lab_attempts"), []);
  for (const side of Object.keys(SIDES)) {
    await fresh.send("POST", `${SIDES[side]}/accounts/plain/deposit`, { id: "plain", body: '{"amount":1}' });
    for (const attempt of ["", "a b", "caf\u00e9", "x".repeat(65), "a,b", "a/b"]) await deposit("plain", side, attempt, { to: fresh });
    for (const method of ["GET", "HEAD"]) await fresh.send(method, `${SIDES[side]}/accounts/plain`, { headers: { "lab-attempt": "read" } });
    const { entries, attempts } = await lab("plain", side, { from: fresh });
    assert.deepEqual([entries, attempts], [7, []]);
  }
  assert.deepEqual(await written(fresh.state, "semel_records", "TABLE account", "lab_attempts"), ["TABLE account", "semel_records"]);
  await deposit("plain", "semel", "x".repeat(64), { to: fresh });
  assert.deepEqual(told(await lab("plain", "semel", { from: fresh })), [`${"x".repeat(64)} executed`]);
  assert.deepEqual(await written(fresh.state, "lab_attempts"), ["lab_attempts"]);
});

test("outside of the demonstration there is no log", async (t) => {
  const deployed = await serve((end) => t.after(end), "ledger", {}, { objects: { SEMEL: "SemelObject" } });
  assert.equal((await deposit("plain", "semel", "named", { to: deployed })).semel, "executed");
  for (const side of Object.keys(SIDES)) assert.equal((await deployed.send("GET", `/lab/accounts/plain/${side}`)).status, 404);
  assert.deepEqual(await written(deployed.state, "lab_attempts", "TABLE account"), ["TABLE account"]);
});

test("a full log says so and takes no more rows, and its account takes deposits all the same", async (t) => {
  const small = await serve((end) => t.after(end), "ledger", { LAB_ROWS_MAX: "3" });
  for (const side of Object.keys(SIDES)) {
    for (const attempt of ["a", "b"]) await deposit("full", side, attempt, { to: small });
    assert.equal((await lab("full", side, { from: small })).full, false);
    for (const attempt of ["c", "d"]) await deposit("full", side, attempt, { to: small });
  }
  await small.restart();
  for (const side of Object.keys(SIDES)) {
    await deposit("full", side, "e", { to: small });
    const log = await lab("full", side, { from: small });
    assert.deepEqual([log.full, log.last, log.entries, told(log)], [true, 3, 5, ["a executed", "b executed", "c executed"]]);
  }
});

test("a log is read 1,000 attempts at a time, from any number on", async () => {
  const attempts = Array.from({ length: 1003 }, (_, index) => `p${index}`);
  const open = [...attempts];
  const client = async () => {
    while (open.length > 0) await deposit("paged", "semel", open.shift());
  };
  await Promise.all(Array.from({ length: 8 }, client));
  const { json: first } = await get("/lab/accounts/paged/semel");
  assert.deepEqual([first.attempts.length, first.last, first.entries], [1000, 1000, 1003]);
  const { json: rest } = await get("/lab/accounts/paged/semel?after=1000");
  assert.deepEqual(rest.attempts.map(({ n }) => n), [1001, 1002, 1003]);
  assert.deepEqual([...first.attempts, ...rest.attempts].map(({ attempt }) => attempt).sort(), attempts.sort());
  assert.deepEqual((await lab("paged", "semel", { after: 1003 })).attempts, []);
});

test("a path that is no account of the lab is 404, and an after that is no number is 400", async () => {
  for (const path of ["/lab/accounts/a_b/semel", `/lab/accounts/${"a".repeat(65)}/semel`, "/lab/accounts/%61/semel", "/lab/accounts//semel", "/lab/accounts/a/other", "/lab/accounts/a/semel/", "/lab/accounts/a", "/lab/", "/lab/x"]) {
    const answer = await get(path);
    assert.deepEqual([answer.status, answer.headers.get("cache-control")], [404, "no-store"], path);
  }
  assert.equal((await get(`/lab/accounts/${"a".repeat(64)}/semel`)).status, 200);
  for (const method of ["POST", "PUT", "DELETE", "HEAD"]) assert.equal((await server.send(method, "/lab/accounts/a/semel")).status, 404, method);
  for (const after of ["", "-1", "x", "1e3", "1.5", "9".repeat(16)]) assert.equal((await get(`/lab/accounts/a/naive?after=${after}`)).status, 400, after);
});

test("a server without a supervisor can't be killed", async () => {
  assert.deepEqual((await get("/lab/server")).json, { canKill: false });
  assert.equal((await server.send("POST", "/lab/server/kill", { headers: { origin: server.url } })).status, 404);
  assert.equal((await get("/semel/v1/health")).status, 200);
});
