// Messages that a handler has sent: transfers between accounts, by the example in TypeScript, with `kill -9` in between.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { SDK_PACKAGE } from "../../scripts/setup/sdk.mjs";
import { scriptWorker } from "./script.mjs";
import { ADMIN_TOKEN, serve } from "./server.mjs";

const ACCOUNTS = 20;
const FIRST = 1_000_000;
const TRANSFERS = 10_000;
const AT_ONCE = 100;
const KILLS = 5;

const server = await serve(after, "script", {}, { folder: await scriptWorker(after, join(ROOT, "examples/transfers/src/index.ts")), objects: { SEMEL: "Accounts", REGISTRY: "SemelRegistry" } });
const post = (account, what, body, id = randomUUID()) => server.send("POST", `/accounts/${account}/${what}`, { id, body: JSON.stringify(body) });
const show = async (account) => (await server.send("GET", `/accounts/${account}`)).json;
const effects = async (account) => (await server.admin("GET", `keys/accounts%2F${account}/effects`)).json;

/** Sends again until there is a definitive answer, even if the server is down meanwhile. */
async function surely(account, what, body) {
  const id = randomUUID();
  for (;;) {
    const answer = await post(account, what, body, id).catch(() => undefined);
    if (["executed", "replayed"].includes(answer?.semel)) return answer;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function eventually(what, holds, ms = 60_000) {
  const untilMs = Date.now() + ms;
  let last;
  while (Date.now() < untilMs) {
    last = await holds().catch((error) => error);
    if (last === true) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.fail(`${what}: ${JSON.stringify(last)}`);
}

test("a transfer is credited once, and a credit that no account has sent is refused", { timeout: 60_000 }, async () => {
  await post("ann", "deposit", { amount: 10 });
  const id = randomUUID();
  for (const semel of ["executed", "replayed"]) assert.equal((await post("ann", "transfer", { to: "ben", amount: 4 }, id)).semel, semel);
  await eventually("the credit", async () => (await show("ben")).balance === 4);
  assert.deepEqual([await show("ann"), await show("ben")], [{ balance: 6, credits: 0 }, { balance: 4, credits: 1 }]);
  assert.equal((await post("ben", "credit", { amount: 5 })).status, 403);
  assert.equal((await post("ann", "transfer", { to: "ben", amount: 7 })).status, 409);
  assert.equal((await server.send("POST", "/semel/v1/keys/accounts%2Fben/sessions", { id: randomUUID(), body: '{"name":"semel:accounts/ann"}' })).semel, "forbidden");
  assert.equal((await effects("ann")).count, 0);
});

test("a deposit beyond the largest safe integer is refused, and a credit waits until there is room for it", { timeout: 60_000 }, async () => {
  const most = Number.MAX_SAFE_INTEGER;
  assert.equal((await post("rich", "deposit", { amount: most + 1 })).status, 400);
  assert.deepEqual((await post("rich", "deposit", { amount: most })).json, { balance: most });
  for (const amount of [1, 2, most]) assert.equal((await post("rich", "deposit", { amount })).semel, "rolled-back");
  await post("poor", "deposit", { amount: 5 });
  await post("poor", "transfer", { to: "rich", amount: 5 });
  await eventually("it is sent again", async () => (await effects("poor")).lanes[0]?.attempts >= 2);
  assert.deepEqual([await show("rich"), (await effects("poor")).parked], [{ balance: most, credits: 0 }, []]);
  assert.deepEqual((await post("rich", "transfer", { to: "other", amount: 7 })).json, { balance: most - 7 });
  await eventually("the credit", async () => (await show("rich")).credits === 1);
  assert.deepEqual([await show("rich"), await show("poor")], [{ balance: most - 2, credits: 1 }, { balance: 0, credits: 0 }]);
});

test("a call keeps its id until it is answered, also over kill -9, after which an alarm goes on with it", { timeout: 90_000 }, async () => {
  const seen = [];
  let status = 503;
  const other = createServer((request, response) => {
    seen.push([request.headers["idempotency-key"], request.headers["x-from"]]);
    request.resume().on("end", () => response.writeHead(status).end("not now"));
  });
  await new Promise((resolve) => other.listen(0, "127.0.0.1", resolve));
  after(() => other.close());
  const folder = await scriptWorker(after, join(ROOT, "tests/e2e/script/caller.js"));
  const caller = await serve(after, "script", { SEMEL_REPORT_SECONDS: "1" }, { folder, objects: { SEMEL: "Caller", REGISTRY: "SemelRegistry" }, reachesLocal: true });
  const url = `http://127.0.0.1:${other.address().port}/mail`;
  const call = (urls) => caller.send("POST", "/one", { id: randomUUID(), key: '"one"', body: JSON.stringify({ urls }) });
  const told = async () => (await caller.admin("GET", "keys/one/effects")).json;
  const listed = async () => (await caller.admin("GET", "keys?state=parked")).json.keys.map(({ key, parked }) => [key, parked]);
  assert.equal((await call([url])).semel, "executed");
  await eventually("some calls", async () => seen.length >= 2);
  const { lanes } = await told();
  assert.deepEqual([lanes[0].to, lanes[0].reason], [`url ${new URL(url).origin}`, "answered 503: not now"]);
  await caller.restart();
  const before = seen.length;
  // No request comes to the object meanwhile.
  await eventually("a call after the restart", async () => seen.length > before);
  assert.deepEqual(await listed(), []);
  status = 404;
  await eventually("the registry hears of it, though nobody asks the object", async () => (await listed()).length === 1);
  assert.deepEqual(await listed(), [["one", 1]]);
  const [parked] = (await told()).parked;
  assert.deepEqual([parked.reason, parked.executed], ["answered 404: not now", "unknown"]);
  const line = await caller.line(/"level":"warn","by":"object","key":"[0-9a-f]{16}","message":"what the key has sent was refused for good, and is parked"/);
  status = 200;
  const env = { PATH: process.env.PATH, SEMEL_URL: caller.url, SEMEL_ADMIN_TOKEN: ADMIN_TOKEN };
  const run = async (...args) => (await promisify(execFile)(join(SDK_PACKAGE, "bin/semel.cjs"), args, { env })).stdout;
  const semel = (...args) => run("effects", "one", ...args);
  assert.equal(JSON.parse(await run("keys", "--hash", JSON.parse(line).key, "--json")).key, "one", "the log says which key it is");
  assert.match(await semel(), /^PARKED +TO[^\n]*\n[0-9a-f]{32} {2}url http.* {2}unknown {2}POST .*\/mail {2}answered 404: not now\n/);
  assert.match(await semel("--retry", parked.id, "--yes"), /^It is sent again/);
  await eventually("it is done", async () => (await told()).count === 0);
  await eventually("the registry hears of that too", async () => (await listed()).length === 0);
  assert.deepEqual(new Set(seen.map(String)), new Set([`"${parked.id}",one`]), "one id, of all calls");
  assert.equal((await call(["mailto:nobody@example.com"])).semel, "rolled-back");
  assert.equal((await call(Array.from({ length: 65 }, () => url))).semel, "too-large");
  assert.equal((await told()).count, 0);
});

test("the status of a call decides what becomes of it, even if its body hangs or breaks, and it is sent once", { timeout: 90_000 }, async () => {
  const seen = [];
  const BODIES = {
    "/hangs": (response) => response.writeHead(200).flushHeaders(),
    "/ends": (response) => response.writeHead(201, { "content-length": 10 }).flushHeaders() ?? setImmediate(() => response.destroy()),
    "/garbled": (response) => response.writeHead(200, { "content-encoding": "gzip" }).end("no gzip"),
    "/refuses": (response) => response.writeHead(400, { "content-length": 10 }).write("no"),
    "/moved": (response) => response.writeHead(307, { location: "/ends" }).end("gone"),
    "/refuses-garbled": (response) => response.writeHead(400, { "content-encoding": "gzip" }).end("no gzip"),
  };
  const other = createServer((request, response) => {
    seen.push(request.url);
    request.resume().on("end", () => BODIES[request.url](response));
  });
  await new Promise((resolve) => other.listen(0, "127.0.0.1", resolve));
  after(() => other.close() && other.closeAllConnections());
  const folder = await scriptWorker(after, join(ROOT, "tests/e2e/script/caller.js"));
  const caller = await serve(after, "script", {}, { folder, objects: { SEMEL: "Caller", REGISTRY: "SemelRegistry" }, reachesLocal: true });
  const paths = Object.keys(BODIES);
  // Calls of one key to one origin go one at a time, so each has a key of its own.
  for (const path of paths) await caller.send("POST", "/one", { id: randomUUID(), key: `"one${path}"`, body: JSON.stringify({ urls: [`http://127.0.0.1:${other.address().port}${path}`] }) });
  const told = async (path) => (await caller.admin("GET", `keys/${encodeURIComponent(`one${path}`)}/effects`)).json;
  await eventually("nothing waits", async () => (await Promise.all(paths.map(told))).every(({ lanes }) => lanes.length === 0));
  assert.deepEqual(seen.toSorted(), paths.toSorted());
  const parked = await Promise.all(paths.map(async (path) => (await told(path)).parked.map(({ reason }) => reason)));
  assert.deepEqual(parked, [[], [], [], ["answered 400: no"], ["answered 307: gone"], ["answered 400: "]]);
});

test(`${TRANSFERS} transfers, with kill -9 in between, are each credited once, and the total stays the same`, { timeout: 400_000 }, async (context) => {
  const names = Array.from({ length: ACCOUNTS }, (_, n) => `account-${n}`);
  await Promise.all(names.map((name) => surely(name, "deposit", { amount: FIRST })));
  let begun = 0;
  let done = 0;
  const one = async () => {
    while (begun < TRANSFERS) {
      const n = begun++;
      const from = n % ACCOUNTS;
      // Each account pays each of the others in turn.
      const to = (from + 1 + (Math.floor(n / ACCOUNTS) % (ACCOUNTS - 1))) % ACCOUNTS;
      assert.equal((await surely(names[from], "transfer", { to: names[to], amount: 1 + (n % 7) })).status, 200);
      done += 1;
    }
  };
  const startedMs = Date.now();
  const sending = Promise.all(Array.from({ length: AT_ONCE }, one));
  for (let kill = 1; kill <= KILLS; kill += 1) {
    await eventually("transfers", async () => done >= (TRANSFERS * kill) / (KILLS + 1), 200_000);
    await server.restart();
  }
  await sending;
  const sentMs = Date.now() - startedMs;
  let shown;
  await eventually("all credits", async () => {
    shown = await Promise.all(names.map(show));
    const credits = shown.reduce((sum, each) => sum + each.credits, 0);
    return credits >= TRANSFERS || credits;
  });
  const sum = (of) => shown.reduce((all, each) => all + of(each), 0);
  assert.deepEqual([sum(({ credits }) => credits), sum(({ balance }) => balance)], [TRANSFERS, ACCOUNTS * FIRST]);
  // None arrives later either.
  await eventually("nothing waits", async () => (await Promise.all(names.map(effects))).every(({ count }) => count === 0));
  shown = await Promise.all(names.map(show));
  assert.equal(sum(({ credits }) => credits), TRANSFERS);
  context.diagnostic(`${TRANSFERS} transfers answered in ${sentMs} ms, ${KILLS} times killed; all arrived ${Date.now() - startedMs} ms after the first`);
  const last = randomUUID();
  assert.equal((await post(names[0], "deposit", { amount: Number.MAX_SAFE_INTEGER }, last)).semel, "rolled-back");
  await server.lineOf(last);
  assert.doesNotMatch(server.log, /restarted/);
});
