// A deployment in front of an HTTP API, as a careful proxy: where it sends requests, what it passes on, and what it takes for an answer.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { serve } from "./server.mjs";
import { AUDIENCE, jwks, signer } from "./tokens.mjs";

const LIMIT = { timeout: 60_000 };
const BOUND = fileURLToPath(new URL("bound-side.mjs", import.meta.url));

/** The answers of the API, by the last part of the path. */
const ANSWERS = {
  zipped: (response) => response.writeHead(200, { "content-type": "application/json", "content-encoding": "gzip" }).end(gzipSync('{"zipped":true}')),
  ZIPPED: (response) => response.writeHead(200, { "content-type": "application/json", "content-encoding": "GZIP" }).end(gzipSync('{"zipped":true}')),
  br: (response) => response.writeHead(200, { "content-type": "application/json", "content-encoding": "br" }).end(brotliCompressSync('{"br":true}')),
  "zipped-nothing": (response) => response.writeHead(201, { "content-encoding": "gzip", "content-length": 0 }).end(),
  "zipped-unsaid": (response) => response.writeHead(201, { "content-encoding": "gzip" }).end(),
  long: (response) => response.writeHead(200, { "content-length": 1 << 21 }).end(),
  "zipped-long": (response) => response.writeHead(200, { "content-encoding": "gzip", "content-length": 1000 }).end(),
  broken: (response) => response.writeHead(500, { "content-length": 1000 }).end(),
  never: () => {},
  half: (response) => response.writeHead(200, { "content-length": 10 }).write("abc"),
  headers: (response) => response.writeHead(200, { connection: "x-named, keep-alive", "x-named": "1", "proxy-authenticate": "Basic", "semel-key": "another", "idempotent-replayed": "true", "x-own": "1" }).end("own"),
};
const seen = [];
const api = createServer(({ method, url, headers }, response) => {
  seen.push({ method, url, headers });
  const answer = ANSWERS[url.split("/").at(-1)] ?? (() => response.writeHead(201).end("made"));
  answer(response);
});
api.listen(0, "127.0.0.1");
await once(api, "listening");
after(() => {
  api.closeAllConnections();
  return new Promise((resolve) => api.close(resolve));
});
const url = `http://127.0.0.1:${api.address().port}`;
const front = (vars, more) => serve(after, "upstream", vars, { reachesLocal: true, ...more });
const server = await front({ SEMEL_UPSTREAM: `${url}/v1/` });
/** This one gives up on an answer after a second. */
const impatient = await front({ SEMEL_UPSTREAM: url, SEMEL_UPSTREAM_TIMEOUT_SECONDS: "1" });

const change = (to, what) => to.send("POST", `/${what}`, { id: randomUUID(), body: "x" });
const lines = (...head) => `${head.join("\r\n")}\r\n\r\n`;

test("a request is sent below the path of its origin and to no other host, whatever path a client sends", LIMIT, async () => {
  for (const target of ["/../secret", "/%2e%2e/secret", "/a/%2e%2e/%2E./../secret", "http://169.254.169.254/secret"]) {
    seen.length = 0;
    await server.raw(lines(`GET ${target} HTTP/1.1`, "host: elsewhere.example", "connection: close"));
    assert.deepEqual(seen.map(({ url, headers }) => [url, `http://${headers.host}`]), [["/v1/secret", url]], target);
  }
  seen.length = 0;
  for (const target of ["//elsewhere.example/x", "/a%2f..%2f..%2fsecret"]) {
    assert.match(await server.raw(lines(`GET ${target} HTTP/1.1`, "host: x", "connection: close")), /^HTTP\/1\.1 400 /, target);
  }
  assert.deepEqual(seen, []);
});

test("headers named in Connection, and headers of a connection or of this layer in an answer, go no further", LIMIT, async () => {
  seen.length = 0;
  await server.raw(lines("GET /named HTTP/1.1", "host: x", "connection: close, x-named", "x-named: 1", "te: trailers", "x-own: 1"));
  const [{ headers }] = seen;
  assert.deepEqual([headers["x-named"], headers.te, headers["x-own"]], [undefined, undefined, "1"]);
  const answer = await change(server, "headers");
  assert.deepEqual([answer.status, answer.semel, answer.text, answer.headers.get("x-own")], [200, "executed", "own", "1"]);
  assert.deepEqual(["x-named", "proxy-authenticate"].map((name) => answer.headers.get(name)), [null, null]);
  assert.deepEqual(["semel-key", "idempotent-replayed"].map((name) => answer.headers.get(name)), ['"headers"', "false"]);
});

test("an answer that is compressed all the same is recorded decoded, or with its encoding if it can't be decoded", LIMIT, async () => {
  const answer = await change(server, "zipped");
  assert.deepEqual([answer.status, answer.semel, answer.text, answer.headers.get("content-encoding")], [200, "executed", '{"zipped":true}', null]);
  // With the encoding written like this, the runtime decodes nothing, so the client has to.
  const undecoded = await change(server, "ZIPPED");
  assert.deepEqual([undecoded.text, undecoded.headers.get("content-encoding")], ['{"zipped":true}', "GZIP"]);
  // Before its compatibility date for brotli, the runtime did not decode it, and before another it refused the option that keeps the cache out. A
  // deployment may have such a date.
  const old = await front({ SEMEL_UPSTREAM: url }, { compatibilityFlags: ["no_brotli_content_encoding", "cache_option_disabled"] });
  for (const [by, encoding] of [[server, null], [old, "br"]]) {
    const { text, headers } = await change(by, "br");
    assert.deepEqual([text, headers.get("content-encoding")], ['{"br":true}', encoding]);
  }
});

test("an empty answer that claims to be compressed is still an answer", LIMIT, async () => {
  const answer = await change(server, "zipped-nothing");
  assert.deepEqual([answer.status, answer.semel, answer.text, answer.headers.get("content-encoding")], [201, "executed", "", null]);
  const read = await server.send("GET", "/zipped-nothing");
  assert.deepEqual([read.status, read.semel, read.text], [201, "read", ""]);
});

test("the answer to a HEAD has the length that the API tells, unless that is of an encoded body or of no answer to pass on", LIMIT, async () => {
  const headed = async (what) => {
    const { status, semel, headers } = await server.send("HEAD", `/${what}`);
    return [status, semel, headers.get("content-length")];
  };
  assert.deepEqual(await headed("long"), [200, "read", String(1 << 21)]);
  // A GET is answered with the decoded body, whose length nobody has told.
  assert.deepEqual(await headed("zipped-long"), [200, "read", null]);
  const [status, semel, length] = await headed("broken");
  assert.deepEqual([status, semel], [503, "unavailable"]);
  assert.notEqual(length, "1000");
});

test("an answer that is late or cut off leaves a change in doubt, and makes a read unavailable", LIMIT, async () => {
  // Of an empty body that should be gzip, the runtime says what it says of one that was cut off.
  for (const what of ["never", "half", "zipped-unsaid"]) {
    const answer = await change(impatient, what);
    assert.deepEqual([answer.status, answer.json.code, answer.json.executed], [409, "outcome-unknown", "unknown"], what);
    const read = await impatient.send("GET", `/${what}`);
    assert.deepEqual([read.status, read.semel], [503, "unavailable"], what);
  }
});

test("settings may be numbers, booleans and JSON, as wrangler hands them over", LIMIT, async () => {
  const typed = await front({ SEMEL_UPSTREAM: url, SEMEL_UPSTREAM_TIMEOUT_SECONDS: 5, SEMEL_UPSTREAM_CONNECT_FIRST: true, SEMEL_UPSTREAM_ROUTES: [{ path: "/shops/:shop", key: "{shop}" }] });
  const answer = await change(typed, "shops/5");
  assert.deepEqual([answer.status, answer.semel, answer.headers.get("semel-key")], [201, "executed", '"5"'], typed.log);
  const alg = signer("HS256");
  const keyed = await front({ SEMEL_UPSTREAM: url, SEMEL_OPEN: false, SEMEL_JWT_KEYS: JSON.parse(jwks(alg)), SEMEL_JWT_AUDIENCE: AUDIENCE });
  assert.equal((await keyed.send("POST", "/shops/5", { id: randomUUID(), body: "x", as: alg.token({ sub: "alice" }) })).semel, "executed", keyed.log);
});

test("with a setting that can't be read nothing is sent, a change is unavailable, and the log names the setting", LIMIT, async () => {
  for (const [vars, says, more] of [
    [{}, /SEMEL_UPSTREAM is not set, and no service is bound as UPSTREAM/],
    [{ SEMEL_UPSTREAM: "example.com" }, /SEMEL_UPSTREAM must be an origin, with a path at most/],
    [{ SEMEL_UPSTREAM: url, SEMEL_UPSTREAM_METHOD: "handle" }, /SEMEL_UPSTREAM_METHOD is for a service that is bound as UPSTREAM, and SEMEL_UPSTREAM is set/],
    [{ SEMEL_UPSTREAM: "ftp://example.com" }, /SEMEL_UPSTREAM must be an origin, with a path at most/],
    [{ SEMEL_UPSTREAM: `${url}?a=1` }, /SEMEL_UPSTREAM must be an origin, with a path at most/],
    [{ SEMEL_UPSTREAM: url, SEMEL_UPSTREAM_TIMEOUT_SECONDS: "soon" }, /SEMEL_UPSTREAM_TIMEOUT_SECONDS is \\"soon\\"; it must be above 0, and at most 600/],
    [{ SEMEL_UPSTREAM: url, SEMEL_UPSTREAM_ROUTES: '[{"path":"orders"}]' }, /SEMEL_UPSTREAM_ROUTES: route 1: path \\"orders\\" is not as/],
    [{ SEMEL_UPSTREAM: url }, /SEMEL_UPSTREAM is set, and a service is bound as UPSTREAM/, { services: { UPSTREAM: BOUND } }],
    [{ SEMEL_UPSTREAM: url, SEMEL_UPSTREAM_ROUTES: '[{"path":"/orders","methods":["post"]}]' }, /SEMEL_UPSTREAM_ROUTES: route 1: methods has \\"post\\"; it may have GET/],
    [{ SEMEL_UPSTREAM: url, SEMEL_UPSTREAM_CONNECT_FIRST: "yes" }, /SEMEL_UPSTREAM_CONNECT_FIRST is \\"yes\\"; it must be true or false/],
    [{ SEMEL_UPSTREAM: url, SEMEL_UPSTREAM_CONNECT_FIRST: "toString" }, /SEMEL_UPSTREAM_CONNECT_FIRST is \\"toString\\"; it must be true or false/],
    [{ SEMEL_UPSTREAM: url, SEMEL_UPSTREAM_TIMEOUT_SECONDS: true }, /SEMEL_UPSTREAM_TIMEOUT_SECONDS is true; it must be above 0, and at most 600/],
    [{ SEMEL_UPSTREAM: url, SEMEL_UPSTREAM_ROUTES: [{ path: "orders" }] }, /SEMEL_UPSTREAM_ROUTES: route 1: path \\"orders\\" is not as/],
    [{ SEMEL_UPSTREAM: url, SEMEL_UPSTREAM_AUTHORIZATION: "Bearer sword\nfish" }, /SEMEL_UPSTREAM_AUTHORIZATION can't be the value of a header/],
  ]) {
    const wrong = await front(vars, more);
    seen.length = 0;
    for (const nth of [1, 2]) {
      const answer = await change(wrong, "orders");
      assert.deepEqual([answer.status, answer.semel, seen.length], [503, "unavailable", 0], JSON.stringify(vars));
      await wrong.line(says, nth);
    }
    const health = await wrong.send("GET", "/semel/v1/health");
    assert.deepEqual([health.status, health.semel], [503, "unavailable"], JSON.stringify(vars));
    assert.doesNotMatch(wrong.log, /sword|fish/);
    await wrong.kill();
  }
});
