// The lossy proxy must really lose what it says: tests that use it would otherwise prove nothing.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { gate, startLossy, until } from "./lossy.mjs";

const targets = [];
after(() => targets.forEach((target) => target.close()));

/** A target that counts requests, and answers with the body that it got. */
async function startTarget() {
  const target = { seen: [] };
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    target.seen.push({ method: request.method, url: request.url, headers: request.headers, body });
    if (request.url === "/empty") return response.writeHead(204, { "x-empty": "yes" }).end();
    response.writeHead(201, { "content-type": "text/plain", "semel-status": "executed" }).end(`you said ${body}`);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  target.url = `http://127.0.0.1:${server.address().port}`;
  target.close = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  targets.push(target);
  return target;
}

async function proxied(t, faults = {}) {
  const target = await startTarget();
  const proxy = await startLossy({ target: () => target.url, seed: 7, ...faults });
  t.after(() => proxy.close());
  const post = (body, headers = {}) => fetch(`${proxy.url}/said`, { method: "POST", body, headers });
  return { target, proxy, post };
}

const broken = (promise) => assert.rejects(promise, TypeError);

test("without faults the proxy changes nothing", async (t) => {
  const { target, proxy, post } = await proxied(t);
  const answer = await post("hello", { "idempotency-key": '"an-id"', "x-own": "kept" });
  assert.equal(answer.status, 201);
  assert.equal(answer.headers.get("content-type"), "text/plain");
  assert.equal(await answer.text(), "you said hello");
  const [{ method, url, headers, body }] = target.seen;
  assert.deepEqual([method, url, body, headers["x-own"], headers["content-length"]], ["POST", "/said", "hello", "kept", "5"]);
  assert.equal(headers.host, new URL(target.url).host);
  assert.deepEqual(proxy.changes.get("an-id"), { method: "POST", path: "/said", attempts: 1, lostAnswers: 0, outcome: true });

  assert.equal((await fetch(`${proxy.url}/said`, { method: "HEAD" })).status, 201);
  const empty = await fetch(`${proxy.url}/empty`, { method: "DELETE" });
  assert.deepEqual([empty.status, empty.headers.get("x-empty"), await empty.text()], [204, "yes", ""]);
});

test("a lost request never arrives at the target, and a request whose answer is lost does", async (t) => {
  const { target, proxy, post } = await proxied(t, { loseRequests: 1 });
  await broken(post("lost", { "idempotency-key": "lost" }));
  assert.equal(target.seen.length, 0);
  Object.assign(proxy.settings, { loseRequests: 0, loseAnswers: 1 });
  await broken(post("done", { "idempotency-key": "lost" }));
  assert.equal(target.seen.length, 1);
  assert.deepEqual(proxy.changes.get("lost"), { method: "POST", path: "/said", attempts: 2, lostAnswers: 1, outcome: false });
  proxy.calm();
  assert.equal((await post("heard")).status, 201);
  const { requests, lostRequests, lostAnswers, answered } = proxy.counts;
  assert.deepEqual({ requests, lostRequests, lostAnswers, answered }, { requests: 3, lostRequests: 1, lostAnswers: 1, answered: 1 });
});

test("the proxy loses the share that it is set to, and the same requests for the same seed", async (t) => {
  const REQUESTS = 300;
  const run = async () => {
    const { proxy, post } = await proxied(t, { loseRequests: 1 / 3, loseAnswers: 1 / 3 });
    const heard = [];
    for (let index = 0; index < REQUESTS; index += 1) heard.push(await post("x").then(() => true, () => false));
    return { heard, counts: proxy.counts };
  };
  const [first, second] = [await run(), await run()];
  assert.deepEqual(first, second);
  const near = (share, expected) => assert.ok(Math.abs(share - expected) < 0.08, `${share} is far from ${expected}`);
  near(first.counts.lostRequests / REQUESTS, 1 / 3);
  near(first.counts.lostAnswers / first.counts.forwarded, 1 / 3);
  assert.equal(first.heard.filter(Boolean).length, first.counts.answered);
});

test("a duplicated request arrives twice and is answered once", async (t) => {
  const { target, proxy, post } = await proxied(t, { duplicate: 1, delayMsMax: 20 });
  assert.equal(await (await post("twice")).text(), "you said twice");
  await until(() => target.seen.length > 1, "the target sees the duplicate");
  await proxy.close();
  assert.deepEqual(target.seen.map(({ body }) => body), ["twice", "twice"]);
  const { duplicates, answered } = proxy.counts;
  assert.deepEqual({ duplicates, answered }, { duplicates: 1, answered: 1 });
});

test("while the target is down connections break, and the proxy finds it again at another address", async (t) => {
  let target = await startTarget();
  const proxy = await startLossy({ target: () => target.url, seed: 7 });
  t.after(() => proxy.close());
  await target.close();
  await broken(fetch(proxy.url));
  assert.equal(proxy.counts.unreachable, 1);
  target = await startTarget();
  assert.equal((await fetch(proxy.url)).status, 201);
});

test("a spared request has no faults, and the proxy can answer a request without the target", async (t) => {
  const { target, proxy } = await proxied(t, {
    loseRequests: 1,
    spare: (request) => request.method === "GET",
    instead: (request) => (request.url === "/portal" ? { status: 200, headers: { "content-type": "text/html" }, body: "log in" } : undefined),
  });
  assert.equal((await fetch(`${proxy.url}/said`)).status, 201);
  await broken(fetch(`${proxy.url}/said`, { method: "POST" }));
  assert.equal(await (await fetch(`${proxy.url}/portal`, { method: "POST", body: "x" })).text(), "log in");
  assert.equal(target.seen.length, 1);
});

test("a held request arrives once the gate is open, even if its client has left, and others pass meanwhile", async (t) => {
  const wire = gate(({ method, headers }) => method === "POST" && headers["x-held"] !== undefined);
  const { target, proxy, post } = await proxied(t, { hold: wire.hold });
  const leaving = new AbortController();
  const gone = fetch(`${proxy.url}/said`, { method: "POST", body: "gone", headers: { "x-held": "1" }, signal: leaving.signal });
  const stays = post("stays", { "x-held": "2" });
  await until(() => wire.held.length === 2, "both are held");
  leaving.abort();
  await assert.rejects(gone, { name: "AbortError" });
  assert.equal(await (await post("passes")).text(), "you said passes");
  assert.deepEqual(target.seen.map(({ body }) => body), ["passes"]);
  wire.open();
  assert.equal(await (await stays).text(), "you said stays");
  await until(() => target.seen.length === 3, "what is left arrives");
  assert.deepEqual(target.seen.map(({ body }) => body).sort(), ["gone", "passes", "stays"]);
});

test("a request that is held when the proxy closes never arrives", async (t) => {
  const wire = gate(() => true);
  const { target, proxy, post } = await proxied(t, { hold: wire.hold });
  const held = broken(post("held"));
  await until(() => wire.held.length === 1, "it is held");
  await proxy.close();
  await held;
  wire.open();
  assert.deepEqual(target.seen, []);
});
