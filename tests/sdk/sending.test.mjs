// Tests when the SDK sends, how often, and with which first-sent and deadline.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Rows, Stub, deposit, hang, lost, outbox, until } from "./stub.mjs";
import { inTimeOfItsOwn } from "./timing.mjs";

const DAY_MS = 86_400_000;

test("nothing is sent before the change that stored the request has resolved", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  // The first request is made without the server's clock, the second with it: they take different paths.
  for (const account of ["first", "second"]) {
    const before = server.calls.length;
    let isOpen = false;
    let open;
    const gate = new Promise((resolve) => (open = resolve));
    store.before = () => gate;
    server.each = (call, serve) => {
      assert.ok(isOpen, `${call.kind} was sent before ${account} was stored`);
      return serve();
    };
    const answered = deposit(semel, account);
    await new Promise((resolve) => setTimeout(resolve, 30));
    assert.deepEqual([server.calls.length, store.holds(account)], [before, false], account);
    isOpen = true;
    open();
    assert.equal((await answered).status, 200);
  }
});

test("each attempt follows a change of its row, which is stored then", async (t) => {
  const store = new Rows();
  const server = new Stub();
  const { semel } = await outbox(t, { store, server });
  server.each = (call, serve) => {
    if (call.kind === "change") store.log.push(["attempt", call.id, store.rows.has(call.id)]);
    return call.kind === "change" && call.n % 4 !== 0 ? lost() : serve();
  };
  await deposit(semel);
  await deposit(semel);
  const attempts = store.log.flatMap(([what], index) => (what === "attempt" ? [index] : []));
  assert.equal(attempts.length, 8);
  for (const index of attempts) {
    const [, id, isStored] = store.log[index];
    assert.ok(isStored, "the row is there");
    assert.deepEqual(store.log[index - 1], ["change", id, "put"], JSON.stringify(store.log));
  }
});

test("a row is settled only after the caller has the answer, and until then it is as it was sent", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  let answered = false;
  let sent;
  server.each = (call, serve) => {
    if (call.kind === "change") {
      sent = store.rows.get(call.id);
      store.before = async () => {
        await new Promise((resolve) => setImmediate(resolve));
        assert.ok(answered, "the caller has the answer");
        assert.equal(store.rows.get(call.id), sent);
      };
    }
    return serve();
  };
  await deposit(semel);
  answered = true;
  const [{ id }] = server.attempts;
  assert.equal(store.rows.get(id), sent);
  await until(() => store.rows.get(id) !== sent, "it is settled");
  assert.deepEqual(store.log.at(-1), ["change", id, "put"], "what is left waits to be acknowledged");
  assert.equal(server.record("accounts/a", id).state, "executed");
  assert.ok(!store.holds("amount"), "the request itself is gone");
});

test("a row that the store fails to settle is settled later, and its caller has the answer before", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  let failures = 0;
  server.each = async (call, serve) => {
    if (call.kind === "change") store.before = async () => assert.ok((failures += 1) > 3, "the store fails");
    return serve();
  };
  assert.equal((await deposit(semel)).status, 200);
  assert.deepEqual((await semel.pending()).map(({ state }) => state), ["answered"]);
  await until(async () => (await semel.pending()).length === 0, "it is settled");
  assert.deepEqual([failures, server.attempts.length], [4, 1]);
});

test("all attempts are the same but for a later deadline: one id, one first-sent, one body", async (t) => {
  const { semel, server } = await outbox(t);
  server.each = (call, serve) => (call.kind === "change" && call.n < 5 ? lost() : serve());
  await deposit(semel, "a", { headers: { "content-type": "application/json", "x-own": "1" } });
  const seen = server.attempts.map(({ method, path, headers, body }) => {
    const all = Object.fromEntries(headers);
    assert.match(all["semel-deadline"], /^\d{13}$/);
    delete all["semel-deadline"];
    return { method, path, body, ...all };
  });
  assert.equal(seen.length, 5);
  for (const each of seen) assert.deepEqual(each, seen[0]);
  assert.deepEqual(Object.keys(seen[0]).sort(), ["body", "content-type", "idempotency-key", "method", "path", "semel-first-sent", "semel-principal", "x-own"]);
  assert.match(seen[0]["idempotency-key"], /^"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"$/);
  const deadlines = server.attempts.map(({ deadline }) => deadline);
  assert.deepEqual(deadlines, [...new Set(deadlines)].sort(), "each is later than the one before");
});

test("a body of any kind is sent byte for byte, with its type, on every attempt", async (t) => {
  const { semel, server } = await outbox(t);
  const form = new FormData();
  form.append("a", new Blob(["\0ÿ"]), "file");
  const bodies = [new Uint8Array([0, 255, 10]), "ä", new URLSearchParams({ a: "ü" }), form, new Blob(["x"], { type: "text/x" }), undefined];
  for (const body of bodies) {
    server.calls.length = 0;
    server.each = (call, serve) => (call.n < 2 ? lost() : serve());
    const expected = new Request("https://x", { method: "PUT", body });
    const type = expected.headers.get("content-type");
    const bytes = Buffer.from(await expected.arrayBuffer()).toString("latin1");
    await semel.fetch("/bodies", { method: "PUT", body });
    const [one, other] = server.attempts.map((call) => [call.headers.get("content-type"), call.body]);
    assert.deepEqual(one, other);
    // Each Request has a random boundary.
    if (body !== form) assert.deepEqual(one, [type, bytes]);
    else assert.equal(one[0].split("=")[0], type.split("=")[0]);
  }
});

test("no attempt follows a redirect, and a lost attempt is sent again to the same address", async (t) => {
  const { semel, server } = await outbox(t);
  server.each = (call, serve) => (call.kind === "change" && call.n === 1 ? lost() : serve());
  await semel.fetch("/accounts/a/deposit?x=1&y=%20", { method: "PATCH", body: "1" });
  assert.deepEqual(server.attempts.map(({ init }) => init.redirect), ["manual", "manual"]);
  assert.deepEqual(server.attempts.map(({ origin, path }) => origin + path), Array(2).fill("https://worker.test/accounts/a/deposit?x=1&y=%20"));
});

test("health is asked again until it tells the clock, and nothing else is sent before", async (t) => {
  const { semel, server } = await outbox(t);
  const strange = [() => new Response("<h1>Log in</h1>"), lost, () => new Response("{}", { headers: { "semel-status": "read" } })];
  server.aheadMs = 5 * DAY_MS;
  server.each = (call, serve) => {
    if (call.kind !== "health" || call.n > strange.length) return serve();
    return strange[call.n - 1]();
  };
  await deposit(semel);
  assert.deepEqual(server.calls.map(({ kind }) => kind), ["health", "health", "health", "health", "change"]);
  const [{ init, headers }] = server.calls;
  assert.deepEqual([init.body, headers.has("idempotency-key"), headers.has("semel-principal")], [undefined, false, false]);
  const [{ firstSent, deadline }] = server.attempts;
  assert.ok(Math.abs(Number(firstSent.slice(1)) * 1000 - server.now()) < 5_000, firstSent);
  assert.ok(Math.abs(deadline - server.now() - 10_000) < 5_000, String(deadline));
});

test("an answer to health that a cache has kept does not set the clock", async (t) => {
  const server = new Stub();
  const kept = new Map();
  server.each = async (call, serve) => {
    if (call.method !== "GET") return serve();
    if (!kept.has(call.origin + call.path)) kept.set(call.origin + call.path, await serve());
    return kept.get(call.origin + call.path).clone();
  };
  for (const aheadMs of [0, 3 * DAY_MS]) {
    server.aheadMs = aheadMs;
    const { semel } = await outbox(t, { server });
    await deposit(semel);
    const { firstSent } = server.attempts.at(-1);
    assert.ok(Math.abs(Number(firstSent.slice(1)) * 1000 - server.now()) < 5_000, firstSent);
  }
});

for (const [name, status, code, aheadMs] of [
  ["408 attempt-expired", 408, "attempt-expired", DAY_MS],
  ["400 key-invalid for a deadline too far ahead", 400, "key-invalid", -DAY_MS],
]) {
  test(`${name} teaches the client the clock of that key alone, at once`, async (t) => {
    const onpaused = ({ error }) => assert.fail(error.message);
    const { semel, server } = await outbox(t, { onpaused });
    const seen = [];
    server.each = async (call, serve) => {
      const answer = await serve();
      if (call.kind === "change") seen.push([call.key, answer.status, answer.headers.get("semel-status"), Math.round((call.deadline - Date.now()) / DAY_MS)]);
      return answer;
    };
    server.aheadMsOfKeys.set("accounts/off", aheadMs);
    const away = Math.sign(aheadMs);
    assert.equal((await deposit(semel, "off")).status, 200);
    assert.equal((await deposit(semel, "off")).status, 200);
    assert.equal((await deposit(semel, "on")).status, 200);
    assert.deepEqual(seen, [
      ["accounts/off", status, code, 0],
      ["accounts/off", 200, "executed", away],
      ["accounts/off", 200, "executed", away],
      ["accounts/on", 200, "executed", 0],
    ]);
    const [first, second] = server.attempts;
    assert.deepEqual([first.id, first.firstSent], [second.id, second.firstSent]);
  });
}

test("key-invalid for anything but a deadline pauses the request", async (t) => {
  const told = [];
  const { semel, server } = await outbox(t, { onpaused: (paused) => told.push(paused) });
  server.each = (call, serve) => (call.kind === "change" && call.n === 1 ? server.problem(call.key, 400, "key-invalid", { executed: "no", retry: "after-fix" }) : serve());
  const answered = deposit(semel);
  const [paused] = await until(() => told.length > 0 && told, "it pauses");
  paused.resume();
  assert.equal((await answered).status, 200);
});

/** Runs `play` with an outbox that has a simulated clock, so the time between two attempts is exact, however busy the machine is. */
async function timed(t, options, play) {
  // This loads the wasm module beforehand, which takes real time.
  await outbox(t);
  await inTimeOfItsOwn(Math.random, async () => {
    const made = await outbox(t, options);
    await play(made);
    await made.semel.close();
  });
}

/** The times from the end of each attempt to the start of the next. */
const pausesOf = ({ attempts }) => attempts.slice(1).map(({ startedMs }, index) => startedMs - attempts[index].endedMs);

describe("the pause between two attempts", () => {
  test("is retryIntervalMs from the end of one to the start of the next, and does not grow", (t) =>
    timed(t, { retryIntervalMs: 25 }, async ({ semel, server }) => {
      const ATTEMPTS = 21;
      server.each = async (call, serve) => {
        if (call.kind !== "change" || call.n === ATTEMPTS) return serve();
        await new Promise((resolve) => setTimeout(resolve, 5));
        return call.n % 2 ? lost() : server.problem(call.key, 500, "rolled-back", { executed: "no" });
      };
      await deposit(semel);
      assert.deepEqual(pausesOf(server), Array(ATTEMPTS - 1).fill(25));
    }));

  test("is the longer of Retry-After and retryIntervalMs", (t) =>
    timed(t, { retryIntervalMs: 40 }, async ({ semel, server }) => {
      const after = ["1", "0", "soon"];
      server.each = (call, serve) => {
        if (call.kind !== "change" || call.n > after.length) return serve();
        return server.problem(call.key, 503, "unavailable", { headers: { "retry-after": after[call.n - 1] } });
      };
      await deposit(semel);
      assert.deepEqual(pausesOf(server), [1_000, 40, 40]);
    }));

  test("is Retry-After even for a request that is given up before its key is known", (t) =>
    timed(t, { retryIntervalMs: 40 }, async ({ semel, server }) => {
      const giveUp = new AbortController();
      server.each = (call, serve) => {
        if (call.kind !== "change" || call.n > 2) return serve();
        if (call.n === 2) return problemWithoutKey(server);
        giveUp.abort();
        return lost();
      };
      await assert.rejects(deposit(semel, "a", { signal: giveUp.signal }), { code: "cancelled" });
      assert.equal(pausesOf(server)[1], 1_000);
    }));

  test("is Retry-After also for the cancellation of a request that is aborted from within its refused event", (t) =>
    timed(t, { retryIntervalMs: 40 }, async ({ semel, server }) => {
      const giveUp = new AbortController();
      semel.addEventListener("refused", () => giveUp.abort());
      server.each = (call, serve) => (call.kind === "change" ? server.problem(call.key, 429, "rate-limited", { executed: "no", headers: { "retry-after": "1" } }) : serve());
      await assert.rejects(deposit(semel, "a", { key: "accounts/a", signal: giveUp.signal }), { code: "cancelled", executed: "no" });
      assert.equal(server.of("cancel")[0].startedMs - server.attempts[0].endedMs, 1_000);
    }));

  test("comes after attemptTimeoutMs if the fetch or its body hangs, which is aborted and sent with a later deadline", (t) =>
    timed(t, { attemptTimeoutMs: 150, retryIntervalMs: 10 }, async ({ semel, server }) => {
      const hanging = [
        hang,
        // An answer that never ends doesn't count either.
        () => new Response(new ReadableStream({ pull: hang }), { headers: { "semel-status": "executed" } }),
      ];
      server.each = (call, serve) => (call.kind === "change" ? hanging[call.n - 1]?.() ?? serve() : serve());
      assert.equal((await deposit(semel)).status, 200);
      const [first, second, third] = server.attempts;
      assert.equal(server.attempts.length, 3);
      for (const [one, next] of [[first, second], [second, third]]) {
        assert.ok(one.init.signal.aborted, "it was aborted");
        assert.deepEqual([one.id, one.firstSent], [next.id, next.firstSent]);
        assert.deepEqual([next.startedMs - one.startedMs, next.deadline - one.deadline], [160, 160]);
      }
      assert.equal(third.init.signal.aborted, false);
    }));

  test("comes after attemptTimeoutMs even if the fetch ignores its signal, and its late answer counts for nothing", async (t) => {
    const server = new Stub();
    let late;
    const fetch = (url, init) => {
      if (late || new URL(url).pathname.startsWith("/semel/")) return server.fetch(url, init);
      return new Promise((resolve) => (late = resolve));
    };
    const { semel } = await outbox(t, { server, fetch, attemptTimeoutMs: 100 });
    const answered = deposit(semel);
    await until(() => late, "it was sent");
    server.each = async (call, serve) => {
      late(new Response("late", { status: 409, headers: { "semel-status": "executed" } }));
      await new Promise((resolve) => setTimeout(resolve, 10));
      return serve();
    };
    assert.equal((await answered).status, 200);
  });
});

function problemWithoutKey(server) {
  return server.problem(undefined, 503, "unavailable", { headers: { "retry-after": "1" } });
}

for (const [which, setMs] of [["forward", 60_000], ["back", -60_000]]) {
  test(`after the clock was set ${which} health is asked once more, and not for each later request`, async (t) => {
    const { now } = Date;
    let aheadMs = 0;
    t.mock.method(Date, "now", () => now() + aheadMs);
    const { semel, server } = await outbox(t);
    // Without this, a failing SDK would ask for the clock without end, and no timer would run.
    server.each = (call, serve) => (call.kind === "health" && call.n > 9 ? hang() : serve());
    await deposit(semel);
    const before = server.of("health").length;
    aheadMs = setMs;
    for (let time = 0; time < 5; time += 1) await deposit(semel);
    assert.equal(server.of("health").length - before, 1);
    assert.equal(server.attempts.length, 6);
  });
}

test("each of many large requests that leave at the same time is sent with its own body", async (t) => {
  let go;
  const gate = new Promise((resolve) => (go = resolve));
  let asked = 0;
  const { semel, server } = await outbox(t, { headers: async () => ((asked += 1) > 2 && (await gate), {}) });
  await deposit(semel, "first");
  [asked, server.calls.length] = [2, 0];
  const bodies = Array.from({ length: 20 }, (_, number) => String.fromCharCode(97 + number).repeat(100_000 + number));
  const calls = bodies.map((body, number) => deposit(semel, `${number}`, { body }));
  await until(() => asked >= 22, "all are about to leave");
  go();
  await Promise.all(calls);
  const brief = (all) => all.map((body) => `${body[0]} ${body.length}`).toSorted();
  assert.deepEqual(brief(server.attempts.map(({ body }) => body)), brief(bodies));
});
