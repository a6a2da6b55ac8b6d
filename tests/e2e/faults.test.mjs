// What goes wrong in and around an object: each with its code, nothing lost, and no caller waits past its deadline. On workerd.
// The faults of the storage are in `tests/engine/tests/faults.rs`, a process that is killed in `once.test.mjs`, a disk that
// really is full in the chaos run.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { connect } from "node:net";
import { after, test } from "node:test";
import { serve } from "./server.mjs";

const server = await serve(after, "probe");
/** So long after its deadline, at most, a caller has its answer: what the machine takes while others use it as well. */
const LATE_MS = 1_500;
const DEADLINE_MS = 600;

const fault = (what) => ({ "probe-object": what });
const change = (key, options = {}) => server.send("POST", "/echo", { id: randomUUID(), key, ...options });
const runs = async (key) => Number((await server.send("GET", "/runs", { key })).text) - 1;

/** Checks that an attempt is answered by its deadline, and with what. */
async function answersInTime(send) {
  const begunMs = Date.now();
  const answer = await send(begunMs + DEADLINE_MS);
  const tookMs = Date.now() - begunMs;
  assert.ok(tookMs < DEADLINE_MS + LATE_MS, `${tookMs} ms`);
  return answer;
}

function assertUnavailable(answer) {
  assert.deepEqual([answer.status, answer.semel, answer.json.executed, answer.json.retry], [503, "unavailable", "unknown", "same-id"]);
  assert.equal(answer.headers.get("retry-after"), "1");
  assert.equal(answer.headers.get("semel-key"), null);
}

test("an object that hangs: the caller has its answer by its deadline, and the id goes on", async () => {
  const [key, id] = ['"hangs"', randomUUID()];
  // The first request of a server may take longer than the deadline of this one, on a busy machine: whose deadline is over on arrival waits as long as it asked.
  await change('"warm"');
  assertUnavailable(await answersInTime((deadline) => change(key, { id, deadline, headers: fault("hangs") })));
  assert.equal((await change(key, { id })).semel, "executed");
  assert.equal(await runs(key), 1);
});

test("an object that is busy: who waits behind it has its answer by its deadline, and what was late does not run later", async () => {
  const key = '"busy"';
  await change(key);
  const busy = change(key, { headers: fault("busy 3000") });
  const ids = Array.from({ length: 20 }, () => randomUUID());
  // All of them are on their way before the first is late.
  for (const answer of await answersInTime((deadline) => Promise.all(ids.map((id) => change(key, { id, deadline }))))) assertUnavailable(answer);
  assert.equal((await busy).semel, "executed");
  // Behind the late attempts: they were judged before this one is.
  assert.equal(await runs(key), 2);
  for (const id of ids) assert.equal((await change(key, { id, body: undefined })).semel, "executed");
  assert.equal(await runs(key), 2 + ids.length);
});

test("a wait that is asked for ends as well, where there is no deadline", async () => {
  const begunMs = Date.now();
  assertUnavailable(await change('"waits"', { headers: { ...fault("hangs"), prefer: "wait=1" } }));
  assert.ok(Date.now() - begunMs < 1_000 + LATE_MS);
});

test("a body that comes slowly: the caller has its answer by its deadline, and what comes late has no effect", async () => {
  const [key, id] = ['"slow"', randomUUID()];
  await change(key);
  const { hostname, port } = new URL(server.url);
  const socket = connect({ host: hostname, port: Number(port) });
  const text = await answersInTime(
    (deadline) =>
      new Promise((resolve, reject) => {
        const head = ["POST /echo HTTP/1.1", "Host: localhost", "Content-Length: 60", `Idempotency-Key: ${id}`, `Semel-Key: ${key}`, `Semel-Deadline: ${deadline}`];
        socket.write(`${head.join("\r\n")}\r\n\r\n`);
        // A byte now and then, for three seconds: it is never silent for long, nor done in time.
        let sent = 0;
        const drip = setInterval(() => (sent++ < 60 && socket.writable ? socket.write("x") : clearInterval(drip)), 50);
        socket.once("data", (chunk) => resolve(chunk.toString("latin1")));
        socket.once("error", reject);
        socket.once("close", () => clearInterval(drip));
      }),
  );
  assert.match(text, /^HTTP\/1\.1 503/);
  assert.match(text, /^semel-status: unavailable\r?$/im);
  socket.destroy();
  assert.equal(await runs(key), 1);
  assert.equal((await change(key, { id, body: "x".repeat(60) })).semel, "executed");
});

test("an object that is overloaded: unavailable at once, and nothing ran", async () => {
  const [key, id] = ['"overloaded"', randomUUID()];
  await change(key);
  assertUnavailable(await answersInTime((deadline) => change(key, { id, deadline, headers: fault("overloaded") })));
  assert.equal(await runs(key), 1);
  assert.equal((await change(key, { id })).semel, "executed");
});

for (const when of ["before", "after"]) {
  test(`an object that is reset ${when} it has run a request: unavailable, the effect is gone with its record, and all before it is there`, async () => {
    const [key, id, earlier] = [`"reset ${when}"`.replace(" ", "-"), randomUUID(), randomUUID()];
    const first = await change(key, { id: earlier, body: "first" });
    const beside = change(key, { id: randomUUID() });
    assertUnavailable(await answersInTime((deadline) => change(key, { id, deadline, headers: fault(`reset ${when}`) })));
    // Who was in the same commit is answered too, by its outcome or by what can't be known.
    assert.ok(["executed", "unavailable"].includes((await beside).semel));
    const before = await runs(key);
    assert.equal((await change(key, { id })).semel, "executed");
    assert.equal(await runs(key), before + 1);
    const again = await change(key, { id: earlier, body: "first" });
    assert.deepEqual([again.semel, again.text], ["replayed", first.text]);
  });
}
