// What an operator sees: lines of the log, Server-Timing, traces. On workerd, with the probe.

import assert from "node:assert/strict";
import { createHash, randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { serve } from "./server.mjs";

const TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const SECRET = "a-secret-that-nobody-prints";

const server = await serve(after, "probe", { SEMEL_LOG_SAMPLE: "1" });
const key = '"logged/alice"';
const hash = createHash("sha256").update("logged/alice").digest("hex").slice(0, 16);

/** The lines printed so far, each read as JSON. What is after the last line break may be incomplete, and is left out. */
const linesOf = ({ log }) =>
  log
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line));

/** Resolves once all that was printed until now has been read. Lines come in order, and the line of a failure always comes. */
async function printed(from = server) {
  const id = randomUUID();
  await from.send("POST", "/fail", { id, key: '"printed"' });
  await from.lineOf(id);
}

const linesOfId = (id, from = server) => linesOf(from).filter((line) => line.id === id);

test("an answer has one line in the log, without a header, body, principal or key", async () => {
  const id = randomUUID();
  const before = Date.now();
  for (let time = 0; time < 2; time += 1) await server.send("POST", "/echo", { id, key, as: SECRET, body: SECRET, headers: { "x-secret": SECRET, traceparent: TRACE } });
  await printed();
  const lines = linesOfId(id);
  for (const [line, code] of [[lines[0], "executed"], [lines[1], "replayed"]]) {
    const { time, ms, ...rest } = line;
    assert.deepEqual(rest, { level: "info", by: "object", method: "POST", key: hash, id, code, status: 200, traceparent: TRACE });
    assert.ok(time >= before && time <= Date.now() && ms >= 0 && ms <= Date.now() - before);
  }
  assert.equal(lines.length, 2);
  assert.ok(!server.log.includes(SECRET) && !server.log.includes("alice"), "no header, body, principal or key");
});

test("the router writes the log line of a request that it refuses itself", async () => {
  const id = randomUUID();
  await server.send("POST", "/unhandled", { id });
  await printed();
  assert.deepEqual(linesOfId(id).map(({ by, code, status }) => [by, code, status]), [["router", "not-found", 404]]);
});

test("the registry writes the log line of a request to it, with the time that it took", async () => {
  const [id, before] = [randomUUID(), Date.now()];
  await server.admin("POST", "forget", { id, body: "{}" });
  await printed();
  const [{ by, code, ms }, ...more] = linesOfId(id);
  assert.deepEqual([by, code, more], ["registry", "body-invalid", []]);
  assert.ok(ms >= 0 && ms <= Date.now() - before, `${ms} ms`);
});

test("an object that answers too late writes no log line beside the one of the router", async () => {
  for (const [path, code] of [["/echo", "replayed"], ["/fail", "rolled-back"]]) {
    const id = randomUUID();
    const late = await server.send("POST", path, { id, key, headers: { "probe-object": "late 2500", prefer: "wait=1" } });
    assert.equal(late.semel, "unavailable");
    assert.equal((await server.send("POST", path, { id, key })).semel, code);
    await printed();
    assert.deepEqual(linesOfId(id).map(({ by, code }) => [by, code]), [["router", "unavailable"], ["object", code]]);
  }
});

test("the log line that goes with an answer never reaches the client", async () => {
  for (const [method, path, body] of [["POST", "/echo"], ["POST", "/fail"], ["GET", "/echo"], ["POST", "/unhandled"], ["GET", "/semel/v1/admin/keys"], ["POST", "/semel/v1/keys/logged%2Falice/batch", "[]"]]) {
    const { headers } = await server.send(method, path, { id: body ? undefined : randomUUID(), key: path === "/echo" ? key : undefined, body });
    assert.equal(headers.get("semel-line"), null, path);
    assert.doesNotMatch(headers.get("access-control-expose-headers") ?? "", /semel-line/i);
  }
});

test("a crash has log lines of its place and of its requests, even if nothing is sampled", async (t) => {
  const quiet = await serve((end) => t.after(end), "probe", { SEMEL_LOG_SAMPLE: "0" });
  const id = randomUUID();
  const codes = [];
  for (let time = 0; time < 4; time += 1) codes.push((await quiet.send("POST", "/panic", { id, key })).semel);
  await quiet.send("POST", "/fail", { id: "fails", key });
  await quiet.send("POST", "/echo", { id: "quiet", key });
  await printed(quiet);
  assert.deepEqual(linesOfId(id, quiet).map(({ level, code }) => [level, code]), codes.map((code) => [code === "poisoned" ? "warn" : "error", code]));
  assert.match(linesOfId(id, quiet)[0].message, /the handler crashed on .* 1 of 3 times/);
  assert.match(linesOfId("fails", quiet)[0].message, /the probe was asked to fail/);
  assert.deepEqual(linesOfId("quiet", quiet), []);
  const crashes = linesOf(quiet).filter(({ message = "" }) => message.includes("panicked at"));
  assert.equal(crashes.length, 3);
});

test("a sample of the log has all attempts of a request or none, also after a restart", async (t) => {
  const half = await serve((end) => t.after(end), "probe", { SEMEL_LOG_SAMPLE: "0.5" });
  const ids = Array.from({ length: 60 }, () => randomUUID());
  const sampled = [];
  for (let time = 0; time < 2; time += 1) {
    for (const id of ids) await half.send("POST", "/echo", { id, key });
    await printed(half);
    sampled.push(ids.filter((id) => linesOfId(id, half).length > 0));
    // The log begins anew, and what was executed is replayed from now on.
    await half.restart();
  }
  const [first, second] = sampled;
  assert.deepEqual(first, second);
  assert.ok(first.length > 10 && first.length < 50, `${first.length} of 60`);
});

test("nothing that a client sends ends a line of the log, begins one or leaves its field", async () => {
  const forged = '{"level":"error","message":"forged"}';
  const id = `${forged}\\" \\\\`;
  await server.send("POST", "/echo", { id: `"${id.replace(/["\\]/g, "\\$&")}"`, key });
  await printed();
  assert.equal(linesOfId(id).length, 1);
  const wild = encodeURIComponent("\u001b[2J\u009b31m\u2028\u2029caf\u00e9");
  await server.send("POST", `/echo?${wild}`, { id: randomUUID(), key: `"${wild}"`, headers: { traceparent: `${TRACE}-${forged}` } });
  await server.send("POST", `/fail/${wild}`, { id: randomUUID() });
  await server.raw(`POST /echo HTTP/1.1\r\nHost: x\r\nIdempotency-Key: "a\tb"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
  await printed();
  assert.ok(!linesOf(server).some(({ message }) => message === "forged"), "each line is a document of the layer's own");
  assert.ok(!/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029]/.test(server.log));
  assert.ok(!linesOf(server).some(({ traceparent }) => traceparent !== undefined && traceparent !== TRACE));
});

test("a valid traceparent reaches the handler, and a malformed one does not", async () => {
  const echo = (traceparent) => server.send("POST", "/echo", { id: randomUUID(), key, headers: { traceparent } });
  assert.equal((await echo(TRACE)).headers.get("traceparent"), TRACE);
  for (const bad of ["00-zz", TRACE.toUpperCase(), `${TRACE},${TRACE}`, ""]) assert.equal((await echo(bad)).headers.get("traceparent"), null, bad);
});

test("Server-Timing has the time of the object and the total, and Timing-Allow-Origin agrees with CORS", async () => {
  for (const [method, path] of [["POST", "/echo"], ["GET", "/echo"], ["GET", "/semel/v1/health"], ["POST", "/unhandled"]]) {
    const { headers } = await server.send(method, path, { id: randomUUID(), key: path === "/echo" ? key : undefined });
    assert.match(headers.get("server-timing"), path === "/echo" ? /^object;dur=\d+, total;dur=\d+$/ : /^total;dur=\d+$/);
    assert.equal(headers.get("timing-allow-origin"), headers.get("access-control-allow-origin"));
  }
});
