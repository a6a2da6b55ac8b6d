// A deployment in front of an HTTP API: each request is sent once, and the API's answer is the outcome.
// `upstream-doubt.test.mjs` has requests whose answer is lost.

import assert from "node:assert/strict";
import { createHash, randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { deflateSync, gzipSync } from "node:zlib";
import { until } from "./lossy.mjs";
import { otherSide } from "./other-side.mjs";
import { HASHED, front, order, settled } from "./upstream.mjs";

const other = await otherSide(after);
const server = await front(after, other);

test("a request is sent upstream once, and its answer is the outcome", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  const first = await order(server, "report", ref, { id });
  assert.deepEqual([first.status, first.semel, first.json], [201, "executed", { ref, times: 1 }]);
  assert.equal(first.headers.get("x-from"), "the other side");
  assert.equal(first.headers.get("set-cookie"), null);
  const again = await order(server, "report", ref, { id });
  assert.deepEqual([again.status, again.semel, again.text], [201, "replayed", first.text]);
  assert.equal(other.made.get(ref), 1);
});

test("headers of the connection and cookies of the client are not passed upstream, and the id and principal are", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  const headers = { cookie: "session=1", "x-mine": "kept", "cf-connecting-ip": "1.2.3.4", traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", prefer: "wait=5", forwarded: "for=1" };
  await order(server, "report", ref, { id, as: "alice", headers });
  const sent = other.requests.find(({ body }) => body.includes(ref)).headers;
  assert.equal(sent["idempotency-key"], id);
  assert.equal(sent["x-mine"], "kept");
  assert.equal(sent["semel-principal"], '"alice"');
  assert.equal(sent.authorization, "Bearer of-the-other-side");
  assert.equal(sent.traceparent, headers.traceparent);
  for (const name of ["cookie", "cf-connecting-ip", "prefer", "forwarded", "semel-first-sent"]) assert.equal(sent[name], undefined, name);
  // No cache may answer: it could say that something is missing which is there by now.
  assert.equal(sent["cache-control"], "no-cache");
});

test("a header that a server may take for one that is not passed upstream is not passed either", async () => {
  const ref = randomUUID();
  const names = ["semel_principal", "semel_key", "Idempotency_Key", "x_forwarded_for", "Proxy_Authorization", "cf_connecting-ip", "True-Client-IP", "X-HTTP-Method-Override", "X-HTTP-Method", "X_Method_Override", "X-Original-URL", "X_Rewrite_URL", "X-Original-Host", "X-Host", "X-HTTP-Host-Override", "X-Client-IP", "Client_IP", "X-Cluster-Client-IP", "semel.principal", "X.Forwarded~For", "X+HTTP-Method'Override"];
  await order(server, "report", ref, { as: "alice", headers: { ...Object.fromEntries(names.map((name) => [name, "bob"])), x_mine: "kept", "x.mine": "kept" } });
  const sent = other.requests.find(({ body }) => body.includes(ref)).headers;
  for (const name of names) assert.equal(sent[name.toLowerCase()], undefined, name);
  assert.deepEqual([sent.x_mine, sent["x.mine"], sent["semel-principal"]], ["kept", "kept", '"alice"']);
});

test("bodies of 16 MiB at most wait for a turn: more requests are locked at once, and room is free again afterwards", async () => {
  const large = (n) => server.send("POST", "/report/orders", { id: randomUUID(), body: JSON.stringify({ ref: randomUUID(), n, filler: "x".repeat(1_000_000) }), headers: { "content-type": "application/json", prefer: "wait=20" } });
  for (let time = 0; time < 2; time += 1) {
    let finish;
    const arrived = new Promise((resolve) => other.trouble.push((response, status, body) => resolve((finish = () => response.writeHead(status).end(body)))));
    const first = order(server, "report", randomUUID());
    await arrived;
    const all = Array.from({ length: 20 }, (_, n) => large(n));
    const refused = [];
    while (refused.length < 4) refused.push(await Promise.race(all.filter((one) => !refused.some(({ of }) => of === one)).map((one) => one.then((answer) => ({ answer, of: one })))));
    assert.deepEqual(refused.map(({ answer }) => answer.semel), Array(4).fill("locked"));
    finish();
    assert.equal((await first).semel, "executed");
    const ended = (await Promise.all(all)).map(({ semel }) => semel);
    assert.deepEqual([ended.filter((semel) => semel === "executed").length, ended.filter((semel) => semel === "locked").length], [16, 4]);
  }
});

test("256 requests at most wait for a turn: more are locked at once, and room is free again afterwards", async () => {
  for (let time = 0; time < 2; time += 1) {
    let finish;
    const arrived = new Promise((resolve) => other.trouble.push((response, status, body) => resolve((finish = () => response.writeHead(status).end(body)))));
    const first = order(server, "report", randomUUID());
    await arrived;
    const heard = [];
    const all = Array.from({ length: 260 }, () => order(server, "report", randomUUID(), { headers: { prefer: "wait=20" } }).then(({ semel }) => heard.push(semel)));
    await until(() => heard.length === 4, "four are answered");
    assert.deepEqual(heard, Array(4).fill("locked"));
    finish();
    assert.equal((await first).semel, "executed");
    await Promise.all(all);
    assert.deepEqual([heard.length, heard.filter((semel) => semel === "executed").length], [260, 256]);
  }
});

test("a read is passed upstream, and is answered as read", async () => {
  const ref = randomUUID();
  const before = await server.send("GET", `/report/orders/${ref}`);
  assert.deepEqual([before.status, before.semel], [404, "read"]);
  await order(server, "report", ref);
  const found = await server.send("GET", `/report/orders/${ref}`);
  assert.deepEqual([found.status, found.json], [200, { ref, times: 1 }]);
});

test("slow reads do not keep changes of their key from being sent, and what they acknowledge is acknowledged", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  const held = [];
  const path = "/report/orders";
  await order(server, "report", ref, { id });
  other.heldReads = Array(8).fill((finish) => held.push(finish));
  const reads = Array.from({ length: 8 }, (_, n) => server.send("GET", `${path}/${ref}`, { headers: { "semel-key": '"report%2Forders"', ...(n === 0 && { "semel-ack": `"${id}"` }) } }));
  await until(() => held.length === 8, "all are under way");
  assert.equal((await order(server, "report", randomUUID())).status, 201);
  assert.equal((await order(server, "report", ref, { id })).semel, "acknowledged");
  for (const finish of held) finish();
  const found = await Promise.all(reads);
  assert.deepEqual(found.map(({ status, semel, json }) => [status, semel, json]), Array(8).fill([200, "read", { ref, times: 1 }]));
  // The key has applied it, so nobody has to acknowledge it again.
  assert.deepEqual(found.map(({ headers }) => headers.get("semel-key")), ['"report/orders"', ...Array(7).fill(null)]);
});

test("a read that can't be sent is upstream-unreachable, one that is late is unavailable, and the next is answered", async () => {
  const [unreached, slow] = await Promise.all([front(after, { url: "http://127.0.0.1:9" }, { SEMEL_UPSTREAM_CONNECT_FIRST: "true" }), front(after, other, { SEMEL_UPSTREAM_TIMEOUT_SECONDS: "0.2" })]);
  const nothing = await unreached.send("GET", "/report/orders/one");
  assert.deepEqual([nothing.status, nothing.json.code, nothing.json.executed], [502, "upstream-unreachable", "no"]);
  let finish;
  other.heldReads.push((now) => (finish = now));
  const late = await slow.send("GET", "/report/orders/one");
  assert.deepEqual([late.status, late.json.code, late.json.executed], [503, "unavailable", "unknown"]);
  finish();
  // Asks until the machine is fast enough to answer in time.
  const { status, semel } = await settled(() => slow.send("GET", "/report/orders/one"));
  assert.deepEqual([status, semel], [404, "read"]);
});

test("attempts of one id at the same time are sent upstream once, and each gets the outcome", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  other.trouble.push((response, status, body) => setTimeout(() => response.writeHead(status).end(body), 300));
  const answers = await Promise.all(Array.from({ length: 8 }, () => order(server, "report", ref, { id })));
  assert.deepEqual(answers.map(({ status }) => status), Array(8).fill(201));
  assert.equal(answers.filter(({ semel }) => semel === "executed").length, 1);
  assert.equal(other.made.get(ref), 1);
});

test("a request that is under way can't be resolved: resolve waits for it and is locked, or finds its outcome", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  let finish;
  const arrived = new Promise((resolve) => other.trouble.push((response, status, body) => resolve((finish = () => response.writeHead(status).end(body)))));
  const first = order(server, "report", ref, { id });
  await arrived;
  const resolve = (verb = "resolve") => server.admin("POST", `keys/report%2Forders/records/${id}/${verb}`, { id: randomUUID(), body: '{"executed":"no"}' });
  // The path may be written in any way: a segment is decoded before it is compared.
  for (const refused of await Promise.all([resolve(), resolve("resolv%65")])) {
    assert.deepEqual([refused.status, refused.semel, refused.json?.executed, refused.json?.retry], [409, "locked", "no", "same-id"]);
    assert.match(refused.json.detail, /under way to the upstream/);
  }
  // A resolve that still waits when the request ends finds its outcome.
  const waits = resolve();
  // As a rule, the resolve has arrived when this is answered. The test can't wait longer, since the resolve waits for some seconds only.
  assert.equal((await server.send("GET", "/semel/v1/health")).status, 200);
  finish();
  assert.equal((await first).semel, "executed");
  const late = await waits;
  assert.deepEqual([late.status, late.semel], [400, "body-invalid"]);
  assert.equal((await order(server, "report", ref, { id })).semel, "replayed");
});

test("during a call a duplicate that stops waiting is in-flight, another request locked, and a late one attempt-expired", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  let finish;
  const arrived = new Promise((resolve) => other.trouble.push((response, status, body) => resolve((finish = () => response.writeHead(status).end(body)))));
  const first = order(server, "report", ref, { id });
  first.catch(() => {});
  await arrived;
  const impatient = { headers: { prefer: "wait=4" } };
  const [same, next] = await Promise.all([order(server, "report", ref, { id, ...impatient }), order(server, "report", randomUUID(), impatient)]);
  assert.deepEqual([same.status, same.json.code, same.json.executed], [409, "in-flight", "unknown"]);
  assert.deepEqual([next.status, next.json.code, next.json.executed], [409, "locked", "no"]);
  // An attempt whose deadline has passed is not made to wait: it would be answered only when the other side answers.
  const [late, tooLate] = [await order(server, "report", ref, { id, deadline: 0 }), await order(server, "report", randomUUID(), { deadline: 0 })];
  assert.deepEqual([late.semel, tooLate.semel, tooLate.status], ["in-flight", "attempt-expired", 408]);
  const cancelled = await server.send("POST", `/semel/v1/keys/${encodeURIComponent("report/orders")}/cancel`, { id: randomUUID(), body: JSON.stringify({ id }) });
  assert.deepEqual([cancelled.status, cancelled.json.code], [409, "in-flight"]);
  finish();
  assert.equal((await first).semel, "executed");
});

test("with CONNECT_FIRST a connection that can't be made is upstream-unreachable, not executed, and can be retried", async () => {
  const gone = await otherSide(after);
  const lonely = await front(after, gone, { SEMEL_UPSTREAM_CONNECT_FIRST: "true" });
  await gone.close();
  const [id, ref] = [randomUUID(), randomUUID()];
  const refused = await order(lonely, "report", ref, { id });
  assert.deepEqual([refused.status, refused.json.code, refused.json.executed], [502, "upstream-unreachable", "no"], lonely.log);
  await gone.listen();
  const sent = await order(lonely, "report", ref, { id });
  assert.deepEqual([sent.status, gone.made.get(ref)], [201, 1]);
});

for (const [what, body] of [["with a body", () => JSON.stringify({ ref: randomUUID() })], ["without a body", () => undefined]]) {
  test(`the runtime sends no request again if a reused connection breaks, whatever the method, ${what}`, async () => {
    const side = await otherSide(after);
    let connections = 0;
    side.onConnection = () => (connections += 1) > 0;
    const to = await front(after, side);
    for (const [n, method] of ["POST", "PUT", "PATCH", "DELETE"].entries()) {
      assert.equal((await order(to, "report", randomUUID())).semel, "executed");
      const sent = body();
      side.trouble.push((response) => response.socket.destroy());
      const answer = await to.send(method, "/report/orders", { id: randomUUID(), body: sent });
      assert.deepEqual([answer.status, answer.semel], [409, "outcome-unknown"], method);
      assert.deepEqual([connections, side.changes], [n + 1, 2 * (n + 1)], `${method}: it was the connection of the one before it`);
      assert.deepEqual([side.requests.at(-1).method, side.requests.at(-1).body], [method, sent ?? ""]);
    }
    // If the runtime had sent anything a second time, that would have arrived before this request.
    assert.equal((await order(to, "report", randomUUID())).semel, "executed");
    assert.equal(side.changes, 9);
  });
}

test("a header of an answer that can't be recorded is left out, and the request is not in doubt", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  const utf8 = (text) => Buffer.from(text).toString("latin1");
  const headers = { "content-disposition": utf8('attachment; filename="\u65e5.txt"'), "x-latin": "caf\u00e9", "x-name": utf8("caf\u00e9"), "x-mine": "kept" };
  other.trouble.push((response, status, body) => response.writeHead(status, headers).end(body));
  const send = () => order(server, "report", ref, { id });
  for (const answer of [await send(), await send()]) {
    const { status, text, headers: sent } = answer;
    assert.deepEqual([status, text], [201, JSON.stringify({ ref, times: 1 })]);
    assert.deepEqual(["content-disposition", "x-latin", "x-name", "x-mine"].map((name) => sent.get(name)), [null, null, headers["x-name"], "kept"]);
  }
});

test("an answer's header with a control character is left out, and the request is not in doubt", async () => {
  const ref = randomUUID();
  other.trouble.push((response, _status, body) => response.socket.end(`HTTP/1.1 201 Created\r\nconnection: close\r\nx-deletes: a\x7fb\r\nx-escapes: \x1b[1m\r\nx-mine: kept\r\ncontent-length: ${body.length}\r\n\r\n${body}`));
  const { status, semel, text, headers } = await order(server, "report", ref);
  assert.deepEqual([status, semel, text], [201, "executed", JSON.stringify({ ref, times: 1 })]);
  assert.deepEqual(["x-deletes", "x-escapes", "x-mine"].map((name) => headers.get(name)), [null, null, "kept"]);
});

test("of more headers than can be recorded the longest are left out, and the request is not in doubt", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  const many = Object.fromEntries(Array.from({ length: 80 }, (_, n) => [`x-${n}`, "m".repeat(100)]));
  const headers = { "content-type": "application/json", link: "l".repeat(7_500), "content-security-policy": "c".repeat(20_000), ...many };
  other.trouble.push((response, status, body) => response.writeHead(status, headers).end(body));
  const send = () => order(server, "report", ref, { id });
  for (const { status, text, headers: got } of [await send(), await send()]) {
    assert.deepEqual([status, text], [201, JSON.stringify({ ref, times: 1 })]);
    assert.deepEqual(["link", "content-security-policy"].map((name) => got.get(name)), [null, null]);
    const kept = Object.keys(many).filter((name) => got.get(name) === many[name]).length;
    assert.ok(kept >= 70 && kept < 80, `${kept} of many`);
    assert.match(got.get("content-type") ?? "", /json/);
  }
});

test("a content-encoding that the runtime does not decode stays on the answer", async () => {
  const ref = randomUUID();
  other.trouble.push((response, status, body) => response.writeHead(status, { "content-encoding": "deflate" }).end(deflateSync(body)));
  const answer = await order(server, "report", ref);
  assert.deepEqual([answer.headers.get("content-encoding"), answer.text], ["deflate", JSON.stringify({ ref, times: 1 })]);
  const zipped = randomUUID();
  other.trouble.push((response, status, body) => response.writeHead(status, { "content-encoding": "gzip" }).end(gzipSync(body)));
  const decoded = await order(server, "report", zipped);
  assert.deepEqual([decoded.headers.get("content-encoding"), decoded.text], [null, JSON.stringify({ ref: zipped, times: 1 })]);
});

test("equal requests without an id are sent once on a hashed route, and are key-missing on another", async () => {
  const body = JSON.stringify({ ref: randomUUID() });
  const send = () => server.send("POST", "/hashed/orders", { body, headers: { "content-type": "application/json" } });
  const [first, second] = await Promise.all([send(), send()]);
  assert.deepEqual([first.status, second.status], [201, 201]);
  assert.equal(other.made.get(JSON.parse(body).ref), 1);
  const without = await server.send("POST", "/report/orders", { body });
  assert.deepEqual([without.status, without.json.code], [400, "key-missing"]);
});

/** The id that Semel makes from a change to `HASHED`. */
function hashed(principal, body) {
  const hash = createHash("sha256");
  for (const part of [principal, "POST", HASHED.path, body].map((text) => Buffer.from(text))) {
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(part.length));
    hash.update(length).update(part);
  }
  return `hash-${hash.digest("hex")}`;
}

test("an id hashed from a request is refused from any other principal, request or cancellation", async () => {
  const ref = randomUUID();
  const body = JSON.stringify({ ref });
  const id = hashed("alice", body);
  const key = "hashed%2Forders";
  const refused = async () => {
    for (const [path, more] of [
      [`/semel/v1/keys/${key}/cancel`, { body: JSON.stringify({ id }) }],
      [`/semel/v1/keys/${key}/cancel`, { id, body: JSON.stringify({ id: "x" }) }],
      [HASHED.path, { id, body }],
      ["/report/orders", { id, body, key: '"hashed/orders"' }],
    ]) {
      const taken = await server.send("POST", path, { id: randomUUID(), as: "mallory", ...more });
      assert.deepEqual([taken.status, taken.semel], [400, "key-invalid"], path);
    }
  };
  await refused();
  const first = await server.send("POST", HASHED.path, { as: "alice", body });
  assert.deepEqual([first.status, first.semel], [201, "executed"]);
  // Nor does a refusal tell anybody that the change was made.
  await refused();
  const again = await server.send("POST", HASHED.path, { as: "alice", id, body });
  assert.deepEqual([again.semel, again.text], ["replayed", first.text], "it may be sent along");
  const look = await server.send("GET", `/semel/v1/keys/${key}/outcomes/${id}`, { as: "alice" });
  assert.deepEqual([look.semel, look.text, other.made.get(ref)], ["replayed", first.text, 1]);
});
