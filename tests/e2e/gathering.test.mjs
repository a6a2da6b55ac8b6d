// Changes of one key that reach a Worker together go to their object in one call, on workerd. Each still has its own answer, whichever of them
// leaves, is slow, or ends the object. `gathering-natively.test.mjs` has what needs no workerd.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { connect } from "node:net";
import { after, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { deposit, load } from "../bench/load.mjs";
import { until } from "./lossy.mjs";
import { serve } from "./server.mjs";

const LIMIT = { timeout: 60_000 };
const TELLS = { "probe-object": "counts" };
/** The content type that `fetch` gives to a text. It is part of the fingerprint. */
const TEXT = { "content-type": "text/plain;charset=UTF-8" };

const server = await serve(after, "probe");
const nowS = () => Math.floor(Date.now() / 1000);
const change = (key, { path = "/echo", id = randomUUID(), on = server, ...more } = {}) => on.send("POST", path, { id, key: `"${key}"`, body: id, firstSent: nowS(), headers: TELLS, ...more });
const runs = async (key) => Number((await server.send("GET", "/runs", { key: `"${key}"` })).text) - 1;
const times = (count, make) => Array.from({ length: count }, (_, number) => make(number));
const countsOf = ({ headers }) => JSON.parse(headers.get("probe-counts"));
const came = async () => (await server.send("GET", "/probe/came")).json;
const release = (name) => server.send("POST", "/probe/release", { body: name });
const clock = async (what) => (await server.send("POST", "/probe/clock", { body: String(what) })).json;
/** Requests with this header wait where they reach the Worker. Once the name is released, all go on in one turn. */
const gate = (name) => ({ "probe-gate": name });

/** Resolves to the log, with all that was printed until now. It sends a request that fails, whose line always comes, after all earlier ones. */
async function printed(by = server) {
  const id = randomUUID();
  await by.send("POST", "/fail", { id, key: '"printed"' });
  await by.lineOf(id);
  return by.log;
}

/** Resolves once `count` more requests than `before` have come to the Worker. */
async function haveCome(before, count) {
  for (let tries = 0; tries < 2_000; tries += 1) {
    if ((await came()) >= before + count) return;
    await pause(5);
  }
  throw new Error("they did not come");
}

/**
 * Holds a key's object with a change, until the name is released. When this resolves, that change has reached the Worker, so whatever comes now comes
 * while it is under way. `before`: how many requests have come to the Worker.
 */
async function hold(key, name = key) {
  const earlier = await came();
  const held = change(key, { headers: { "probe-object": `held ${name}` } });
  await haveCome(earlier, 1);
  return { held, before: earlier + 1 };
}

/** A client that can leave, as the runtime will notice: a connection with one change on it. */
function clientOf(key, id = randomUUID()) {
  const { hostname: host, port } = new URL(server.url);
  const socket = connect({ host, port: Number(port), noDelay: true });
  let text = "";
  const heard = new Promise((resolve) => {
    socket.on("error", () => {});
    socket.on("close", () => resolve(text));
    socket.on("data", (chunk) => {
      text += chunk;
      if (text.includes(id)) resolve(text);
    });
  });
  socket.write(`POST /echo HTTP/1.1\r\nHost: probe\r\nIdempotency-Key: ${id}\r\nSemel-Key: "${key}"\r\nSemel-First-Sent: @${nowS()}\r\nContent-Length: ${id.length}\r\n\r\n${id}`);
  return { id, heard, leave: () => socket.resetAndDestroy() };
}

test("changes that come while one of their key is under way go in one call, each with its own answer and replay", LIMIT, async () => {
  const before = countsOf(await change("many"));
  const ids = times(60, () => randomUUID());
  // All arrive while one change is under way, and then go on together, however slowly each has come.
  const together = async (name) => {
    const { held, before } = await hold("many", name);
    const answers = ids.map((id) => change("many", { id, headers: { ...TELLS, ...gate(`${name} all`) } }));
    await haveCome(before, ids.length);
    await release(`${name} all`);
    await release(name);
    assert.equal((await held).semel, "executed");
    return Promise.all(answers);
  };
  const first = await together("first");
  assert.deepEqual(first.map(({ status, semel, text }) => [status, semel, text]), ids.map((id) => [200, "executed", id]));
  for (const { headers } of first) assert.match(headers.get("server-timing"), /^object;dur=\d+, total;dur=\d+$/);
  const between = countsOf(await change("many"));
  assert.equal(between.requests - before.requests, 62);
  // One call for the change that is held, one for the 60, and one for the change that reads the counts.
  assert.equal(between.calls - before.calls, 3);
  const again = await together("again");
  assert.deepEqual(again.map(({ status, semel, text }) => [status, semel, text]), ids.map((id) => [200, "replayed", id]));
  assert.equal(countsOf(await change("many")).calls - between.calls, 3);
  assert.equal(await runs("many"), 65);
});

test("with nothing under way each change is a call of its own; reads and changes without an id or large are answered", LIMIT, async () => {
  for (let number = 1; number <= 5; number += 1) assert.deepEqual(countsOf(await change("alone")).calls, number);
  const { held, before } = await hold("alone");
  const large = "x".repeat(600_000);
  const all = [
    server.send("GET", "/runs", { key: '"alone"' }),
    server.send("POST", "/echo", { key: '"alone"', body: "x" }),
    change("alone", { body: "x".repeat((1 << 20) + 1) }),
    ...times(2, () => change("alone", { body: large })),
    ...times(3, () => change("alone")),
  ];
  await haveCome(before, all.length);
  await release("alone");
  await held;
  const answers = await Promise.all(all);
  assert.deepEqual(answers.map(({ status }) => status), [200, 400, 413, 200, 200, 200, 200, 200]);
  assert.equal(await runs("alone"), 5 + 1 + 5);
});

test("batches that come while a change of their key is under way are each answered with their own results", LIMIT, async () => {
  const { held, before } = await hold("batches");
  const batch = () => server.send("POST", "/semel/v1/keys/batches/batch", { id: randomUUID(), body: JSON.stringify([{ id: randomUUID(), method: "POST", path: "/echo", body: "one" }]) });
  const answers = times(3, batch);
  await haveCome(before, 3);
  await release("batches");
  await held;
  for (const { status, json } of await Promise.all(answers)) assert.deepEqual([status, json[0].body], [200, "one"]);
});

test("two changes that are too large together go in calls of their own", LIMIT, async () => {
  const bodies = times(4, (number) => String(number).repeat(600_000));
  await change("bytes");
  const answers = await Promise.all(bodies.map((body) => change("bytes", { body })));
  assert.deepEqual(answers.map(({ text }) => text), bodies);
  const { calls, requests } = countsOf(await change("bytes"));
  assert.deepEqual([calls, requests], [6, 6]);
});

/** Sends changes that come in one turn to a made-up object. Returns how many were in each call: see `/probe/gather`. */
const gathered = async (...asks) => (await server.send("POST", "/probe/gather", { body: JSON.stringify(asks) })).json;
const WAITS_MS = 60_000;

/**
 * Sends changes of a key, each `{ path, id, headers, body }`, that come in one turn. The first finds nothing under way; those behind it go together.
 */
const inOneTurn = async (key, changes, on = server) => {
  const made = changes.map(({ path = "/echo", id = randomUUID(), headers, body = id }) => [path, { "idempotency-key": id, "semel-key": `"${key}"`, "semel-first-sent": `@${nowS()}`, ...headers }, body]);
  return (await on.send("POST", "/probe/together", { body: JSON.stringify(made) })).json;
};

test("a call holds at most 256 changes and 1 MiB of heads and bodies, and the next call holds the rest", LIMIT, async () => {
  assert.deepEqual(await gathered(["many", 600, 100, 10, WAITS_MS]), { many: [1, 256, 256, 87] });
  assert.deepEqual(await gathered(["heads", 101, 32_768, 0, WAITS_MS]), { heads: [1, 32, 32, 32, 4] });
  assert.deepEqual(await gathered(["both", 11, 20_000, 500_000, WAITS_MS]), { both: [1, 2, 2, 2, 2, 2] });
  assert.deepEqual(await gathered(["alone", 3, 20_000, (1 << 20) - 19_999, WAITS_MS]), { alone: [1, 1, 1] });
});

test("a call gathers changes while one comes at least every second turn, for 20 turns at most", LIMIT, async () => {
  const apart = (turns) => ["apart", 1 + 24, 100, 0, WAITS_MS, turns];
  // The first change of a call waits for up to 20 turns. Each turn, or each second one, brings one more change.
  assert.deepEqual(await gathered(apart(1)), { apart: [1, 20, 4] });
  assert.deepEqual(await gathered(apart(2)), { apart: [1, 10, 10, 4] });
  assert.deepEqual(await gathered(apart(3)), { apart: times(25, () => 1) });
});

test("a group with too many bytes of heads and bodies does not go into the module", LIMIT, async () => {
  const fits = async (...all) => (await server.send("POST", "/probe/group", { body: JSON.stringify(all) })).json;
  for (const [all, expected] of [[[256, 1_000, 1_000], true], [[256, 1_000, 4_000], false], [[32, 32_000, 0], true], [[256, 32_000, 0], false]]) assert.equal(await fits(...all), expected, `${all}`);
});

test("what is under way is known for 1,000 keys at a time, and changes of other keys go alone until one is forgotten", LIMIT, async () => {
  const keys = (count, waitMs = WAITS_MS) => times(count, (number) => [`known ${number}`, 1, 100, 0, waitMs]);
  const more = (key) => [key, 3, 100, 0, WAITS_MS];
  const full = await gathered(...keys(1_000), more("beyond"), more("known 7"));
  assert.deepEqual([full.beyond, full["known 7"]], [[1, 1, 1], [1, 3]]);
  assert.deepEqual((await gathered(...keys(999), more("last"))).last, [1, 2], "what is over is known no more");
  // The runtime doesn't say when a caller has left. So where there is no room, the Worker looks for changes that nobody waits for any more.
  assert.deepEqual((await gathered(...keys(1_000, 0), more("after"))).after, [1, 2]);
});

test("if the client whose request carries a call leaves, the others are answered, and its request is done once", LIMIT, async () => {
  const { held, before } = await hold("leader");
  const leader = clientOf("leader");
  await haveCome(before, 1);
  const others = times(10, () => clientOf("leader"));
  await haveCome(before, 11);
  leader.leave();
  others[3].leave();
  await leader.heard;
  await release("leader");
  assert.equal((await held).semel, "executed");
  for (const [number, { id, heard }] of others.entries()) if (number !== 3) assert.match(await heard, new RegExp(`^HTTP/1.1 200 [^]*${id}$`));
  for (const { id } of [leader, others[3]]) assert.match(await clientOf("leader", id).heard, /^HTTP\/1.1 200 [^]*semel-status: replayed/i);
  assert.equal(await runs("leader"), 12);
  assert.equal((await change("leader")).semel, "executed");
});

test("if a call does not come back, each change is unavailable in its own time, and is done once when sent again", LIMIT, async () => {
  await change("hangs");
  const ids = times(12, () => randomUUID());
  const logged = await printed();
  const { held, before } = await hold("hangs");
  // Each waits for one second after it was released. The Worker's timers say whether it was answered within two.
  const asked = ids.map((id) => change("hangs", { id, headers: { "probe-object": "all hangs", "probe-by": "2000", prefer: "wait=1", ...gate("hangs all") } }));
  await haveCome(before, ids.length);
  await release("hangs all");
  await release("hangs");
  for (const { status, json, headers } of await Promise.all(asked)) {
    assert.deepEqual([status, json.executed, json.retry, headers.get("probe-in-time")], [503, "unknown", "same-id", "yes"]);
  }
  await held;
  const again = await Promise.all(ids.map((id) => change("hangs", { id })));
  assert.ok(again.every(({ status }) => status === 200));
  assert.equal(await runs("hangs"), 2 + 12);
  assert.doesNotMatch((await printed()).slice(logged.length), /different request/, "nobody is told what it has not waited for");
});

test("a change whose caller waits no longer is not under way, however many come meanwhile", LIMIT, async () => {
  const late = change("waits", { headers: { "probe-object": "hangs", prefer: "wait=1" } });
  let isOver = false;
  const over = late.then(({ status }) => {
    isOver = true;
    return status;
  });
  while (!isOver) assert.equal((await change("waits")).semel, "executed");
  assert.equal(await over, 503);
  // Sent by itself, it does not hang.
  for (let number = 0; number < 3; number += 1) assert.equal((await change("waits", { headers: { "probe-object": "all hangs" } })).semel, "executed");
});

test("a caller with a short wait does not shorten the wait of the others in its call", LIMIT, async () => {
  const headers = { "probe-object": "all late 1500" };
  const changes = times(6, (number) => ({ headers: number === 3 ? { ...headers, prefer: "wait=1" } : headers }));
  const statuses = (await inOneTurn("patience", changes)).map(([, semel]) => semel);
  assert.deepEqual(statuses, times(6, (number) => (number === 3 ? "unavailable" : "executed")));
});

test("if a call fails, each change in it is unavailable, and none is sent again", LIMIT, async () => {
  const changes = times(4, () => ({ headers: { "probe-object": "all overloaded" } }));
  assert.deepEqual(await inOneTurn("fails", changes), [[200, "executed"], ...times(3, () => [503, "unavailable"])]);
  assert.equal(await runs("fails"), 1);
});

test("a body that is too large is answered too-large when several come together too, and nothing runs", LIMIT, async () => {
  const large = () => change("too large", { body: "x".repeat((1 << 20) + 1) });
  await change("too large");
  const answers = await Promise.all(times(6, large));
  assert.deepEqual(answers.map(({ status, semel }) => [status, semel]), times(6, () => [413, "too-large"]));
  assert.equal(await runs("too large"), 1);
});

test("the registry is told of records that only gathered changes have made", LIMIT, async (t) => {
  const own = await serve((end) => t.after(end), "probe", { SEMEL_REPORT_SECONDS: "1" });
  const listed = async () => (await own.admin("GET", "keys")).json.keys.find(({ key }) => key === "told")?.records;
  const id = randomUUID();
  await change("told", { id, on: own });
  await until(async () => (await listed()) === 1, "the registry knows it");
  // A replay changes nothing, so what the registry hears must come from the other two.
  const statuses = (await inOneTurn("told", [{ id, headers: TEXT }, {}, {}], own)).map(([, semel]) => semel);
  assert.deepEqual(statuses, ["replayed", "executed", "executed"]);
  await until(async () => (await listed()) === 3, "the registry knows all");
});

test("if the object ends before the commit of gathered changes is durable, all are unavailable, then each runs once", LIMIT, async () => {
  // All arrive while one change is under way, however slowly: a change that is sent by itself would have a commit of its own.
  const { held, before } = await hold("ends");
  const ids = times(20, () => randomUUID());
  const coming = ids.map((id, number) => change("ends", { id, headers: { ...(number === 15 ? { "probe-object": "reset after" } : TELLS), ...gate("ends all") } }));
  await haveCome(before, ids.length);
  await release("ends all");
  await release("ends");
  assert.equal((await held).semel, "executed");
  const answers = await Promise.all(coming);
  // All were in the commit of the one that resets the object.
  for (const { status, semel } of answers) assert.deepEqual([status, semel], [503, "unavailable"]);
  const again = await Promise.all(ids.map((id) => change("ends", { id })));
  assert.deepEqual(again.map(({ status, text }) => [status, text]), ids.map((id) => [200, id]));
  assert.equal(await runs("ends"), 21);
});

test("if the answers of gathered changes are too large for one call, each change still has its own answer", LIMIT, async () => {
  await change("large");
  const answers = await Promise.all(times(40, () => change("large", { path: "/large/900000" })));
  assert.deepEqual(answers.map(({ status, semel, body }) => [status, semel, body.length]), times(40, () => [200, "executed", 900_000]));
  assert.equal(await runs("large"), 41);
});

test("a change that may have ended the object before shares its commit with no other", LIMIT, async () => {
  // The object is young for some seconds. Its clock stands, so it stays young until all requests have come.
  const firstSent = Math.floor((await clock("stands for 23")) / 1000);
  const first = await change("young", { firstSent: undefined });
  const { held, before } = await hold("young");
  const coming = times(20, () => change("young", { firstSent: undefined, headers: { ...TELLS, ...gate("young all") } }));
  await haveCome(before, coming.length);
  await release("young all");
  await release("young");
  assert.ok([first, await held, ...(await Promise.all(coming))].every(({ semel }) => semel === "executed"));
  const { calls, requests, syncs } = countsOf(await change("young", { firstSent }));
  // The first, the one that is held, all 20 together, each of the 20 once more by itself, and the one that reads the counts.
  assert.deepEqual([requests, calls], [1 + 1 + 20 + 20 + 1, 1 + 1 + 1 + 20 + 1]);
  assert.ok(syncs >= 2 * 21, "each is alone in its commit, and so is its start");
});

test("after a restart a request with an outcome is asked for once: alone, gathered, in a batch, in a session", LIMIT, async (t) => {
  const own = await serve((end) => t.after(end), "probe");
  const control = (path, body) => own.send("POST", `/semel/v1/keys/again/${path}`, { id: randomUUID(), body: JSON.stringify(body) });
  const earlier = (id) => change("again", { id, on: own, firstSent: nowS() - 60 });
  const placed = (seq) => own.send("POST", "/echo", { key: '"again"', body: "", headers: { "semel-session": `"s";epoch=1;seq=${seq}` } });
  const ids = times(40, () => randomUUID());
  const batch = () => control("batch", ids.map((id) => ({ id, firstSent: nowS() - 60, method: "POST", path: "/echo", headers: TEXT, body: id })));
  const counts = async () => countsOf(await change("again", { on: own }));
  const replayed = (answers) => assert.deepEqual([...new Set(answers.map(({ semel, headers }) => semel ?? headers["semel-status"]))], ["replayed"]);

  assert.equal((await control("sessions", { name: "s", after: 0 })).semel, "executed");
  for (const id of ids) assert.equal((await earlier(id)).semel, "executed");
  for (const seq of [1, 2]) assert.equal((await placed(seq)).semel, "executed");
  await own.restart();

  const before = await counts();
  const answers = [];
  for (const id of ids) answers.push(await earlier(id));
  for (const seq of [1, 2, 1, 2]) answers.push(await placed(seq));
  replayed(answers);
  replayed((await batch()).json);
  replayed(await Promise.all(ids.map(earlier)));
  const after = await counts();
  assert.equal(after.requests - before.requests, 2 * ids.length + 4 + 2, "nobody is asked for twice");
  assert.ok(after.syncs - before.syncs < ids.length, `${after.syncs - before.syncs} commits, of which one alone in its own has two`);

  // The first new place of the session may have ended the object before. Once it has run, none after it may have.
  for (const seq of [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]) assert.equal((await placed(seq)).semel, "executed");
  const { syncs } = await counts();
  assert.ok(syncs - after.syncs < 15, `${syncs - after.syncs} commits for ten places`);
});

test("code that V8 has optimized resumes each gathered change in its own request", LIMIT, async (t) => {
  // V8 optimises as early as it can, and in the foreground, so that the result doesn't depend on the speed of the machine.
  const soon = ["--no-maglev", "--invocation-count-for-turbofan=20", "--minimum-invocations-after-ic-update=1", "--no-concurrent-recompilation"];
  const optimised = await serve((end) => t.after(end), "probe", {}, { v8Flags: soon });
  const path = "/keyed/optimised/echo";
  // `load` fails on any answer that is no success.
  const { took } = await load(optimised.url, { connections: 64, requests: 3_000, of: () => deposit(path) });
  assert.equal(took.length, 3_000);
  assert.doesNotMatch(await printed(optimised), /different request/);
});

test("without handle_cross_request_promise_resolution each change is a call of its own", LIMIT, async (t) => {
  const old = await serve((end) => t.after(end), "probe", {}, { compatibilityFlags: ["no_handle_cross_request_promise_resolution"] });
  await change("old", { on: old });
  const answers = await Promise.all(times(40, () => change("old", { on: old })));
  assert.ok(answers.every(({ semel }) => semel === "executed"));
  assert.deepEqual([countsOf(await change("old", { on: old }))].map(({ calls, requests }) => [calls, requests]), [[42, 42]]);
});

const BODIES = [Buffer.alloc(0), Buffer.from([0]), Buffer.from([0, 255, 0]), Buffer.from("\u00e9\0x"), Buffer.alloc(3_000, " "), Buffer.from("-1")];
/** Ids in every form that the header allows, with every special character. */
const idsOf = (name) => [name, `"${name}"`, `" ${name} "`, `"\\"${name}\\\\'; --"`, `"${name.padEnd(255, "z")}"`];

test("odd ids and bodies that are written together replay unchanged, and each is acknowledged by a later request", LIMIT, async (t) => {
  const server = await serve((end) => t.after(end), "probe");
  const send = ({ id, body, ...more }) => server.send("POST", "/echo", { id, body, key: '"odd"', firstSent: nowS(), ...more });
  const statuses = async (calls) => [...new Set((await Promise.all(calls.map(send))).map(({ semel }) => semel))];
  for (const count of [1, 2, 65, 129]) {
    const made = (round) => times(count, (n) => ({ id: idsOf(`${count}-${round}-${n}`)[n % 5], body: BODIES[n % BODIES.length], headers: { "x-n": String(n % 3) } }));
    const [first, second] = [made(1), made(2)];
    const untilMs = Date.now() + 30_000;
    const timed = (calls) => calls.map((call) => ({ ...call, deadline: untilMs }));
    const acking = timed(second).map((call, n) => ({ ...call, ack: `${first[n].id.startsWith('"') ? first[n].id : `"${first[n].id}"`};until=${untilMs}` }));
    assert.deepEqual(await statuses(timed(first)), ["executed"]);
    assert.deepEqual(await statuses(acking), ["executed"]);
    if (count > 64) await server.restart();
    assert.deepEqual(await statuses(first), ["acknowledged"]);
    for (const [n, { semel, text, headers }] of (await Promise.all(second.map(send))).entries()) {
      assert.deepEqual([semel, text, headers.get("x-n")], ["replayed", BODIES[n % BODIES.length].toString(), String(n % 3)], second[n].id);
    }
  }
});

test("the largest outcome and two cancellations that answer with it, in one commit, fit into rows of the platform", LIMIT, async () => {
  const body = Buffer.alloc(1 << 20, 0xff);
  assert.equal((await server.send("POST", "/echo", { id: "largest", key: '"large"', body })).semel, "executed");
  const path = "/semel/v1/keys/large/cancel";
  const elements = ["one", "other"].map((id) => ({ id, method: "POST", path, body: JSON.stringify({ id: "largest" }) }));
  const cancelled = () => server.send("POST", "/semel/v1/keys/large/batch", { body: JSON.stringify(elements) });
  const [once, again] = [(await cancelled()).json, (await cancelled()).json];
  assert.deepEqual([once, again].map((answers) => answers.map(({ headers }) => headers["semel-status"])), [["executed", "executed"], ["replayed", "replayed"]]);
  for (const answer of [...once, ...again]) assert.equal(JSON.parse(answer.body).outcome.body.base64, body.toString("base64"));
});
