// A deployment in front of an HTTP API: each request is sent once, whatever dies in between, and answered with what it was answered.

import assert from "node:assert/strict";
import { createHash, randomUUID } from "node:crypto";
import { cp, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { deflateSync, gzipSync } from "node:zlib";
import { workerFolder } from "../../scripts/setup/worker.mjs";
import { until } from "./lossy.mjs";
import { otherSide } from "./other-side.mjs";
import { serve } from "./server.mjs";

const POLICIES = {
  report: { inDoubt: "report" },
  resend: { inDoubt: "resend", dedupSeconds: 60 },
  probe: { inDoubt: "probe", probe: "/orders/{body.ref}", settleSeconds: 1 },
};
/** An API under a path for each policy. */
const ROUTES = Object.entries(POLICIES).map(([name, policy]) => ({ path: `/${name}/orders`, methods: ["POST"], ...policy }));
const HASHED = { path: "/hashed/orders", idFrom: ["body"] };
/** Its clients send no ids, and the other side knows them: by that which is made here. */
const HASHED_AGAIN = { path: "/hashed-again/orders", idFrom: ["body.ref"], inDoubt: "resend", dedupSeconds: 60 };

/** A deployment in front of a side. */
function front(side, vars = {}, more = {}) {
  const settings = { SEMEL_UPSTREAM: side.url, SEMEL_UPSTREAM_ROUTES: JSON.stringify([...ROUTES, HASHED, HASHED_AGAIN]), SEMEL_UPSTREAM_AUTHORIZATION: "Bearer of-the-other-side", ...vars };
  return serve(after, "upstream", settings, { reachesLocal: true, ...more });
}

const other = await otherSide(after);
const knowing = await otherSide(after, { knowsIds: true });
const server = await front(other);
const resender = await front(knowing);

const order = (to, policy, ref, { id = randomUUID(), headers, ...rest } = {}) =>
  to.send("POST", `/${policy}/orders`, { id, body: JSON.stringify({ ref }), headers: { "content-type": "application/json", ...headers }, ...rest });

test("a request is sent once, and its answer is the outcome", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  const first = await order(server, "report", ref, { id });
  assert.deepEqual([first.status, first.semel, first.json], [201, "executed", { ref, times: 1 }]);
  assert.equal(first.headers.get("x-from"), "the other side");
  assert.equal(first.headers.get("set-cookie"), null);
  const again = await order(server, "report", ref, { id });
  assert.deepEqual([again.status, again.semel, again.text], [201, "replayed", first.text]);
  assert.equal(other.made.get(ref), 1);
});

test("what belongs to the client's connection stays here, and the id goes along", async () => {
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
  // Of a cache nothing is asked: what is not there by its word may be there.
  assert.equal(sent["cache-control"], "no-cache");
});

test("what stays here by its name stays by one that a server may take for it", async () => {
  const ref = randomUUID();
  const names = ["semel_principal", "semel_key", "Idempotency_Key", "x_forwarded_for", "Proxy_Authorization", "cf_connecting-ip"];
  await order(server, "report", ref, { as: "alice", headers: { ...Object.fromEntries(names.map((name) => [name, "bob"])), x_mine: "kept" } });
  const sent = other.requests.find(({ body }) => body.includes(ref)).headers;
  for (const name of names) assert.equal(sent[name.toLowerCase()], undefined, name);
  assert.deepEqual([sent.x_mine, sent["semel-principal"]], ["kept", '"alice"']);
});

test("of bodies that wait for a turn there are 16 MiB at most: the others are answered at once, and room is there again once they are through", async () => {
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

test("so many wait for a turn at most: the others are answered at once, and room is there again once they are through", async () => {
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

test("a read is passed on and not recorded", async () => {
  const ref = randomUUID();
  const before = await server.send("GET", `/report/orders/${ref}`);
  assert.deepEqual([before.status, before.semel], [404, "read"]);
  await order(server, "report", ref);
  const found = await server.send("GET", `/report/orders/${ref}`);
  assert.deepEqual([found.status, found.json], [200, { ref, times: 1 }]);
});

test("slow reads have no turn, and keep no change of their key from leaving; what they acknowledge is acknowledged", async () => {
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
});

test("a read that can't be sent, or is not answered in time, is told so, and the next is read", async () => {
  const [unreached, slow] = await Promise.all([front({ url: "http://127.0.0.1:9" }, { SEMEL_UPSTREAM_CONNECT_FIRST: "true" }), front(other, { SEMEL_UPSTREAM_TIMEOUT_SECONDS: "0.2" })]);
  const nothing = await unreached.send("GET", "/report/orders/one");
  assert.deepEqual([nothing.status, nothing.json.code, nothing.json.executed], [502, "upstream-unreachable", "no"]);
  let finish;
  other.heldReads.push((now) => (finish = now));
  const late = await slow.send("GET", "/report/orders/one");
  assert.deepEqual([late.status, late.json.code, late.json.executed], [503, "unavailable", "unknown"]);
  finish();
  assert.deepEqual((({ status, semel }) => [status, semel])(await slow.send("GET", "/report/orders/one")), [404, "read"]);
});

test("two attempts at a time are one request, and each gets its outcome", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  other.trouble.push((response, status, body) => setTimeout(() => response.writeHead(status).end(body), 300));
  const answers = await Promise.all(Array.from({ length: 8 }, () => order(server, "report", ref, { id })));
  assert.deepEqual(answers.map(({ status }) => status), Array(8).fill(201));
  assert.equal(answers.filter(({ semel }) => semel === "executed").length, 1);
  assert.equal(other.made.get(ref), 1);
});

test("what is under way can't be resolved: who tries waits for it a while, and settles nothing", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  let finish;
  const arrived = new Promise((resolve) => other.trouble.push((response, status, body) => resolve((finish = () => response.writeHead(status).end(body)))));
  const first = order(server, "report", ref, { id });
  await arrived;
  const resolve = (verb = "resolve") => server.admin("POST", `keys/report%2Forders/records/${id}/${verb}`, { id: randomUUID(), body: '{"executed":"no"}' });
  // However it is written: a segment is decoded before it is looked at.
  for (const refused of await Promise.all([resolve(), resolve("resolv%65")])) {
    assert.deepEqual([refused.status, refused.semel, refused.json?.executed, refused.json?.retry], [409, "locked", "no", "same-id"]);
    assert.match(refused.json.detail, /under way to where it is executed/);
  }
  // One that is there when it ends finds its outcome.
  const waits = resolve();
  setTimeout(finish, 500);
  assert.equal((await first).semel, "executed");
  const late = await waits;
  assert.deepEqual([late.status, late.semel], [400, "body-invalid"]);
  assert.equal((await order(server, "report", ref, { id })).semel, "replayed");
});

test("who does not want to wait hears that it is under way, and another that it is not its turn", async () => {
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
  // Who comes too late to start waits for nothing: it would be told no sooner than the other side answers.
  const [late, tooLate] = [await order(server, "report", ref, { id, deadline: 0 }), await order(server, "report", randomUUID(), { deadline: 0 })];
  assert.deepEqual([late.semel, tooLate.semel, tooLate.status], ["in-flight", "attempt-expired", 408]);
  const cancelled = await server.send("POST", `/semel/v1/keys/${encodeURIComponent("report/orders")}/cancel`, { id: randomUUID(), body: JSON.stringify({ id }) });
  assert.deepEqual([cancelled.status, cancelled.json.code], [409, "in-flight"]);
  finish();
  assert.equal((await first).semel, "executed");
});

test("where a connection is made first, and can't be, the answer says that surely nothing was sent", async () => {
  const gone = await otherSide(after);
  const lonely = await front(gone, { SEMEL_UPSTREAM_CONNECT_FIRST: "true" });
  await gone.close();
  const [id, ref] = [randomUUID(), randomUUID()];
  const refused = await order(lonely, "report", ref, { id });
  assert.deepEqual([refused.status, refused.json.code, refused.json.executed], [502, "upstream-unreachable", "no"], lonely.log);
  await gone.listen();
  const sent = await order(lonely, "report", ref, { id });
  assert.deepEqual([sent.status, gone.made.get(ref)], [201, 1]);
});

test("a redirect is not followed, and says nothing", async () => {
  const ref = randomUUID();
  other.trouble.push((response) => response.writeHead(307, { location: `${knowing.url}/orders` }).end());
  const answer = await order(server, "report", ref);
  assert.deepEqual([answer.status, answer.json.code], [409, "outcome-unknown"]);
  assert.equal(knowing.made.get(ref), undefined);
});

test("an answer that is too large leaves the request in doubt", async () => {
  other.trouble.push((response) => response.writeHead(200).end(Buffer.alloc((1 << 20) + 1)));
  const answer = await order(server, "report", randomUUID());
  assert.deepEqual([answer.status, answer.json.code], [409, "outcome-unknown"]);
});

test("a header that can't be recorded is left out of the answer, and leaves nothing in doubt", async () => {
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

test("an encoding that nobody here decodes stays on the answer", async () => {
  const ref = randomUUID();
  other.trouble.push((response, status, body) => response.writeHead(status, { "content-encoding": "deflate" }).end(deflateSync(body)));
  const answer = await order(server, "report", ref);
  assert.deepEqual([answer.headers.get("content-encoding"), answer.text], ["deflate", JSON.stringify({ ref, times: 1 })]);
  const zipped = randomUUID();
  other.trouble.push((response, status, body) => response.writeHead(status, { "content-encoding": "gzip" }).end(gzipSync(body)));
  const decoded = await order(server, "report", zipped);
  assert.deepEqual([decoded.headers.get("content-encoding"), decoded.text], [null, JSON.stringify({ ref: zipped, times: 1 })]);
});

test("a change with conditions is probed for without them", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  const headers = { "if-none-match": "*", "if-match": '"old"', range: "bytes=0-0", "content-encoding": "identity", "content-language": "en", "x-mine": "kept" };
  other.trouble.push((response) => response.destroy());
  const send = () => order(server, "probe", ref, { id, headers });
  assert.equal((await send()).semel, "unavailable");
  const found = await send();
  assert.deepEqual([found.status, found.semel, found.json], [200, "executed", { ref, times: 1 }]);
  const [change, probe] = other.requests.slice(-2);
  assert.deepEqual([change.method, change.headers["if-match"], change.headers.range, change.headers["x-mine"]], ["POST", '"old"', "bytes=0-0", "kept"]);
  assert.equal(probe.method, "GET");
  assert.deepEqual(Object.keys(probe.headers).filter((name) => /^(content-|if-|range)/.test(name)), []);
  assert.equal(probe.headers["x-mine"], "kept");
});

test("a client without ids is deduplicated by what it sends", async () => {
  const body = JSON.stringify({ ref: randomUUID() });
  const send = () => server.send("POST", "/hashed/orders", { body, headers: { "content-type": "application/json" } });
  const [first, second] = await Promise.all([send(), send()]);
  assert.deepEqual([first.status, second.status], [201, 201]);
  assert.equal(other.made.get(JSON.parse(body).ref), 1);
  const without = await server.send("POST", "/report/orders", { body });
  assert.deepEqual([without.status, without.json.code], [400, "key-missing"]);
});

test("what is in doubt is settled by an administrator", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  other.trouble.push((response) => response.destroy());
  const lost = await order(server, "report", ref, { id });
  assert.deepEqual([lost.status, lost.json.code, lost.json.retry], [409, "outcome-unknown", "never"]);
  const record = `keys/${encodeURIComponent("report/orders")}/records/${id}`;
  assert.equal((await server.admin("GET", record)).json.state, "in-doubt");
  const lookUp = () => server.send("GET", `/semel/v1/keys/${encodeURIComponent("report/orders")}/outcomes/${id}`);
  assert.equal((await lookUp()).semel, "outcome-unknown");
  const body = JSON.stringify({ executed: "yes", outcome: { status: 201, headers: { "content-type": "application/json" }, body: "{}" } });
  const resolved = await server.admin("POST", `${record}/resolve`, { id: randomUUID(), body });
  assert.deepEqual([resolved.status, resolved.json.state], [200, "executed"]);
  assert.deepEqual([(await lookUp()).semel, (await lookUp()).status], ["replayed", 201]);
  const replayed = await order(server, "report", ref, { id });
  assert.deepEqual([replayed.status, replayed.semel, replayed.text], [201, "replayed", "{}"]);
  assert.equal(other.made.get(ref), 1);
});

/** Where `kill -9` comes: each is reached by what the other side sees, never by time. */
const STEPS = {
  /** Nothing is recorded: the server is not there. */
  async start(_side, to) {
    await to.kill();
    return () => {};
  },
  /** The start is recorded and the connection there, but nobody reads what is sent. */
  async dispatch(side, to) {
    const connected = new Promise((resolve) => {
      side.onConnection = () => resolve() ?? false;
    });
    connected.then(() => to.kill());
    return () => (side.onConnection = () => true);
  },
  /** The other side has done it, and its answer is on the way. */
  async answer(side, to) {
    side.trouble.push((response, status, body) => {
      response.writeHead(status, { "content-length": body.length });
      response.write(body.slice(0, -1), () => to.kill());
    });
    return () => {};
  },
  /** The outcome is recorded. */
  async commit() {
    return (to) => to.kill();
  },
};

test("kill -9 at each step, for each policy: what the caller gets, and how often the other side was called", async () => {
  const rows = [];
  for (const policy of Object.keys(POLICIES)) {
    for (const [step, strike] of Object.entries(STEPS)) {
      const side = await otherSide(after, { knowsIds: policy === "resend" });
      const to = await front(side);
      const [id, ref] = [randomUUID(), randomUUID()];
      const restore = await strike(side, to);
      await order(to, policy, ref, { id }).catch(() => {});
      await restore(to);
      await to.restart();
      const answer = await settled(() => order(to, policy, ref, { id }));
      const got = answer.semel;
      rows.push({ policy, "kill -9 at": step, "the caller gets": `${answer.status} ${got}`, calls: side.changes, effects: side.made.get(ref) ?? 0 });
      const isReport = policy === "report" && ["dispatch", "answer"].includes(step);
      assert.equal(got, isReport ? "outcome-unknown" : step === "commit" ? "replayed" : "executed", `${policy}, ${step}`);
      assert.equal(side.made.get(ref) ?? 0, policy === "report" && step === "dispatch" ? 0 : 1, `${policy}, ${step}`);
      assert.equal(side.changes, { dispatch: policy === "report" ? 0 : 1, answer: policy === "resend" ? 2 : 1 }[step] ?? 1, `${policy}, ${step}`);
      await to.kill();
    }
  }
  console.table(rows);
});

/** Sends as a client does, until the answer is no longer that it is not known yet. */
async function settled(send) {
  const untilMs = Date.now() + 20_000;
  for (;;) {
    const answer = await send();
    if (!["in-flight", "unavailable", "locked"].includes(answer.semel)) return answer;
    assert.ok(Date.now() < untilMs, "it is never settled");
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

test("kill -9 after the dispatch, and nobody sends it again: who looks it up hears what an attempt would", async () => {
  const side = await otherSide(after);
  const to = await front(side);
  const sent = Object.keys(POLICIES).map((policy) => ({ policy, id: randomUUID(), ref: randomUUID() }));
  const lookUp = (policy, id) => to.send("GET", `/semel/v1/keys/${policy}%2Forders/outcomes/${id}`);
  const inBatch = async (policy, id) => {
    const body = JSON.stringify([{ method: "GET", path: `/semel/v1/keys/${policy}%2Forders/outcomes/${id}` }]);
    return (await to.send("POST", `/semel/v1/keys/${policy}%2Forders/batch`, { body })).json[0].headers["semel-status"];
  };
  for (const { policy, id, ref } of sent) {
    const arrived = new Promise((resolve) => side.trouble.push(resolve));
    order(to, policy, ref, { id }).catch(() => {});
    await arrived;
    // It is under way, and may have its outcome yet; a read that comes and goes changes nothing of that.
    assert.equal((await to.send("GET", `/${policy}/orders/${randomUUID()}`, { key: `"${policy}/orders"` })).semel, "read");
    assert.deepEqual([(await lookUp(policy, id)).semel, await inBatch(policy, id)], ["in-flight", "in-flight"], policy);
  }
  await to.restart();
  for (const { policy, id, ref } of sent) {
    const isReport = policy === "report";
    const known = isReport ? [409, "outcome-unknown", "unknown", "never"] : [409, "in-flight", "unknown", "same-id"];
    const { status, semel, json } = await lookUp(policy, id);
    assert.deepEqual([status, semel, json.executed, json.retry], known, policy);
    assert.match(json.detail, isReport ? /an administrator can resolve it/ : /the same request, sent again, finds out/);
    assert.equal(await inBatch(policy, id), semel);
    const cancelled = await to.send("POST", `/semel/v1/keys/${policy}%2Forders/cancel`, { id: randomUUID(), body: JSON.stringify({ id }) });
    assert.deepEqual([cancelled.status, cancelled.semel], known.slice(0, 2), policy);
    assert.equal(side.made.get(ref), 1, `${policy}: a look-up runs nothing`);
  }
  const [{ id, ref }] = sent;
  const resolved = await to.admin("POST", `keys/report%2Forders/records/${id}/resolve`, { id: randomUUID(), body: '{"executed":"yes","outcome":{"status":201,"body":"made"}}' });
  assert.deepEqual([resolved.status, (await lookUp("report", id)).text, (await order(to, "report", ref, { id })).text], [200, "made", "made"]);
  assert.equal(side.changes, sent.length);
});

/** In place of the worker's entry: it has its module crash where it is asked to. */
const CRASHING = `
import upstream from "./upstream.js";
import { guarded } from "./module.js";
export * from "./upstream.js";
export default {
  fetch(request, env) {
    if (new URL(request.url).pathname !== "/crash") return upstream.fetch(request, env);
    const crash = () => {
      throw new Error("the module was asked to crash");
    };
    guarded(crash, () => {});
    return new Response();
  },
};`;

test("where the module crashes while a request is under way, who looks that up hears so all the same, and it has its outcome", async () => {
  const folder = await mkdtemp(join(tmpdir(), "semel-crashing-"));
  after(() => rm(folder, { recursive: true, force: true }));
  await cp(workerFolder("upstream"), folder, { recursive: true });
  await rename(join(folder, "index.js"), join(folder, "upstream.js"));
  await writeFile(join(folder, "index.js"), CRASHING);
  const side = await otherSide(after);
  const to = await front(side, {}, { folder });
  const [id, ref] = [randomUUID(), randomUUID()];
  let finish;
  const arrived = new Promise((resolve) => side.trouble.push((response, status, body) => resolve((finish = () => response.writeHead(status).end(body)))));
  const first = order(to, "report", ref, { id });
  await arrived;
  assert.equal((await to.send("POST", "/crash")).status, 200);
  await to.line(/the module was restarted/);
  const { semel, json } = await to.send("GET", `/semel/v1/keys/report%2Forders/outcomes/${id}`);
  assert.deepEqual([semel, json.executed, json.retry], ["in-flight", "unknown", "same-id"]);
  finish();
  assert.deepEqual([(await first).semel, (await order(to, "report", ref, { id })).semel, side.made.get(ref)], ["executed", "replayed", 1]);
});

test("a key that is deleted while a request of it is under way: nobody is told that it never ran", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  let finish;
  const arrived = new Promise((resolve) => other.trouble.push((response, status, body) => resolve((finish = () => response.writeHead(status).end(body)))));
  const first = order(server, "report", ref, { id });
  await arrived;
  assert.equal((await server.admin("DELETE", "keys/report%2Forders", { id: randomUUID() })).status, 200);
  const cancel = () => server.send("POST", "/semel/v1/keys/report%2Forders/cancel", { id: randomUUID(), body: JSON.stringify({ id }) });
  const waits = order(server, "report", randomUUID());
  const refused = await cancel();
  assert.deepEqual([refused.status, refused.semel, refused.json.executed], [409, "in-flight", "unknown"]);
  finish();
  const { status, semel, json } = await first;
  assert.deepEqual([status, semel, json.executed], [409, "outcome-unknown", "unknown"]);
  assert.equal((await waits).semel, "executed");
  assert.equal((await cancel()).json.state, "cancelled");
});

test("a resent request is resent under its id, and the other side does it once", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  knowing.trouble.push((response) => response.destroy(), (response) => response.writeHead(502).end());
  const answer = await settled(() => order(resender, "resend", ref, { id }));
  assert.deepEqual([answer.status, answer.semel], [201, "executed"]);
  assert.deepEqual(knowing.requests.map(({ headers }) => headers["idempotency-key"]), [id, id, id]);
  assert.equal(knowing.made.get(ref), 1);
});

test("the id that is made of a request goes along, so what is sent again is done once", async () => {
  const body = JSON.stringify({ ref: randomUUID() });
  knowing.trouble.push((response) => response.destroy());
  const answer = await settled(() => resender.send("POST", "/hashed-again/orders", { body }));
  assert.deepEqual([answer.status, answer.semel], [201, "executed"]);
  const ids = knowing.requests.filter((request) => request.body === body).map(({ headers }) => headers["idempotency-key"]);
  assert.equal(ids.length, 2);
  assert.match(ids[0], /^hash-[0-9a-f]{64}$/);
  assert.equal(ids[1], ids[0]);
  assert.equal(knowing.made.get(JSON.parse(body).ref), 1);
});

/** The id that is made of a change of `HASHED`. */
function hashed(principal, body) {
  const hash = createHash("sha256");
  for (const part of [principal, "POST", HASHED.path, body].map((text) => Buffer.from(text))) {
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(part.length));
    hash.update(length).update(part);
  }
  return `hash-${hash.digest("hex")}`;
}

test("the id that is made of a request is taken by nobody else", async () => {
  const ref = randomUUID();
  const body = JSON.stringify({ ref });
  const id = hashed("alice", body);
  const key = "hashed%2Forders";
  for (const [path, more] of [
    [`/semel/v1/keys/${key}/cancel`, { body: JSON.stringify({ id }) }],
    [`/semel/v1/keys/${key}/cancel`, { id, body: JSON.stringify({ id: "x" }) }],
    [HASHED.path, { id, body }],
    ["/report/orders", { id, body, key: '"hashed/orders"' }],
  ]) {
    const taken = await server.send("POST", path, { id: randomUUID(), as: "mallory", ...more });
    assert.deepEqual([taken.status, taken.semel], [400, "key-invalid"], path);
  }
  const first = await server.send("POST", HASHED.path, { as: "alice", body });
  assert.deepEqual([first.status, first.semel], [201, "executed"]);
  const again = await server.send("POST", HASHED.path, { as: "alice", id, body });
  assert.deepEqual([again.semel, again.text], ["replayed", first.text], "it may be sent along");
  const look = await server.send("GET", `/semel/v1/keys/${key}/outcomes/${id}`, { as: "alice" });
  assert.deepEqual([look.semel, look.text, other.made.get(ref)], ["replayed", first.text, 1]);
});

test("an id is the same to the other side, however its client writes it", async () => {
  const [id, ref, odd] = [randomUUID(), randomUUID(), randomUUID()];
  knowing.trouble.push((response) => response.destroy());
  const first = await order(resender, "resend", ref, { id });
  assert.notEqual(first.semel, "executed");
  const answer = await settled(() => order(resender, "resend", ref, { id: `"${id}"` }));
  assert.deepEqual([answer.status, answer.semel, knowing.made.get(ref)], [201, "executed", 1]);
  await order(resender, "resend", odd, { id: `"two words, \\"${odd}\\""` });
  const sent = (what) => knowing.requests.filter(({ body }) => body.includes(what)).map(({ headers }) => headers["idempotency-key"]);
  assert.deepEqual([sent(ref), sent(odd)], [[id, id], [`"two words, \\"${odd}\\""`]]);
});
