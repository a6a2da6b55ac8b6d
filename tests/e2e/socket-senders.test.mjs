// Who may be on a socket, on workerd: origins, the first message, other principals, tokens that end, and senders of whom it is not known yet who they
// are. `socket.test.mjs` has what goes over sockets.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { ADMIN_TOKEN, serve } from "./server.mjs";
import { APP, STRANGERS, alice, deposit, echo, frame, hello, path, seconds, sockets, statuses, token } from "./socket.mjs";
import { jwks, signer } from "./tokens.mjs";
import { open } from "./websocket.mjs";

/** Signs with a key that an issuer serves only when a test lets it. */
const LATE = signer("ES256", "late");
const LEEWAY_S = 30;
const { server, vars, account, connect, probing } = await sockets(after);

/**
 * An issuer that does not answer until the test does, and a probe that gets LATE's key from it. `asked` resolves to the issuer's response. For the
 * probe no time passes, so neither clients that wait nor clients that are silent run out of time.
 */
async function withoutKeys(t) {
  const silent = createServer();
  await new Promise((resolve) => silent.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    silent.closeAllConnections();
    silent.close();
  });
  const asked = new Promise((resolve) => silent.once("request", (_, response) => resolve(response)));
  const probe = await probing(t, { SEMEL_JWKS_URL: `http://127.0.0.1:${silent.address().port}/` });
  await probe.put("timers", 2_000);
  await probe.put("clock", "stands for 1000000");
  return { ...probe, asked };
}

test("only a listed origin, the Worker's own, and a client without an Origin may open a socket", async () => {
  const { host, origin } = new URL(server.url);
  for (const allowed of [APP, origin, undefined]) {
    const { status, socket } = await open(server.url, path("origin"), allowed && { origin: allowed });
    assert.equal(status, 101, allowed);
    socket.destroy();
  }
  for (const other of ["https://evil.example", `${APP}.evil.example`, "null", `http://${host}.evil.example`]) {
    const { status, headers } = await open(server.url, path("origin"), { origin: other });
    assert.deepEqual([status, headers["semel-status"], headers["access-control-allow-origin"]], [403, "forbidden", undefined], other);
  }
  const plain = await server.send("GET", path("origin"), { as: alice });
  assert.deepEqual([plain.status, plain.semel], [404, "not-found"]);
  assert.equal((await server.send("GET", path("origin"))).status, 401);
  const { status } = await open(server.url, "/accounts/origin/socket", { authorization: `Bearer ${alice}` });
  assert.equal(status, 404, "no other path opens one");
});

test("a socket whose first message is invalid or not allowed is closed with a code, and nothing behind it runs", async () => {
  const cases = [
    ["{}", 4401, "unauthorized"],
    [hello("x.y.z"), 4401, "unauthorized"],
    [hello(token("alice", { exp: seconds() - 60 })), 4401, "unauthorized"],
    [hello(signer("ES256").token({ sub: "alice" })), 4401, "unauthorized"],
    [hello(alice, { principal: "bob" }), 4403, "forbidden"],
    [hello(token("alice", { semel: { keys: ["accounts/another"] } })), 4403, "forbidden"],
    [hello(ADMIN_TOKEN), 4403, "forbidden"],
    [JSON.stringify({ authorization: "Basic YTpi" }), 4401, "unauthorized"],
    [JSON.stringify({ authorization: `Bearer ${alice}`, more: 1 }), 4400, "body-invalid"],
    ["hello", 4400, "body-invalid"],
    [frame(1, []), 4400, "body-invalid"],
    [Buffer.from(hello()), 4400, "body-invalid"],
    [hello(alice) + " ".repeat(1 << 14), 4413, "too-large"],
    [" ".repeat((1 << 20) + 1), 4413, "too-large"],
  ];
  for (const [first, code, reason] of cases) {
    const socket = await connect("shut", first);
    for (let number = 0; number < 3; number += 1) socket.send(frame(number, [deposit("shut")]));
    socket.send(hello());
    socket.send(frame(9, [deposit("shut")]));
    assert.deepEqual(await socket.closed, [code, reason], String(first).slice(0, 80));
    socket.destroy();
  }
  assert.equal((await account("shut")).balance, 0);
  const bob = await connect("shut", hello(alice, { principal: "alice" }));
  assert.deepEqual(statuses(await bob.ask(1, [deposit("shut")])), ["executed"]);
  bob.destroy();
});

test("the log has why the sender on a socket is refused, which no close code says, and nothing of the token", async (t) => {
  const logging = await serve((end) => t.after(end), "ledger", { ...vars, SEMEL_LOG_SAMPLE: "1" });
  const refused = token("alice", { aud: "another" });
  const { socket } = await open(logging.url, path("refused"));
  socket.send(hello(refused));
  assert.deepEqual(await socket.closed, [4401, "unauthorized"]);
  const { key, time, ...line } = JSON.parse(await logging.line(/unauthorized/));
  assert.deepEqual(line, { level: "info", by: "object", method: "GET", code: "unauthorized", status: 401, ms: 0, message: "the token is for another audience (aud)" });
  assert.match(key, /^[0-9a-f]{16}$/);
  for (const part of refused.split(".")) assert.ok(!logging.log.includes(part));
});

test("on a socket of its own another principal learns and changes nothing, and a token for reads changes nothing", async () => {
  const id = randomUUID();
  await server.deposit("private", 1, { id, as: alice });
  const control = (what) => `/semel/v1/keys/accounts%2Fprivate/${what}`;
  const probing = [deposit("private", 1, id), { method: "GET", path: control(`outcomes/${id}`) }, { id: randomUUID(), method: "POST", path: control("cancel"), body: JSON.stringify({ id }) }];
  const mallory = await connect("private", hello(token("mallory")));
  assert.deepEqual(statuses(await mallory.ask(1, probing, { acks: [id] })), ["fingerprint-mismatch", "not-seen", "fingerprint-mismatch"]);
  const reader = await connect("private", hello(token("alice", { semel: { methods: ["GET"] } })));
  assert.deepEqual(statuses(await reader.ask(1, [deposit("private"), { method: "GET", path: "/accounts/private" }])), ["forbidden", "read"]);
  assert.deepEqual(statuses(await reader.ask(2, [{ method: "GET", path: "/accounts/private" }], { acks: [id] })), ["forbidden"]);
  assert.deepEqual(statuses(await reader.ask(3, [], { acks: [id] })), ["forbidden"], "somebody has to be told");
  assert.deepEqual(statuses(await reader.ask(4, [deposit("another")])), ["key-mismatch"]);
  assert.equal((await server.deposit("private", 1, { id, as: alice })).semel, "replayed");
  assert.equal((await account("private")).balance, 1);
  for (const socket of [mallory, reader]) socket.destroy();
});

test("a socket is closed when its token ends, whether it is idle or busy", { timeout: 30_000 }, async (t) => {
  const { ours, put, runs } = await probing(t);
  // The probe's clock is an hour behind until all have arrived, however slowly. Its alarms go by the machine's clock.
  const hourMs = 3_600_000;
  await put("clock", -hourMs);
  const exp = seconds() - LEEWAY_S + 3;
  const [idle, busy, lasting] = [await ours("ends", hello(token("alice", { exp }))), await ours("ends", hello(token("alice", { exp }))), await ours("ends")];
  for (const socket of [idle, busy, lasting]) assert.deepEqual(statuses(await socket.ask(1, [echo()])), ["executed"]);
  await put("clock", hourMs);
  const endsMs = Math.max((exp + LEEWAY_S) * 1000, Date.now());
  const ended = busy.closed.then((closed) => [closed, Date.now()]);
  const asks = async (number = 2) => (await busy.ask(number, [{ method: "GET", path: "/echo" }]), asks(number + 1));
  await assert.rejects(asks(), /4401/);
  const [closed, atMs] = await ended;
  assert.deepEqual(closed, [4401, "unauthorized"]);
  assert.deepEqual(await idle.closed, [4401, "unauthorized"]);
  assert.ok(atMs - endsMs > -100 && atMs - endsMs < 5_000, `${atMs - endsMs} ms late`);
  assert.deepEqual(statuses(await lasting.ask(2, [echo()])), ["executed"]);
  assert.equal(await runs("ends"), 4);
  lasting.destroy();
});

test("a token may last longer than the platform's alarms can, and the log has nothing about an alarm", async (t) => {
  const server = await serve((end) => t.after(end), "ledger", { ...vars, SEMEL_LOG_SAMPLE: "1" }, { reachesLocal: true });
  const { socket } = await open(server.url, path("lasting"));
  socket.send(hello(token("alice", { exp: 9_999_999_999 })));
  const id = randomUUID();
  socket.send(frame(1, [deposit("lasting", 1, id)]));
  assert.deepEqual(statuses(JSON.parse(await socket.next())), ["executed"]);
  // Nor may the log say anything of it after this request.
  const last = randomUUID();
  assert.equal((await server.deposit("lasting", 1, { id: last, as: alice })).semel, "executed");
  await server.lineOf(last);
  assert.ok(server.log.includes(id) && !server.log.includes("alarm"), server.log);
  socket.destroy();
});

test("frames wait until their sender is known; a socket that sends more than may wait is closed, and known ones go on", { timeout: 60_000 }, async (t) => {
  const { ours, runs, asked } = await withoutKeys(t);
  const late = () => hello(LATE.token({ sub: "alice" }));
  const padding = " ".repeat(1_000_000);
  const [patient, flood] = [await ours("patient", late()), await ours("flood", late())];
  for (let number = 0; number < 7; number += 1) patient.send(`${frame(number, [echo()])}${padding}`);
  for (let number = 0; number < 9; number += 1) flood.send(`${frame(number, [echo()])}${padding}`);
  assert.deepEqual(await flood.closed, [4429, "rate-limited"]);
  // All sockets without a known sender together have no more room than one socket. They are in the way neither of known senders nor of new ones.
  const known = await ours("crowd");
  assert.deepEqual(statuses(await known.ask(1, [echo()])), ["executed"]);
  const crowd = await Promise.all(Array.from({ length: 5 }, () => ours("crowd", late())));
  // Each message counts as 1 KiB, so these fill all the room.
  for (const socket of crowd) for (let number = 0; number < 8_000; number += 1) socket.send("x");
  assert.deepEqual(await Promise.any(crowd.map(({ closed }) => closed)), [4429, "rate-limited"]);
  assert.deepEqual(statuses(await known.ask(2, [echo()])), ["executed"]);
  const newcomer = await ours("crowd");
  assert.deepEqual(statuses(await newcomer.ask(1, [echo()])), ["executed"]);
  for (const socket of [known, newcomer, ...crowd]) socket.destroy();
  (await asked).end(jwks(LATE));
  for (let number = 0; number < 7; number += 1) {
    const answer = JSON.parse(await patient.next());
    assert.deepEqual([answer.frame, statuses(answer)], [number, ["executed"]]);
  }
  assert.deepEqual([await runs("patient"), await runs("flood")], [7, 0]);
  for (const socket of [patient, flood]) socket.destroy();
});

test("while a hundred senders are being checked, one more socket is refused with 503 and Retry-After", { timeout: 30_000 }, async (t) => {
  const { opened, asked } = await withoutKeys(t);
  const another = () => opened("full", { origin: APP });
  const waiting = await Promise.all(Array.from({ length: STRANGERS }, async () => (await another()).socket));
  for (const socket of waiting) socket.send(hello(LATE.token({ sub: "alice" })));
  const response = await asked;
  // The first frames of a hundred connections arrive in any order. Until all are there, a silent socket still makes room, and the key is not full.
  let refused;
  for (let tries = 0; tries < 100 && refused?.status !== 503; tries += 1) {
    refused = await another();
    refused.socket?.send(hello(LATE.token({ sub: "alice" })));
    if (refused.socket) waiting.push(refused.socket);
  }
  assert.deepEqual([refused.status, refused.headers["semel-status"], refused.headers["retry-after"], refused.headers["access-control-allow-origin"]], [503, "unavailable", "1", APP]);
  response.end(jwks(LATE));
  const last = waiting.at(-1);
  last.send(frame(1, [echo()]));
  assert.deepEqual(statuses(JSON.parse(await last.next())), ["executed"]);
  assert.equal((await another()).status, 101);
  for (const socket of waiting) socket.destroy();
});
