// What a handler may do, even the worst, and what its callers get. On workerd, with the probe.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { serve } from "./server.mjs";

const server = await serve(after, "probe");
const key = '"probe"';
const change = (path, options = {}) => server.send("POST", path, { id: randomUUID(), key, ...options });
const read = (path, options = {}) => server.send("GET", path, { key, ...options });
/** How many changes were kept. The read that asks counts itself too, but that is rolled back. */
const runs = async (options) => Number((await read("/runs", options)).text) - 1;

/** Runs `work`, and checks how many of its changes were kept. */
async function keeps(count, work) {
  const before = await runs();
  await work();
  assert.equal(await runs(), before + count);
}

test("a handler that panics: its caller is answered within its deadline, others run, and the third crash is poisoned", () =>
  keeps(8, async () => {
    const id = randomUUID();
    const crash = () => change("/panic", { id, deadline: Date.now() + 5000 });
    for (const expected of ["rolled-back", "rolled-back", "poisoned", "poisoned"]) {
      const started = Date.now();
      const [answer, ...others] = await Promise.all([crash(), change("/echo"), change("/echo", { key: '"other"' }), change("/echo")]);
      assert.equal(answer.semel, expected);
      assert.equal(answer.json.executed, "no");
      assert.equal(answer.json.retry, expected === "poisoned" ? "never" : "same-id");
      assert.equal(answer.headers.get("semel-key"), key);
      assert.ok(Date.now() - started < 5000, "within the deadline");
      for (const other of others) assert.equal(other.semel, "executed");
    }
    await server.restart();
    assert.equal((await crash()).semel, "poisoned", "it is recorded");
  }));

test("crashes are counted for each id across restarts, and a stack overflow counts as a crash", () =>
  keeps(0, async () => {
    const [one, other] = [randomUUID(), randomUUID()];
    assert.equal((await change("/overflow/0", { id: one })).semel, "rolled-back");
    await server.restart();
    assert.equal((await change("/overflow/0", { id: one })).semel, "rolled-back");
    assert.equal((await change("/overflow/0", { id: other })).semel, "rolled-back");
    assert.equal((await change("/overflow/0", { id: one })).semel, "poisoned");
    assert.equal((await change("/overflow/0", { id: other })).semel, "rolled-back");
  }));

test("a handler that never returns is poisoned after three ends of the process, and no other request is blamed", async (t) => {
  const hung = await serve((end) => t.after(end), "probe");
  const send = (path, id) => hung.send("POST", path, { id, key });
  await send("/echo", "before");
  // Each start is counted before the handler runs, so three starts are three crashes.
  for (let time = 0; time < 3; time += 1) {
    const before = await hung.cpu();
    const lost = assert.rejects(send("/spin", "spins"));
    // Only the spinning takes this much CPU time.
    const limit = Date.now() + 20_000;
    while ((await hung.cpu()) < before + 0.5) assert.ok(Date.now() < limit, "it spins");
    await hung.restart();
    await lost;
    assert.equal((await send("/echo", `after-${time}`)).semel, "executed");
  }
  const poisoned = await send("/spin", "spins");
  assert.deepEqual([poisoned.semel, poisoned.json.executed, poisoned.json.retry], ["poisoned", "no", "never"]);
  for (const id of ["before", "after-0", "after-1", "after-2"]) assert.equal((await send("/echo", id)).semel, "replayed");
});

test("a request that fails without a crash is never poisoned, however often the process restarts", async (t) => {
  const fresh = await serve((end) => t.after(end), "probe");
  for (let time = 0; time < 5; time += 1) {
    assert.equal((await fresh.send("POST", "/fail", { id: "fails", key })).semel, "rolled-back");
    await fresh.restart();
  }
  assert.equal((await fresh.send("POST", "/echo", { id: "fails", key })).semel, "executed");
});

test("a read that panics is answered rolled-back each time, and is never poisoned", () =>
  keeps(0, async () => {
    for (let time = 0; time < 4; time += 1) assert.equal((await read("/panic")).semel, "rolled-back");
  }));

test("rolled-back: an attempt that fails has no effect, is not recorded, and runs again under its id", () =>
  keeps(1, async () => {
    const reasons = { "/late-sql": /the handler failed: malformed JSON/, "/large/1048577": /rolled back: the handler's body has 1048577 bytes, more than 1048576/ };
    for (const path of ["/fail", "/bad-sql", "/late-sql", "/status/500", "/status/302", "/status/199", "/body-and-status/204", "/large/1048577", "/many-headers/70000", "/bad-header"]) {
      const id = randomUUID();
      const answer = await change(path, { id });
      assert.equal(answer.semel, "rolled-back", path);
      assert.deepEqual([answer.status, answer.json.executed, answer.json.retry], [500, "no", "same-id"]);
      assert.equal(answer.headers.get("x-injected"), null);
      assert.equal((await change(path, { id })).semel, "rolled-back", path);
      assert.match(await server.lineOf(id, 2), reasons[path] ?? /rolled back: /, path);
    }
    // A failure is not recorded, so another request under the same id is no mismatch.
    const id = randomUUID();
    await change("/fail", { id });
    assert.equal((await change("/echo", { id })).semel, "executed");
  }));

test("fingerprint-mismatch: the same id with another method", () =>
  keeps(1, async () => {
    const id = randomUUID();
    await change("/echo", { id });
    const other = await server.send("PUT", "/echo", { id, key });
    assert.deepEqual([other.status, other.semel, other.json.executed], [422, "fingerprint-mismatch", "no"]);
  }));

test("unavailable: a change whose body does not come, once the time that Prefer: wait gives is over", () =>
  keeps(0, async () => {
    const head = ["POST /echo HTTP/1.1", "Host: localhost", "Connection: close", "Content-Length: 5", "Idempotency-Key: late", `Semel-Key: ${key}`, "Prefer: wait=1"];
    const answer = await server.raw(`${head.join("\r\n")}\r\n\r\nab`, { end: false });
    assert.match(answer, /^HTTP\/1\.1 503/);
    assert.match(answer, /^semel-status: unavailable\r?$/im);
    assert.match(answer, /^retry-after: 1\r?$/im);
    assert.match(answer, /"executed":"unknown","retry":"same-id"/);
  }));

test("not-found from the handler is no outcome", () =>
  keeps(0, async () => {
    const answer = await change("/nowhere");
    assert.deepEqual([answer.semel, answer.status, answer.json.retry], ["not-found", 404, "after-fix"]);
    assert.equal((await change("/unhandled")).semel, "not-found");
  }));

test("an outcome may be a 4xx, a 204 or 1 MiB large", () =>
  keeps(4, async () => {
    for (const [path, status, bytes] of [
      ["/status/404", 404, 0],
      ["/status/204", 204, 0],
      ["/status/205", 205, 0],
      ["/large/1048576", 200, 1_048_576],
    ]) {
      const id = randomUUID();
      for (const semel of ["executed", "replayed"]) {
        const answer = await change(path, { id });
        assert.deepEqual([answer.semel, answer.status, answer.body.length], [semel, status, bytes]);
      }
    }
  }));

test("headers of an outcome are recorded and replayed unchanged, without those that must not be recorded", async () => {
  const id = randomUUID();
  for (const semel of ["executed", "replayed"]) {
    const answer = await change("/headers", { id });
    const { headers } = answer;
    assert.deepEqual([answer.semel, answer.status, answer.text], [semel, 201, "made"]);
    assert.equal(headers.get("content-type"), "text/plain; charset=utf-8");
    assert.equal(headers.get("x-repeated"), "one, two");
    assert.equal(headers.get("x-empty"), "");
    // workerd writes the values of headers as UTF-8.
    assert.equal(Buffer.from(headers.get("x-latin"), "latin1").toString("utf8"), "caf\u00e9");
    assert.equal(headers.get("location"), "/made/1");
    assert.equal(headers.get("cache-control"), "no-store");
    assert.equal(headers.get("access-control-allow-origin"), "*");
    assert.ok(headers.get("access-control-expose-headers").split(", ").includes("x-latin"));
    assert.match(headers.get("server-timing"), /^object;dur=\d+, total;dur=\d+$/);
    for (const name of ["set-cookie", "date", "x-hop", "keep-alive"]) assert.equal(headers.get(name), null, name);
  }
});

test("a body that the handler has compressed is recorded and replayed as it is", () =>
  keeps(1, async () => {
    const id = randomUUID();
    for (const semel of ["executed", "replayed"]) {
      const answer = await change("/gzip", { id, headers: { "accept-encoding": "gzip" } });
      assert.deepEqual([answer.semel, answer.headers.get("content-encoding"), answer.text], [semel, "gzip", "once"]);
    }
  }));

test("an integer beyond what JavaScript holds exactly fails its statement, read or written, and is never rounded", () =>
  keeps(4, async () => {
    for (const most of ["9007199254740991", "-9007199254740991"]) assert.equal((await change(`/integer/${most}`)).text, most);
    for (const [most, length] of [["9007199254740990", "9007199254740991"], ["-9007199254740991", "-9007199254740990"]]) {
      assert.equal((await change(`/stored/${most}`, { body: "x" })).text, length, "with the number of bytes");
    }
    for (const beyond of ["9007199254740993", "-9007199254740992", "9223372036854775807", "-9223372036854775808"]) {
      for (const path of ["integer", "stored"]) {
        const id = randomUUID();
        assert.equal((await change(`/${path}/${beyond}`, { id, body: "x" })).semel, "rolled-back", beyond);
        assert.match(await server.lineOf(id), /the handler failed: .*BigInt/);
      }
    }
  }));

test("bytes of which there are none are stored as none, and not as nothing", () =>
  keeps(1, async () => assert.equal((await change("/stored/5", { body: "" })).text, "5")));

test("a path that is below /semel/ only once it is decoded goes to the handler", async () => {
  const answer = await change("/%73emel/v1/keys/victim/acks", { body: '{"ids":[]}' });
  assert.deepEqual([answer.semel, answer.headers.get("semel-key")], ["executed", key]);
});

test("any body and content type reaches the handler and comes back, byte for byte", () =>
  keeps(4, async () => {
    const bodies = [
      ["application/octet-stream", Buffer.from(Array.from({ length: 256 }, (_, byte) => byte))],
      ["text/plain; charset=latin1", Buffer.from("caf\u00e9", "latin1")],
      ["multipart/form-data; boundary=X", Buffer.from("--X\r\n\r\n\0\r\n--X--")],
      ["application/octet-stream", Buffer.alloc(1 << 20, 0xff)],
    ];
    for (const [type, body] of bodies) {
      const id = randomUUID();
      for (const semel of ["executed", "replayed"]) {
        const answer = await change("/echo?q=%20", { id, body, headers: { "content-type": type, "x-own": "", "x-twice": "a, b" } });
        assert.equal(answer.semel, semel);
        assert.ok(answer.body.equals(body));
        assert.equal(answer.headers.get("content-type"), type);
        assert.equal(answer.headers.get("x-own"), "");
        assert.equal(answer.headers.get("x-path"), "/echo?q=%20");
      }
    }
  }));

test("a read runs the handler without a record, and what it writes is undone", () =>
  keeps(0, async () => {
    assert.equal((await read("/echo")).semel, "read");
    assert.equal((await read("/echo")).headers.get("semel-expires"), null);
    const head = await server.send("HEAD", "/echo", { key });
    assert.deepEqual([head.status, head.semel, head.body.length], [200, "read", 0]);
    assert.equal((await read("/status/503")).semel, "rolled-back");
  }));

test("a path that no rule names is its own key, and Semel-Key may name another", async () => {
  assert.equal((await change("/who/am/i", { key: undefined })).text, '("who/am/i", "")');
  assert.equal((await change("/who", { key: '"caf%C3%A9"', as: "alice" })).text, '("café", "alice")');
  assert.equal((await change("/who", { key: '"caf%C3%A9"' })).headers.get("semel-key"), '"caf%C3%A9"');
});

test("capacity: a full key refuses new requests, replays its records, and opens after an acknowledgement", async (t) => {
  const small = await serve((end) => t.after(end), "probe", { SEMEL_RECORDS_MAX: "2" });
  const send = (id, options) => small.send("POST", "/echo", { id, key, ...options });
  await send("one");
  await send("two");
  const full = await send("three");
  assert.deepEqual([full.semel, full.status, full.json.executed, full.json.retry], ["capacity", 503, "no", "same-id"]);
  assert.equal(full.headers.get("retry-after"), "1");
  assert.equal((await send("one")).semel, "replayed");
  await send("two", { ack: '"one"' });
  assert.equal((await send("three")).semel, "executed");
});

test("outcome-expired: an id without first-sent is refused after its outcome has expired", async (t) => {
  const short = await serve((end) => t.after(end), "probe", { SEMEL_RETENTION_SECONDS: "3600" });
  const first = await short.send("POST", "/echo", { id: "a", key });
  const expires = Number(first.headers.get("semel-expires").slice(1));
  // A new object begins a sweep with its first request. So that request is sent after the clock was put past the end of the outcome's retention.
  await short.restart();
  const { json: nowMs } = await short.send("POST", "/probe/clock", { body: "0" });
  await short.send("POST", "/probe/clock", { body: String((expires + 1) * 1_000 - nowMs) });
  await short.send("POST", "/echo", { id: "b", key });
  const gone = await short.send("POST", "/echo", { id: "a", key });
  assert.deepEqual([gone.semel, gone.status, gone.json.executed, gone.json.retry], ["outcome-expired", 410, "yes", "never"]);
});

test("with a setting that can't be read every change is unavailable, and the log names the setting", async (t) => {
  const wrong = await serve((end) => t.after(end), "probe", { SEMEL_RETENTION_SECONDS: "for a day" });
  for (const nth of [1, 2]) {
    const answer = await wrong.send("POST", "/echo", { id: "a", key });
    assert.deepEqual([answer.status, answer.semel], [503, "unavailable"]);
    await wrong.line(/SEMEL_RETENTION_SECONDS/, nth);
  }
  assert.doesNotMatch(wrong.log, /restarted/, "nothing crashed");
});
