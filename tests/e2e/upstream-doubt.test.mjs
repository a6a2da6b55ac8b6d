// Requests that a deployment in front of an HTTP API has sent and got no answer to that it can record: who is told what, and what settles them, by
// each policy. `upstream.test.mjs` has the others.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { Semel } from "../../sdk/npm/node.js";
import { until } from "./lossy.mjs";
import { otherSide } from "./other-side.mjs";
import { front, order, settled } from "./upstream.mjs";

const other = await otherSide(after);
const knowing = await otherSide(after, { knowsIds: true });
const server = await front(after, other);
const resender = await front(after, knowing);

test("a redirect of the upstream is not followed, and leaves the request outcome-unknown", async () => {
  const ref = randomUUID();
  other.trouble.push((response) => response.writeHead(307, { location: `${knowing.url}/orders` }).end());
  const answer = await order(server, "report", ref);
  assert.deepEqual([answer.status, answer.json.code], [409, "outcome-unknown"]);
  assert.equal(knowing.made.get(ref), undefined);
});

test("an answer of the upstream that is too large leaves the request outcome-unknown", async () => {
  other.trouble.push((response) => response.writeHead(200).end(Buffer.alloc((1 << 20) + 1)));
  const answer = await order(server, "report", randomUUID());
  assert.deepEqual([answer.status, answer.json.code], [409, "outcome-unknown"]);
});

test("a change with conditional headers is probed for without them", async () => {
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

test("an administrator resolves a request in doubt, and its client then gets the given outcome", async () => {
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

test("a key is listed as in-doubt once a request has lost its answer, and until that is resolved", async (t) => {
  const own = await front((end) => t.after(end), other, { SEMEL_REPORT_SECONDS: "1" });
  const [id, ref] = [randomUUID(), randomUUID()];
  const listed = async (query) => (await own.admin("GET", `keys?${query}`)).json.keys.map(({ key, records, inDoubt }) => [key, records, inDoubt]);
  let lose;
  const arrived = new Promise((resolve) => other.trouble.push((response) => resolve((lose = () => response.destroy()))));
  const lost = order(own, "report", ref, { id });
  await arrived;
  await until(async () => (await listed("")).length === 1, "it is registered");
  assert.deepEqual([await listed(""), await listed("state=in-doubt")], [[["report/orders", 1, 0]], []]);
  lose();
  assert.equal((await lost).semel, "outcome-unknown");
  await until(async () => (await listed("state=in-doubt")).length === 1, "it is told");
  assert.deepEqual(await listed("state=in-doubt&prefix=report/"), [["report/orders", 1, 1]]);
  await own.admin("POST", `keys/report%2Forders/records/${id}/resolve`, { id: randomUUID(), body: JSON.stringify({ executed: "no" }) });
  await until(async () => (await listed("state=in-doubt")).length === 0, "it is settled");
});

test("if a key is deleted during a call, its client hears outcome-unknown, and a cancellation in-flight until it ends", async () => {
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

test("under the resend policy a request is resent with its id until it has an outcome, and is done once", async () => {
  const [id, ref] = [randomUUID(), randomUUID()];
  knowing.trouble.push((response) => response.destroy(), (response) => response.writeHead(502).end());
  const answer = await settled(() => order(resender, "resend", ref, { id }));
  assert.deepEqual([answer.status, answer.semel], [201, "executed"]);
  assert.deepEqual(knowing.requests.map(({ headers }) => headers["idempotency-key"]), [id, id, id]);
  assert.equal(knowing.made.get(ref), 1);
});

test("a status such as 404 is no outcome of a request that was sent again, and is the outcome of one sent once", async () => {
  for (const status of [404, 405, 410, 412, 421]) {
    const [id, ref] = [randomUUID(), randomUUID()];
    const send = () => order(resender, "resend", ref, { id });
    knowing.trouble.push((response) => response.destroy(), (response) => response.writeHead(status).end("nobody is there"));
    const told = [await send(), await send(), await send()];
    assert.deepEqual(told.map(({ semel }) => semel), ["unavailable", "unavailable", "executed"], `${status}`);
    assert.deepEqual([told[2].status, told[2].json, knowing.made.get(ref)], [201, { ref, times: 1 }, 1], `${status}`);
    // To a request that was sent only once, this status is the answer.
    knowing.trouble.push((response) => response.writeHead(status).end("no"));
    const once = randomUUID();
    const first = await order(resender, "resend", once);
    // Some clients' `fetch` sends a request again by itself if the answer is 421, and gets the same answer.
    assert.deepEqual([first.status, first.text, ["executed", "replayed"].includes(first.semel)], [status, "no", true]);
    assert.equal(knowing.requests.filter(({ body }) => body.includes(once)).length, 1, `${status}`);
  }
});

test("a client that gives up a request in doubt still gets the answer to it", async (t) => {
  for (const [to, side, policy] of [[server, other, "probe"], [resender, knowing, "resend"]]) {
    const semel = await Semel.open({ url: to.url, durability: "memory", retryIntervalMs: 500 });
    t.after(() => semel.close());
    const [ref, giveUp] = [randomUUID(), new AbortController()];
    // The change takes effect, and its answer is lost.
    side.trouble.push((response) => response.destroy());
    const sent = side.changes;
    const answered = semel.fetch(`/${policy}/orders`, { method: "POST", body: JSON.stringify({ ref }), headers: { "content-type": "application/json" }, signal: giveUp.signal });
    await until(() => side.changes > sent, "it is sent");
    setTimeout(() => giveUp.abort(), 300);
    const { status } = await answered;
    assert.deepEqual([Math.floor(status / 100), side.made.get(ref)], [2, 1], policy);
  }
});

test("an id hashed from a request is passed upstream, so a request that is sent again is done once", async () => {
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

test("an id is the same upstream, whether its client quotes it or not", async () => {
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
