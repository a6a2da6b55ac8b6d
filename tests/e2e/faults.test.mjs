// Failures in and around an object, on workerd: each is answered with its code, loses nothing, and keeps no caller waiting past its deadline.
// `tests/engine/tests/faults.rs` has failures of the storage, `once.test.mjs` a process that is killed, and the chaos run a disk that really is full.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { connect } from "node:net";
import { after, test } from "node:test";
import { until } from "./lossy.mjs";
import { serve } from "./server.mjs";

const server = await serve(after, "probe");
/** How long after its deadline a caller may get its answer, at most, by the Worker's timers. */
const LATE_MS = 1_500;
const DEADLINE_MS = 600;

const fault = (what) => ({ "probe-object": what });
const clock = async (what) => (await server.send("POST", "/probe/clock", { body: String(what) })).json;
const came = async () => (await server.send("GET", "/probe/came")).json;
const change = (key, options = {}) => server.send("POST", "/echo", { id: randomUUID(), key, ...options });
const runs = async (key) => Number((await server.send("GET", "/runs", { key })).text) - 1;

/**
 * Checks that this many attempts are answered by their deadline, and returns the answers. The Worker's clock stands until they have arrived: an
 * attempt whose deadline is over on arrival waits as long as it asked for, and on a busy machine some would arrive that late.
 */
async function answersInTime(send, count = 1) {
  const deadline = (await clock(`stands for ${count}`)) + DEADLINE_MS;
  const answers = await send({ deadline, headers: { "probe-by": String(DEADLINE_MS + LATE_MS) } });
  for (const { headers } of [answers].flat()) assert.equal(headers.get("probe-in-time"), "yes");
  return answers;
}

function assertUnavailable(answer) {
  assert.deepEqual([answer.status, answer.semel, answer.json.executed, answer.json.retry], [503, "unavailable", "unknown", "same-id"]);
  assert.equal(answer.headers.get("retry-after"), "1");
  assert.equal(answer.headers.get("semel-key"), null);
}

test("an object that hangs: the caller gets unavailable by its deadline, and the id can be sent again", async () => {
  const [key, id] = ['"hangs"', randomUUID()];
  assertUnavailable(await answersInTime(({ deadline, headers }) => change(key, { id, deadline, headers: { ...headers, ...fault("hangs") } })));
  assert.equal((await change(key, { id })).semel, "executed");
  assert.equal(await runs(key), 1);
});

test("an object that is busy: who waits gets unavailable by the deadline, and a late attempt does not run afterwards", async () => {
  const key = '"busy"';
  await change(key);
  const before = await came();
  const busy = change(key, { headers: fault("held busy") });
  await until(async () => (await came()) > before, "it has come");
  const ids = Array.from({ length: 20 }, () => randomUUID());
  for (const answer of await answersInTime((timed) => Promise.all(ids.map((id) => change(key, { id, ...timed }))), ids.length)) assertUnavailable(answer);
  // The Worker's timers ran while its clock stood. Now the clock passes the deadline too.
  await clock(DEADLINE_MS);
  await server.send("POST", "/probe/release", { body: "busy" });
  assert.equal((await busy).semel, "executed");
  // This read is queued behind the late attempts, so they were judged before it runs.
  assert.equal(await runs(key), 2);
  for (const id of ids) assert.equal((await change(key, { id, body: undefined })).semel, "executed");
  assert.equal(await runs(key), 2 + ids.length);
});

test("Prefer: wait=1 ends the wait for an object that hangs, even without a deadline", async () => {
  const answer = await change('"waits"', { headers: { ...fault("hangs"), prefer: "wait=1", "probe-by": String(1_000 + LATE_MS) } });
  assertUnavailable(answer);
  assert.equal(answer.headers.get("probe-in-time"), "yes");
});

test("a body that comes slowly: the caller gets unavailable by its deadline, and the late body has no effect", async () => {
  const [key, id] = ['"slow"', randomUUID()];
  await change(key);
  const { hostname, port } = new URL(server.url);
  const socket = connect({ host: hostname, port: Number(port) });
  const bytes = 1_000;
  const { text } = await answersInTime(
    ({ deadline, headers }) =>
      new Promise((resolve, reject) => {
        const lines = Object.entries({ "content-length": bytes, "idempotency-key": id, "semel-key": key, "semel-deadline": deadline, ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
        socket.write(`POST /echo HTTP/1.1\r\nHost: localhost\r\n${lines.join("")}\r\n`);
        // A byte now and then: the client is never silent for long, and never finishes in time.
        const drip = setInterval(() => socket.writable && socket.write("x"), 50);
        socket.once("data", (chunk) => {
          const text = chunk.toString("latin1");
          const [, ...told] = text.split("\r\n\r\n")[0].split("\r\n");
          resolve({ text, headers: new Headers(told.map((line) => line.split(": "))) });
        });
        socket.once("error", reject);
        socket.once("close", () => clearInterval(drip));
      }),
  );
  assert.match(text, /^HTTP\/1\.1 503/);
  assert.match(text, /^semel-status: unavailable\r?$/im);
  socket.destroy();
  assert.equal(await runs(key), 1);
  assert.equal((await change(key, { id, body: "x".repeat(bytes) })).semel, "executed");
});

test("an object that is overloaded: the caller gets unavailable by its deadline, and nothing ran", async () => {
  const [key, id] = ['"overloaded"', randomUUID()];
  await change(key);
  assertUnavailable(await answersInTime(({ deadline, headers }) => change(key, { id, deadline, headers: { ...headers, ...fault("overloaded") } })));
  assert.equal(await runs(key), 1);
  assert.equal((await change(key, { id })).semel, "executed");
});

for (const when of ["before", "after"]) {
  test(`an object that is reset ${when} it has run a request: unavailable, no effect and no record, earlier records stay`, async () => {
    const [key, id, earlier] = [`"reset ${when}"`.replace(" ", "-"), randomUUID(), randomUUID()];
    const first = await change(key, { id: earlier, body: "first" });
    const beside = change(key, { id: randomUUID() });
    assertUnavailable(await answersInTime(({ deadline, headers }) => change(key, { id, deadline, headers: { ...headers, ...fault(`reset ${when}`) } })));
    // A request in the same commit is answered too: with its outcome, or with `unavailable` because nobody can know.
    assert.ok(["executed", "unavailable"].includes((await beside).semel));
    const before = await runs(key);
    assert.equal((await change(key, { id })).semel, "executed");
    assert.equal(await runs(key), before + 1);
    const again = await change(key, { id: earlier, body: "first" });
    assert.deepEqual([again.semel, again.text], ["replayed", first.text]);
  });
}
