// The registry of keys on workerd, with the probe: keys register, and alarms sweep them and tell them to forget, even if the server is killed
// meanwhile.

import assert from "node:assert/strict";
import { createHash, randomUUID } from "node:crypto";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { serve } from "./server.mjs";

const LIMIT_MS = 60_000;
/** For a longer run: SEMEL_FORGET_KEYS=2000 node --test tests/e2e/registry.test.mjs */
const FORGET_KEYS = Number(process.env.SEMEL_FORGET_KEYS ?? 300);
/** Alarms come as often as settings allow. */
const OFTEN = { SEMEL_REPORT_SECONDS: "1" };

const nowS = () => Math.floor(Date.now() / 1000);

/** Calls `look` until it returns something. Fails after `LIMIT_MS`. */
async function until(look, what) {
  const limit = Date.now() + LIMIT_MS;
  for (;;) {
    const found = await look();
    if (found) return found;
    assert.ok(Date.now() < limit, what);
    await delay(50);
  }
}

const change = (server, key, id, options = {}) => server.send("POST", "/echo", { id, key: `"${key}"`, ...options });

/** All listed keys, fetched page by page. */
async function listed(server, query) {
  const keys = [];
  for (let next = ""; next !== null; ) {
    const page = await server.admin("GET", `keys?${query}${next && `&after=${next}`}`);
    assert.deepEqual([page.status, page.semel], [200, "read"], page.text);
    keys.push(...page.json.keys);
    next = page.json.next;
  }
  return keys;
}

/** Has the registry list keys that need not exist: `[key, bytes]` of each. */
async function list(server, keys) {
  const shards = Array.from({ length: 16 }, (_, shard) => [shard, keys.filter((_, at) => at % 16 === shard)]);
  assert.equal((await server.send("POST", "/probe/reports", { body: JSON.stringify(shards) })).status, 200);
}

const entryOf = async (server, key) => (await listed(server, `prefix=${key}`)).find((entry) => entry.key === key);

/** Does `work` for each item, several at a time. */
async function each(items, work, atOnce = 32) {
  const rest = items.values();
  const worker = async () => {
    for (const item of rest) await work(item);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

test("every answered key registers, even if the server is killed just after, and without another request", async (t) => {
  const server = await serve((end) => t.after(end), "probe", OFTEN);
  const keys = [];
  for (let round = 0; round < 12; round += 1) {
    keys.push(`registers-${round}`);
    assert.equal((await change(server, keys.at(-1), randomUUID())).semel, "executed");
    // The kill comes at another moment between the commit and the registry's answer each time.
    await delay(round);
    await server.restart();
  }
  await until(async () => (await listed(server, "prefix=registers-")).length === keys.length, "all are listed");
});

test("a key registers even if its first requests came in a batch that crashed", async (t) => {
  const server = await serve((end) => t.after(end), "probe", OFTEN);
  const elements = ["/panic", "/echo"].map((path) => ({ id: randomUUID(), method: "POST", path }));
  const answer = await server.send("POST", "/semel/v1/keys/apart/batch", { body: JSON.stringify(elements) });
  assert.deepEqual(answer.json.map(({ headers }) => headers["semel-status"]), ["rolled-back", "executed"]);
  await until(() => entryOf(server, "apart"), "it registers");
});

test("requests are executed while the registry fails, and once there is one the key registers by its alarm", async (t) => {
  const objects = (REGISTRY) => ({ objects: { SEMEL: "SemelObject", REGISTRY } });
  const server = await serve((end) => t.after(end), "probe", OFTEN, objects("DeafRegistry"));
  for (let count = 0; count < 20; count += 1) assert.equal((await change(server, "unheard", randomUUID())).semel, "executed");
  const { level, key } = JSON.parse(await server.line(/could not tell the registry/));
  assert.deepEqual({ level, key }, { level: "warn", key: createHash("sha256").update("unheard").digest("hex").slice(0, 16) });
  // A client that would wait 30 s is answered long before that. The Worker's timers measure it: see the probe.
  const listing = await server.admin("GET", "keys", { headers: { "probe-by": "15000" } });
  assert.deepEqual([listing.status, listing.semel, listing.headers.get("probe-in-time")], [503, "unavailable", "yes"]);
  await server.line(/shard \d+ of the registry: no answer in 5000 ms/);
  await server.restart(objects("SemelRegistry"));
  const entry = await until(() => entryOf(server, "unheard"), "it registers");
  assert.equal(entry.records, 20);
});

test("without a registry requests are executed, keys are not listed, and the log says so once", async (t) => {
  const server = await serve((end) => t.after(end), "probe", OFTEN, { objects: { SEMEL: "SemelObject" } });
  for (const key of ["a", "b", "c"]) assert.equal((await change(server, key, randomUUID())).semel, "executed");
  // The line of a failure always comes, and comes last.
  const last = randomUUID();
  await server.send("POST", "/fail", { id: last, key: '"a"' });
  await server.lineOf(last);
  assert.equal(server.log.split("REGISTRY is not bound: keys are not listed").length, 2);
  const answer = await server.admin("GET", "keys");
  assert.deepEqual([answer.status, answer.semel], [503, "unavailable"]);
});

test("without a binding for SEMEL a change is unavailable, and the log says what is not bound", async (t) => {
  const server = await serve((end) => t.after(end), "probe", {}, { objects: { REGISTRY: "SemelRegistry" } });
  const answer = await change(server, "a", randomUUID());
  assert.deepEqual([answer.status, answer.semel], [503, "unavailable"]);
  await server.line(/SEMEL is not bound/);
});

test("a Worker with a compatibility_date before RPC does not start, and says why", async (t) => {
  await assert.rejects(serve((end) => t.after(end), "probe", {}, { compatibilityFlags: ["no_rpc"] }), /Semel needs a compatibility_date of 2024-04-03 or later/);
});

test("an idle key is swept by its alarm, and tells the registry that it is empty", async (t) => {
  const server = await serve((end) => t.after(end), "probe", OFTEN);
  const before = nowS();
  await each(Array.from({ length: 300 }), async () => assert.equal((await change(server, "idle", randomUUID(), { firstSent: before })).semel, "executed"));
  const entry = await until(() => entryOf(server, "idle"), "it is listed");
  assert.ok(entry.bytes > 0 && entry.created <= Date.now() && entry.oldest >= before * 1000);
  // Only now is the retention short, so that no change above came too late. One read sees to the alarm; after it nobody asks this key.
  await server.restart({ vars: { ...server.vars, SEMEL_RETENTION_SECONDS: "2" } });
  assert.equal((await server.send("GET", "/echo", { key: '"idle"' })).semel, "read");
  await until(async () => {
    const { records, tombstones, oldest } = await entryOf(server, "idle");
    return records === 0 && tombstones === 0 && oldest === null;
  }, "all has left");
  assert.equal((await change(server, "idle", randomUUID(), { firstSent: before })).semel, "outside-window");
});

test("ten thousand keys are listed in every order, each once, and a page takes under 2 s of CPU", async (t) => {
  const server = await serve((end) => t.after(end), "probe");
  const keys = Array.from({ length: 10_000 }, (_, number) => [`many/${String(number).padStart(5, "0")}`, (number * 7919) % 10_007]);
  await list(server, keys);
  const numberOf = { newest: (entry) => entry.created, heaviest: (entry) => entry.bytes, name: () => 0 };
  for (const [order, number] of Object.entries(numberOf)) {
    // The time is CPU time of the server, because others may slow the machine down.
    const startedMs = server.cpuMs();
    const { total } = (await server.admin("GET", `keys?order=${order}&limit=200`)).json;
    const tookMs = server.cpuMs() - startedMs;
    assert.ok(tookMs < 2_000, `a page by ${order} took ${tookMs} ms`);
    assert.equal(total, 10_000);
    const all = await listed(server, `order=${order}&limit=200`);
    assert.equal(new Set(all.map(({ key }) => key)).size, 10_000);
    for (const [at, entry] of all.slice(1).entries()) {
      const before = all[at];
      const [one, other] = [number(before), number(entry)];
      assert.ok(one > other || (one === other && before.key < entry.key), `${order}: ${before.key}, ${entry.key}`);
    }
  }
  const some = await listed(server, "order=heaviest&limit=50&prefix=many/001");
  assert.deepEqual(some.map(({ key }) => key).sort(), keys.map(([key]) => key).filter((key) => key.startsWith("many/001")));
});

test("a client that is not the administrator can neither list keys nor make them forget", async (t) => {
  const server = await serve((end) => t.after(end), "probe");
  for (const as of [undefined, "alice", "the-administrator-of-the-test"]) {
    for (const [method, path] of [["GET", "keys"], ["POST", "forget"], ["GET", "forget/1"]]) {
      const answer = await server.admin(method, path, { as, id: "a", body: method === "GET" ? undefined : '{"before":1}' });
      assert.ok([401, 403].includes(answer.status), `${as} ${path}: ${answer.status}`);
      assert.doesNotMatch(answer.text, /"keys"/);
    }
  }
});

test("a forget reaches every key and counts it once despite three kills, and requests first sent later run", async (t) => {
  const server = await serve((end) => t.after(end), "probe");
  // On a slow disk, a commit in each object takes long. Keys that are only listed are told to forget all the same.
  const keys = Array.from({ length: FORGET_KEYS / 5 }, (_, number) => `forgets-${number}`);
  const others = Array.from({ length: FORGET_KEYS - keys.length }, (_, number) => [`listed-${number}`, 0]);
  const all = keys.length + others.length;
  const early = nowS() - 60;
  await each(keys, async (key) => assert.equal((await change(server, key, "early", { firstSent: early })).semel, "executed"));
  await list(server, others);
  await until(async () => (await server.admin("GET", "keys?limit=1")).json.total === all, "all are registered");
  // No key of the probe is stuck at this instant: see `STUCK_S` in its index.js.
  const before = Math.floor((early + 30) / 10) * 10;
  const forget = () => server.admin("POST", "forget", { id: "all", body: JSON.stringify({ before }) });
  const progress = async () => (await server.admin("GET", "forget/1")).json;
  const made = await forget();
  assert.deepEqual([made.status, made.semel], [202, "executed"], made.text);
  assert.deepEqual(made.json, { id: "1", before, state: "running", keys: all, done: 0 });
  let done = 0;
  /** Waits until this share of the keys is done. Fails when no more keys get done; how long all take depends on the disk. */
  const reach = async (share) => {
    for (let done = 0; done < share * all; ) done = await until(async () => (await progress()).done > done && (await progress()).done, `${share} of them are done: more than ${done}`);
  };
  for (const share of [0.1, 0.4, 0.7]) {
    await reach(share);
    await server.restart();
    const now = await progress();
    assert.ok(now.done >= done && now.done <= now.keys && now.keys === all, JSON.stringify(now));
    done = now.done;
    const again = await forget();
    assert.deepEqual([again.semel, again.text], ["replayed", made.text]);
  }
  await reach(1);
  await until(async () => (await progress()).state === "done", "it ends");
  assert.deepEqual(await progress(), { id: "1", before, state: "done", keys: all, done: all, failed: [] });
  await each(keys, async (key) => {
    const late = await change(server, key, "late", { firstSent: early });
    assert.deepEqual([late.status, late.semel, late.json.executed, late.json.retry], [410, "forgotten", "unknown", "never"], key);
    assert.equal((await change(server, key, "new", { firstSent: before })).semel, "executed", key);
  });
  // A key that is new after the forget learns of it when it registers.
  await change(server, "forgets-later", "first");
  await until(async () => (await change(server, "forgets-later", randomUUID(), { firstSent: early })).semel === "forgotten", "it hears of it");
});

test("a forget that can't be done holds up no other, even if there are more than run at once", async (t) => {
  const server = await serve((end) => t.after(end), "probe", OFTEN);
  assert.equal((await change(server, "stuck", randomUUID())).semel, "executed");
  await until(() => entryOf(server, "stuck"), "it is listed");
  const stuckS = Math.floor(nowS() / 10) * 10 - 3;
  const forget = (id, before) => server.admin("POST", "forget", { id, body: JSON.stringify({ before }) });
  // More jobs than the registry works on at once.
  for (let job = 1; job <= 6; job += 1) assert.equal((await forget(`stuck-${job}`, stuckS)).status, 202);
  assert.equal((await forget("goes", stuckS - 1)).status, 202);
  const state = async (id) => (await server.admin("GET", `forget/${id}`)).json;
  await until(async () => (await state(7)).state === "done", "the last of them is done");
  const { failed, ...stuck } = await state(1);
  assert.deepEqual([stuck.state, stuck.done, failed.length <= 1], ["running", 0, true]);
});
