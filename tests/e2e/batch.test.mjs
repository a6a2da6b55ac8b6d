// Batches over HTTP and over sockets on workerd, with the probe's handler, which fails in the way that a request asks for: crashes, rates, rights,
// kills.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { serve } from "./server.mjs";
import { AUDIENCE, jwks, signer } from "./tokens.mjs";
import { open } from "./websocket.mjs";

const SIGNER = signer("HS256");
const BURST = 300;
const vars = { SEMEL_OPEN: "false", SEMEL_JWT_KEYS: jwks(SIGNER), SEMEL_JWT_AUDIENCE: AUDIENCE, SEMEL_RATE_BURST: String(BURST), SEMEL_RATE_PER_SECOND: "1", SEMEL_LOG_SAMPLE: "1" };
const server = await serve(after, "probe", vars);
const token = (sub, claims) => SIGNER.token({ sub, ...claims });

const pathOf = (key, what) => `/semel/v1/keys/${key}/${what}`;
const batch = (key, elements, { as = token(key), ...more } = {}) => server.send("POST", pathOf(key, "batch"), { as, body: JSON.stringify(elements), ...more });
const change = (path, more) => ({ id: randomUUID(), method: "POST", path, ...more });
const statusesOf = (answers) => answers.map(({ headers }) => headers["semel-status"]);
const statuses = (answer) => statusesOf(answer.json);
/** How many changes of a key were kept. The read that asks counts itself too, but that is rolled back. */
const runs = async (key) => Number((await server.send("GET", "/runs", { key: `"${key}"`, as: token(key) })).text) - 1;

/** Opens a socket and authenticates on it. */
async function connect(key, as = token(key)) {
  const { socket } = await open(server.url, pathOf(key, "socket"));
  socket.send(JSON.stringify({ authorization: `Bearer ${as}` }));
  let frame = 0;
  socket.ask = async (requests) => {
    socket.send(JSON.stringify({ frame: ++frame, requests }));
    return JSON.parse(await socket.next()).answers;
  };
  return socket;
}

test("a batch answers its requests in their order, each as if sent alone, with headers of its own", async () => {
  const id = randomUUID();
  const answer = await batch("order", [change("/echo", { id, body: "h\u{e9}llo", headers: { "x-a": "1" } }), { method: "GET", path: "/runs" }, change("/echo", { id, body: "h\u{e9}llo" }), change("/gzip"), { method: "HEAD", path: "/runs" }]);
  assert.deepEqual([answer.status, answer.semel, answer.headers.get("semel-key"), answer.headers.get("cache-control")], [200, "executed", '"order"', "no-store"]);
  assert.equal(answer.headers.get("content-type"), "application/json");
  assert.ok(Math.abs(Number(answer.headers.get("semel-now")) - Date.now()) < 60_000);
  assert.deepEqual(statuses(answer), ["executed", "read", "replayed", "executed", "read"]);
  const [echo, read, replay, gzip, head] = answer.json;
  assert.deepEqual([echo.body, echo.headers["x-a"], echo.headers["semel-key"]], ["h\u{e9}llo", "1", '"order"']);
  assert.deepEqual([replay.status, replay.body], [echo.status, echo.body]);
  assert.deepEqual([read.body, head.body], ["2", ""]);
  assert.equal(Buffer.from(gzip.body.base64, "base64").subarray(0, 2).toString("hex"), "1f8b");
  const single = await server.send("POST", "/echo", { id, key: '"order"', as: token("order"), body: Buffer.from("h\u{e9}llo") });
  assert.deepEqual([single.semel, single.text], ["replayed", "h\u{e9}llo"]);
});

test("a path in a batch names the same request as the path sent alone, whatever characters it has", async () => {
  const inUrls = Array.from({ length: 94 }, (_, n) => String.fromCharCode(33 + n)).filter((letter) => !"#%/?\\".includes(letter));
  const elements = inUrls.map((letter) => change(`/echo/a${letter}b?c${letter}d`));
  const answer = await batch("paths", elements);
  assert.deepEqual(new Set(statuses(answer)), new Set(["executed"]));
  for (const [n, { id, path }] of elements.entries()) {
    const single = await server.send("POST", path, { id, key: '"paths"', as: token("paths") });
    assert.deepEqual([single.semel, single.headers.get("x-path")], ["replayed", answer.json[n].headers["x-path"]], path);
  }
});

test("if a request of a batch crashes the module, each runs alone, and only the one that crashes is poisoned", async () => {
  const [before, panics, after] = [change("/echo"), change("/panic"), change("/echo")];
  const elements = [before, panics, { method: "GET", path: "/runs" }, after];
  const answer = await batch("crash", elements);
  assert.deepEqual([answer.headers.get("content-type"), ...statuses(answer)], ["application/json", "executed", "rolled-back", "read", "executed"]);
  assert.equal(await runs("crash"), 2);
  assert.deepEqual(statuses(await batch("crash", elements)), ["replayed", "rolled-back", "read", "replayed"]);
  const socket = await connect("crash");
  assert.deepEqual(statusesOf(await socket.ask(elements)), ["replayed", "poisoned", "read", "replayed"]);
  assert.deepEqual(statusesOf(await socket.ask(elements)), ["replayed", "poisoned", "read", "replayed"]);
  assert.equal(await runs("crash"), 2);
  socket.destroy();
});

test("a request that also crashes the count of its crash gets a whole problem, and its neighbours run", async () => {
  const answer = await batch("uncounted", [change("/echo"), change("/rule-panics"), change("/echo")]);
  assert.deepEqual(statuses(answer), ["executed", "unavailable", "executed"]);
  const [, { status, headers, body }] = answer.json;
  assert.deepEqual([status, headers["semel-status"], headers["cache-control"]], [503, "unavailable", "no-store"]);
  assert.equal(headers["content-type"], "application/problem+json");
  assert.ok(Math.abs(Number(headers["semel-now"]) - Date.now()) < 60_000);
  const { code, executed, retry } = JSON.parse(body);
  assert.deepEqual([code, executed, retry], ["unavailable", "unknown", "same-id"]);
});

test("acknowledgements of a frame or batch count even if it runs one by one, and answers keep their places", async () => {
  const [held, panics] = [change("/echo"), change("/panic")];
  const socket = await connect("alone");
  assert.deepEqual(statusesOf(await socket.ask([held])), ["executed"]);
  socket.send(JSON.stringify({ frame: 77, requests: [panics, change("/echo", { body: "]}$&" })], acks: [held.id] }));
  const { frame, answers } = JSON.parse(await socket.next());
  assert.deepEqual([frame, statusesOf(answers), answers[1].body], [77, ["rolled-back", "executed"], "]}$&"]);
  assert.deepEqual(statusesOf(await socket.ask([held])), ["acknowledged"]);
  const acknowledged = await batch("alone", [panics, held], { ack: `"${held.id}"` });
  assert.deepEqual([acknowledged.status, ...statuses(acknowledged)], [200, "rolled-back", "acknowledged"]);
  socket.destroy();
});

test("a batch run one by one keeps the limit on its answers: one that doesn't fit has run, and a later small one fits", async () => {
  const large = Array.from({ length: 5 }, () => change("/large/900000"));
  const elements = [change("/panic"), ...large, change("/echo")];
  const answer = await batch("room", elements);
  assert.deepEqual(statuses(answer), ["rolled-back", ...Array(4).fill("executed"), "unavailable", "executed"]);
  assert.deepEqual(statuses(await batch("room", large.slice(4))), ["replayed"]);
  assert.equal(await runs("room"), 6);
});

test("a stack overflow in a frame is rolled back like any crash, and the socket goes on", async () => {
  const socket = await connect("overflow");
  assert.deepEqual(statusesOf(await socket.ask([change("/echo"), change("/overflow/1"), change("/fail"), change("/echo")])), ["executed", "rolled-back", "rolled-back", "executed"]);
  assert.deepEqual(statusesOf(await socket.ask([change("/echo")])), ["executed"]);
  assert.equal(await runs("overflow"), 3);
  socket.destroy();
});

/**
 * Stops the Worker's clock until the server is restarted, and returns its time. To an object that starts meanwhile, a request first sent then is new,
 * however slow the machine is.
 */
async function present() {
  const { json: nowMs } = await server.send("POST", "/probe/clock", { body: "stands for 1000" });
  return Math.floor(nowMs / 1000);
}

/** Sends a batch whose last request never returns, and kills the server while that runs. What was counted before is durable by then. */
async function killedIn(key, elements) {
  // This request has the process start up now, so that the CPU time measured below is the spinning alone.
  await runs("warm");
  const answer = batch(key, elements).catch(() => undefined);
  const startedS = await server.cpu();
  const limit = Date.now() + 20_000;
  while ((await server.cpu()) < startedS + 0.5) {
    assert.ok(Date.now() < limit, "it spins");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await server.kill();
  assert.equal(await answer, undefined);
}

test("a suspect in a batch runs alone and is counted: the third end of the object poisons it, and no neighbour", async () => {
  const firstSent = Math.floor(Date.now() / 1000) - 60;
  const deadly = change("/spin", { firstSent });
  const neighbour = change("/echo", { firstSent });
  const elements = [neighbour, deadly, change("/echo", { firstSent })];
  for (let time = 0; time < 3; time += 1) {
    await server.restart();
    await killedIn("deadly", elements);
  }
  await server.restart();
  assert.deepEqual(statuses(await batch("deadly", elements)), ["replayed", "poisoned", "executed"]);
  assert.equal(await runs("deadly"), 2);
});

test("a suspect whose deadline passes while a batch runs one by one does not run, and says attempt-expired", async () => {
  await server.restart();
  // Each is a suspect: it may have crashed the object before. So its start is durable before it runs, and its outcome before the next one starts.
  const firstSent = Math.floor(Date.now() / 1000) - 60;
  const elements = Array.from({ length: 8 }, () => change("/echo", { firstSent }));
  await server.send("POST", "/probe/syncs", { body: "10000" });
  const [first, ...others] = statuses(await batch("late", elements, { deadline: Date.now() + 60_000 }));
  await server.send("POST", "/probe/syncs", { body: "0" });
  const late = others.slice(others.indexOf("attempt-expired"));
  assert.deepEqual([first, others.at(-1), new Set(late).size], ["executed", "attempt-expired", 1], others.join());
  assert.equal(await runs("late"), elements.length - late.length);
  const again = statuses(await batch("late", elements));
  assert.deepEqual(again, elements.map((_, n) => (n < elements.length - late.length ? "replayed" : "executed")));
  assert.equal(await runs("late"), elements.length);
});

test("a suspect that ran in a batch is not blamed for an end of the object that comes after it", async () => {
  const suspect = change("/echo", { firstSent: Math.floor(Date.now() / 1000) - 60 });
  for (let time = 0; time < 3; time += 1) {
    await server.restart();
    // `/spin` was first sent after the object started, so it is no suspect and its start is not counted. Only the sync after the suspect makes the
    // suspect's outcome durable before `/spin` runs.
    await killedIn("blamed", [suspect, change("/spin", { firstSent: await present() })]);
  }
  await server.restart();
  assert.deepEqual(statuses(await batch("blamed", [suspect])), ["replayed"]);
});

test("a batch without a valid token, of another principal, or beyond the token's rights has no effect", async () => {
  const [id, key] = [randomUUID(), "mine"];
  const elements = [change("/echo", { id })];
  assert.deepEqual(statuses(await batch(key, elements)), ["executed"]);
  for (const [as, status] of [[undefined, 401], ["x.y.z", 401], [token(key, { exp: 1 }), 401], [token(key, { semel: { keys: ["another"] } }), 403]]) {
    const headers = as === undefined ? {} : { authorization: `Bearer ${as}` };
    const answer = await server.send("POST", pathOf(key, "batch"), { headers, body: JSON.stringify(elements) });
    assert.equal(answer.status, status, answer.text);
    assert.equal(answer.headers.get("semel-key"), null);
  }
  const control = (what, body) => ({ id: randomUUID(), method: "POST", path: pathOf(key, what), body: JSON.stringify(body) });
  const look = { method: "GET", path: pathOf(key, `outcomes/${id}`) };
  const probing = [...elements, control("cancel", { id }), control("acks", { ids: [id] }), look];
  assert.deepEqual(statuses(await batch(key, probing, { as: token("mallory") })), ["fingerprint-mismatch", "fingerprint-mismatch", "executed", "not-seen"]);
  const readOnly = token(key, { semel: { methods: ["GET"] } });
  assert.deepEqual(statuses(await batch(key, probing, { as: readOnly })), ["forbidden", "forbidden", "forbidden", "replayed"]);
  assert.equal(await runs(key), 1);
});

test("a client can't forge the router's header or the principal, in a request or in a batch", async () => {
  const asker = encodeURIComponent(JSON.stringify({ principal: "mine", grant: {}, ends_ms: null }));
  for (const forged of [asker, "", "%7B"]) {
    const single = await server.send("POST", "/who", { id: randomUUID(), key: '"told"', as: token("mallory"), headers: { "semel-asker": forged } });
    assert.deepEqual([single.semel, single.text], ["executed", '("told", "mallory")']);
    const many = await batch("told", [change("/who")], { as: token("mallory"), headers: { "semel-asker": forged } });
    assert.equal(many.json[0].body, '("told", "mallory")');
  }
  const smuggled = [{ "semel-principal": '"mine"' }, { "x-a": '1\nsemel-principal:"mine"' }, { authorization: "Bearer x" }];
  for (const headers of smuggled) assert.equal((await batch("told", [change("/who", { headers })], { as: token("mallory") })).semel, "body-invalid");
});

test("a batch that can't be read or is too large runs nothing, and says so", async () => {
  const good = change("/echo");
  const send = (body) => server.send("POST", pathOf("bad", "batch"), { as: token("bad"), body });
  for (const body of ["", "{}", "[1]", "[[]]", "x", "[".repeat(5_000), JSON.stringify([good, { id: "x" }])]) {
    const answer = await send(body);
    assert.deepEqual([answer.status, answer.semel, answer.json.executed], [400, "body-invalid", "no"], body.slice(0, 20));
  }
  for (const body of [JSON.stringify(Array(257).fill(good)), JSON.stringify([good, " ".repeat(1 << 20)])]) assert.equal((await send(body)).semel, "too-large");
  const empty = await send("[]");
  assert.deepEqual([empty.headers.get("content-type"), empty.json], ["application/json", []]);
  assert.equal(await runs("bad"), 0);
});

test("a batch or a frame counts against its principal's rate with as many requests as it holds", async () => {
  const elements = Array.from({ length: (BURST * 2) / 3 }, () => change("/echo"));
  const whole = await batch("costly", elements);
  assert.deepEqual([whole.semel, whole.headers.get("content-type")], ["executed", "application/json"]);
  const socket = await connect("costly");
  const [more, some] = [await socket.ask(elements), await socket.ask(elements.slice(0, 10))];
  assert.deepEqual([...new Set(statusesOf(more))], ["rate-limited"]);
  assert.deepEqual([more.length, more[0].status, more[0].headers["retry-after"]], [elements.length, 429, "1"]);
  assert.deepEqual([...new Set(statusesOf(some))], ["replayed"]);
  const refused = await batch("costly", elements);
  assert.deepEqual([refused.status, refused.semel, refused.json.executed], [429, "rate-limited", "no"]);
  // A refusal by the Worker must not look as if the object had applied the acknowledgements.
  assert.equal(refused.headers.get("semel-key"), null);
  assert.deepEqual(statuses(await batch("costly", elements.slice(0, 5), { as: token("another") })), Array(5).fill("fingerprint-mismatch"));
  assert.equal(await server.send("GET", "/runs", { key: '"costly"', as: token("another") }).then(({ text }) => text), String(elements.length + 1));
  socket.destroy();
});

test("a frame or batch refused for its rate tells the key's clock, which does not go back with the machine's", async () => {
  const putOn = (ms) => server.send("POST", "/probe/clock", { body: String(ms) });
  const socket = await connect("clock");
  const ask = async (frame) => {
    socket.send(JSON.stringify({ frame, requests: Array(200).fill({ method: "GET", path: "/runs" }) }));
    const { now, answers } = JSON.parse(await socket.next());
    return [answers[0].status, now, Number(answers[0].headers["semel-now"])];
  };
  await putOn(3_600_000);
  const [status, nowMs] = await ask(1);
  assert.equal(status, 200);
  await putOn(-3_600_000);
  assert.deepEqual(await ask(2), [429, nowMs, nowMs]);
  // In this second the Worker lets one batch in, and the object refuses all others.
  for (const semel of ["executed", "rate-limited"]) {
    const answer = await batch("clock", Array(200).fill({ method: "GET", path: "/runs" }), { as: token("another-clock") });
    assert.deepEqual([answer.semel, Number(answer.headers.get("semel-now"))], [semel, nowMs]);
  }
  socket.destroy();
});

test("a batch that is killed while its last request runs keeps nothing of the others", { timeout: 60_000 }, async () => {
  assert.deepEqual(statuses(await batch("middle", [change("/echo")])), ["executed"]);
  // These are no suspects, so they share one commit. A suspect may be older than the object, or has a first-sent in the future, and runs alone.
  const firstSent = Math.floor(Date.now() / 1000);
  const elements = Array.from({ length: 249 }, () => change("/echo", { firstSent }));
  await killedIn("middle", [...elements, change("/spin", { firstSent })]);
  await server.restart();
  assert.equal(await runs("middle"), 1);
  assert.deepEqual(new Set(statuses(await batch("middle", elements))), new Set(["executed"]));
  assert.equal(await runs("middle"), 250);
});

test("250 requests of one batch are one commit: after a kill all or none are kept, and each runs once in the end", { timeout: 60_000 }, async () => {
  for (let round = 0; round < 4; round += 1) {
    const firstSent = await present();
    const key = `killed-${round}`;
    const elements = Array.from({ length: 250 }, () => change("/echo", { firstSent }));
    const answer = batch(key, elements).catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 10 * round));
    await server.restart();
    const answered = await answer;
    const kept = await runs(key);
    assert.ok(kept === 250 || (kept === 0 && answered === undefined), `${kept} are kept`);
    assert.equal(new Set(statuses(await batch(key, elements))).size, 1);
    assert.equal(await runs(key), 250);
  }
});

test("an answer on a socket comes after its commit is durable: a kill right after it loses nothing", { timeout: 60_000 }, async () => {
  for (let round = 1; round <= 6; round += 1) {
    const socket = await connect("durable");
    // Several are under way at the kill: those without an answer may have run or not.
    const elements = Array.from({ length: 5 }, () => change("/echo"));
    const answered = new Set();
    elements.forEach((element, frame) => socket.send(JSON.stringify({ frame, requests: [element] })));
    for (let count = 0; count < 1 + (round % 4); count += 1) {
      const { frame, answers } = JSON.parse(await socket.next());
      assert.deepEqual(statusesOf(answers), ["executed"]);
      answered.add(elements[frame].id);
    }
    await server.restart();
    assert.equal((await socket.closed)[0], 1006);
    for (const { id } of elements) {
      const again = await server.send("POST", "/echo", { id, key: '"durable"', as: token("durable") });
      assert.ok(again.semel === "replayed" || (again.semel === "executed" && !answered.has(id)), `${again.semel}, answered: ${answered.has(id)}`);
    }
    assert.equal(await runs("durable"), 5 * round);
  }
});
