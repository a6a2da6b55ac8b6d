// Tests how an outbox sends requests that may overlap at a key together: which ones it holds, what is in a batch, and what happens when one fails.
// `gathered-fetch.test.mjs` tests the `fetch` that does this, without an outbox.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { afterEach, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import entry from "../../sdk/npm/semel.js";
import { AT_ONCE, MINUTE_MS, burst, gathering, made, many, overlapping, turns } from "./gathering.mjs";
import { leavePage, page } from "./page-stub.mjs";
import { clock, deposit, hang, lost, outbox, problem, rejection, Rows, Stub, until } from "./stub.mjs";

afterEach(leavePage);

test("requests that find few under way go by themselves, and later ones in one batch once an attempt is answered", async (t) => {
  const { semel, server } = await gathering(t);
  let open;
  const opened = new Promise((resolve) => (open = resolve));
  server.each = async (call, serve) => {
    if (call.kind === "change" && call.n > 1) await opened;
    return serve();
  };
  // The first request comes back at once, and the batch leaves without waiting any longer.
  const calls = burst({ semel, server }, 20);
  await until(() => made(server).includes(16), "those that were held go");
  assert.deepEqual(made(server), [...Array(AT_ONCE).fill("change"), 16]);
  open();
  assert.deepEqual((await calls).map(({ status }) => status), Array(20).fill(200));
  assert.deepEqual([...new Set(server.runs.values())], [1]);
});

test("requests one after another, or a few at a time, are not put into batches", async (t) => {
  const { semel, server } = await gathering(t);
  for (let n = 0; n < 3; n += 1) await overlapping(semel);
  for (let round = 0; round < 3; round += 1) await Promise.all(many(AT_ONCE, () => overlapping(semel)));
  assert.deepEqual(made(server), Array(3 + 3 * AT_ONCE).fill("change"));
  assert.ok(server.calls.every(({ headers, body }) => headers.get("semel-key") === '"accounts/a"' && body === '{"amount":5}'));
});

test("an outbox with few overlapping requests loads no sessions module, and sends each alone if it can't load it", async (t) => {
  const server = new Stub();
  let loads = 0;
  const sessions = async () => {
    loads += 1;
    throw new TypeError("it is not there");
  };
  const Semel = entry(() => readFile(new URL("../../sdk/npm/semel.wasm", import.meta.url)), sessions);
  const semel = await Semel.open({ url: "https://worker.test", fetch: server.fetch, durability: "memory" });
  t.after(() => semel.close());
  for (let n = 0; n < 10; n += 1) await overlapping(semel);
  // Neither ordered requests nor requests that name no key make the outbox load it.
  await Promise.all(many(20, (n) => deposit(semel, `${n % 10}`, { key: `accounts/${n % 10}` })));
  await Promise.all(many(20, () => deposit(semel, "a", { ordered: false })));
  assert.equal(loads, 0);
  assert.ok((await burst({ semel, server }, 20)).every(({ status }) => status === 200));
  assert.ok((await burst({ semel, server }, 20)).every(({ status }) => status === 200));
  assert.deepEqual([loads, server.of("batch").length], [1, 0]);
});

test("a request with a header that no batch takes goes by itself; a service token is a header of the whole batch", async (t) => {
  const { semel, server } = await gathering(t);
  await burst({ semel, server }, 20, () => overlapping(semel, { headers: { "cf-turnstile-response": "a token" } }));
  assert.deepEqual(made(server), Array(20).fill("change"));
  assert.ok(server.calls.every(({ headers }) => headers.get("cf-turnstile-response") === "a token"));
  server.calls.length = 0;
  await burst({ semel, server }, 20, () => overlapping(semel, { headers: { "cf-access-client-id": "a program" } }));
  assert.deepEqual(made(server), [...Array(AT_ONCE).fill("change"), 16]);
  assert.ok(server.calls.every(({ headers }) => headers.get("cf-access-client-id") === "a program"));
});

test("each caller of a batch gets its own answer, in every form that an answer has", async (t) => {
  const { semel, server } = await gathering(t);
  const bytes = Uint8Array.from({ length: 256 }, (_, n) => 255 - n);
  const bodies = [...many(10, (n) => `{"n":${n}}`), "h\u{e9}llo \u{1f980}", "", bytes];
  server.handler = ({ body, path }) => ({ status: 200, body: { path, body } });
  const kinds = [];
  server.each = async (call, serve) => {
    if (call.kind !== "batch") return serve();
    kinds.push(...call.json.map(({ body }) => typeof body));
    const answer = await serve();
    const answers = await answer.json();
    // A key's object answers like this if a body is no text, and if there is no body.
    answers[0] = { ...answers[0], body: { base64: Buffer.from(answers[0].body).toString("base64") } };
    answers[1] = { status: 204, headers: { ...answers[1].headers, "x-own": "h\u{e9}" }, body: "" };
    delete answers[2].headers["content-type"];
    return new Response(JSON.stringify(answers), { headers: answer.headers });
  };
  const answers = await burst({ semel, server }, bodies.length, (n) => overlapping(semel, { body: bodies[n], headers: { "content-type": "text/x", "x-n": `${n}` } }));
  const [batch] = server.of("batch");
  assert.deepEqual([batch.json.length, kinds.at(-1)], [bodies.length - AT_ONCE, "object"]);
  for (const [index, answer] of answers.entries()) {
    assert.equal(answer.url, "https://worker.test/accounts/a/deposit");
    if (index > AT_ONCE + 1) assert.equal(answer.headers.get("content-type"), index === AT_ONCE + 2 ? null : "application/json", "as it was answered");
    if (index === AT_ONCE + 1) assert.deepEqual([answer.status, answer.body, answer.headers.get("x-own")], [204, null, "h\u{e9}"]);
    else assert.deepEqual(await answer.json(), { path: "/accounts/a/deposit", body: Buffer.from(bodies[index]).toString("latin1") });
  }
  assert.deepEqual(batch.json.map(({ headers }) => headers), many(bodies.length - AT_ONCE, (n) => ({ "content-type": "text/x", "x-n": `${n + AT_ONCE}` })));
});

test("an element of a batch has the id, instants, method and path that it would have alone, under one identity", async (t) => {
  const { semel, server } = await gathering(t, { identity: "alice" });
  await burst({ semel, server }, 6, (n) => semel.fetch(`/accounts/a/b%20c?x=${n}`, { method: "PATCH", key: "a/b \u{e9}", ordered: false, id: `"${n}\\` }));
  const [one] = server.attempts;
  const [batch] = server.of("batch");
  assert.equal(batch.path, "/semel/v1/keys/a%2Fb%20%C3%A9/batch");
  assert.equal(batch.init.redirect, "manual");
  assert.deepEqual([batch.principal, one.principal, batch.id, batch.headers.get("content-type")], ["alice", "alice", undefined, "application/json"]);
  assert.deepEqual(batch.json.map(({ id, method, path }) => [id, method, path]), [4, 5].map((n) => [`"${n}\\`, "PATCH", `/accounts/a/b%20c?x=${n}`]));
  for (const { firstSent, deadline, ...element } of batch.json) {
    assert.ok(Math.abs(firstSent - Date.now() / 1_000) < 60 && Math.abs(deadline - Date.now()) < 60_000, JSON.stringify(element));
    assert.deepEqual([element.headers, element.body], [{}, ""]);
  }
});

test("ordered requests go one after another beside batches, and each key has batches of its own", async (t) => {
  const { semel, server } = await gathering(t);
  let [underWay, most] = [0, 0];
  server.each = async (call, serve) => {
    const isOrdered = call.kind === "change" && call.path.includes("/ordered/");
    most = Math.max(most, (underWay += isOrdered));
    await turn();
    underWay -= isOrdered;
    return serve();
  };
  const ordered = many(5, () => deposit(semel, "ordered", { key: "accounts/ordered" }));
  await burst({ semel, server }, 26, (n) => overlapping(semel, { account: n % 2 ? "b" : "c" }));
  await Promise.all(ordered);
  assert.equal(most, 1);
  const batches = server.of("batch");
  assert.deepEqual(batches.map(({ key }) => key).sort(), ["accounts/b", "accounts/c"]);
  for (const { key, elements } of batches) assert.ok(elements.every(({ path }) => path === `/${key}/deposit`));
  // Only requests that overlap are batched together, and two ordered requests of one key never overlap.
  assert.equal(server.attempts.filter(({ path }) => path.includes("/ordered/")).length, 5);
});

test("an ordered request may share a batch with unordered ones, and never with a later ordered one", async (t) => {
  const { semel, server } = await gathering(t);
  const seen = [];
  server.each = async (call, serve) => {
    const ids = (call.kind === "batch" ? call.json : [call]).map(({ id }) => id).filter((id) => id?.startsWith("ordered"));
    const answer = await serve();
    seen.push([call.kind, ...ids]);
    return answer;
  };
  let ordered;
  await burst({ semel, server }, 20, (n) => {
    if (n === AT_ONCE) ordered = many(4, (index) => deposit(semel, "a", { key: "accounts/a", id: `ordered ${index}` }));
    return overlapping(semel);
  });
  await Promise.all(ordered);
  const withOrdered = seen.filter(([, ...ids]) => ids.length > 0);
  assert.equal(withOrdered[0][0], "batch");
  assert.deepEqual(withOrdered.map(([, ...ids]) => ids), many(4, (n) => [`ordered ${n}`]));
});

test("each batch has one set of credentials, and other headers of the option are in each element", async (t) => {
  let asked = 0;
  const headers = async () => ({ authorization: `Bearer ${(asked += 1) % 2}`, cookie: "c=1", "x-trace": `${asked}`, "semel-key": '"no"', "content-type": "text/no" });
  const { semel, server } = await gathering(t, { headers });
  asked = 0;
  await burst({ semel, server }, 20, () => overlapping(semel, { headers: { "x-own": "1" } }));
  const batches = server.of("batch");
  assert.deepEqual(batches.map(({ headers, json }) => [headers.get("authorization"), headers.get("cookie"), json.length]).sort(), [["Bearer 0", "c=1", 8], ["Bearer 1", "c=1", 8]]);
  for (const { headers, json } of batches) {
    assert.equal(headers.get("x-trace"), null);
    for (const element of json) {
      assert.deepEqual(Object.keys(element.headers).sort(), ["content-type", "x-own", "x-trace"]);
      assert.equal(`Bearer ${element.headers["x-trace"] % 2}`, headers.get("authorization"));
      assert.equal(element.headers["content-type"], "text/plain;charset=UTF-8");
    }
  }
});

for (const [limit, idOf] of [["64 ids", (n) => `n${n}`], ["4,096 bytes", (n) => `${n}`.padEnd(190, "x")]]) {
  test(`the acknowledgements of a batch keep to ${limit}, and none is lost`, async (t) => {
    const { semel, server } = await gathering(t, { maxAttempts: 1_000 });
    const refused = [];
    const gates = new Map();
    server.each = async (call, serve) => {
      await gates.get(call.id)?.opened;
      const answer = await serve();
      if (answer.status !== 200) refused.push(call.acks.length);
      return answer;
    };
    const held = (id) => {
      let open;
      gates.set(id, { opened: new Promise((resolve) => (open = resolve)) });
      return [overlapping(semel, { id }), open];
    };
    const sent = (id) => until(() => server.calls.some((call) => call.id === id), "it is sent");
    // All but one of the places for requests under way are taken. All others are answered one after another through the place that is left.
    const busy = many(AT_ONCE - 1, (n) => held(`busy ${n}`));
    await sent(`busy ${AT_ONCE - 2}`);
    await Promise.all(many(150, (n) => overlapping(semel, { id: idOf(n) })));
    const [last, open] = held("last");
    await sent("last");
    // The last request carries as many acknowledgements as one header holds. So does each of those after it, while there are any.
    const rest = many(30, () => overlapping(semel));
    await until(() => semel.getSnapshot().pending === AT_ONCE + 30, "they are held");
    await turns();
    server.calls.length = 0;
    open();
    await Promise.all([last, ...rest]);
    const acks = server.calls.map(({ acks }) => acks.length).filter((count) => count > 0);
    assert.ok(acks.length > 1 && server.of("batch").some(({ acks, json }) => acks.length > 0 && json.length > 1), `${acks}`);
    for (const [, openOne] of busy) openOne();
    await Promise.all(busy.map(([call]) => call));
    assert.deepEqual(refused, []);
    for (const n of [0, 63, 64, 149]) assert.equal(server.record("accounts/a", idOf(n)).state, "acknowledged", `${n}`);
  });
}

for (const [what, refusal] of [
  ["no path for batches", () => new Response("Not Found", { status: 404 })],
  ["another page instead of an answer", () => new Response("<h1>Log in</h1>", { status: 403 })],
  ["a refusal of the batch as too large", () => problem(413, "too-large", { executed: "no", retry: "after-fix" })],
]) {
  test(`where there is ${what}, the requests of a batch go alone at once, and so do all for a minute, then for two`, async (t) => {
    const { semel, server } = await gathering(t, { retryIntervalMs: 3_600_000, onpaused: ({ error }) => assert.fail(error.message) });
    const later = clock(t);
    let isRefused = true;
    server.each = (call, serve) => (call.kind === "batch" && isRefused ? refusal() : serve());
    const round = async () => {
      server.calls.length = 0;
      assert.ok((await burst({ semel, server }, 20)).every(({ status }) => status === 200));
      return [server.of("batch").length, server.attempts.length];
    };
    assert.deepEqual(await round(), [1, 20]);
    assert.deepEqual(await round(), [0, 20]);
    later(MINUTE_MS - 10_000);
    assert.deepEqual(await round(), [0, 20]);
    later(10_000);
    assert.deepEqual(await round(), [1, 20]);
    later(MINUTE_MS);
    assert.deepEqual(await round(), [0, 20]);
    later(MINUTE_MS);
    isRefused = false;
    assert.deepEqual(await round(), [1, AT_ONCE]);
    isRefused = true;
    assert.deepEqual(await round(), [1, 20]);
    later(MINUTE_MS);
    isRefused = false;
    assert.deepEqual(await round(), [1, AT_ONCE], "it is a minute again");
  });
}

for (const [what, answer] of [
  ["is lost", async (serve) => (await serve(), lost())],
  ["never comes, because the batch itself is lost", () => lost()],
  ["is another page", async (serve) => (await serve(), new Response("<h1>Log in</h1>"))],
  ["has no Semel-Status", async (serve) => new Response(await (await serve()).text())],
  ["lacks the answer to one request", async (serve) => new Response(JSON.stringify((await (await serve()).json()).slice(1)), { headers: { "semel-status": "executed" } })],
  ["has elements that are not answers", async (serve) => new Response(JSON.stringify((await (await serve()).json()).map(() => ({}))), { headers: { "semel-status": "executed" } })],
]) {
  test(`where the answer to a batch ${what}, each request is sent alone after the interval, and has run once`, async (t) => {
    const { semel, server } = await gathering(t, { retryIntervalMs: 30 });
    let answeredMs;
    server.each = async (call, serve) => {
      if (call.kind !== "batch") return serve();
      answeredMs = performance.now();
      return answer(serve);
    };
    const answers = await burst({ semel, server }, 20, (n) => overlapping(semel, { id: `${n}` }));
    assert.ok(answers.every(({ status }) => status === 200));
    assert.deepEqual(made(server).filter((kind) => kind !== "acks"), [...Array(AT_ONCE).fill("change"), 16, ...Array(16).fill("change")]);
    for (const { startedMs } of server.attempts.slice(AT_ONCE)) assert.ok(startedMs - answeredMs >= 29, "not before the interval");
    assert.deepEqual(many(20, (n) => server.runs.get(`${n}`)), Array(20).fill(1));
  });
}

test("after a rate-limited batch each request is sent by itself, and not before Retry-After", async (t) => {
  const { semel, server } = await gathering(t, { maxAttempts: 1_000 });
  await Promise.all(many(10, (n) => overlapping(semel, { id: `before ${n}` })));
  server.calls.length = 0;
  let refusedMs;
  server.each = async (call, serve) => {
    if (call.kind !== "batch" || refusedMs !== undefined) return serve();
    refusedMs = performance.now();
    return server.problem("accounts/a", 429, "rate-limited", { executed: "no", retry: "same-id", headers: { "retry-after": "1" } });
  };
  assert.ok((await burst({ semel, server }, 20)).every(({ status }) => status === 200));
  const after = server.calls.filter(({ startedMs }) => startedMs > refusedMs + 500);
  assert.deepEqual([server.of("batch").length, after.filter(({ kind }) => kind === "change").length], [1, 16]);
  for (const { startedMs } of after) assert.ok(startedMs - refusedMs >= 999, "not sooner");
});

test("a request that a batch refuses is sent by itself first, and onpaused is told only if that is refused too", async (t) => {
  const { semel, server } = await gathering(t, { retryIntervalMs: 3_600_000, onpaused: ({ error }) => assert.fail(error.message) });
  const later = clock(t);
  server.each = async (call, serve) => {
    if (call.kind !== "batch") return serve();
    const refusal = problem(400, "key-invalid", { executed: "no", retry: "after-fix", detail: "what is executed elsewhere has no place in a batch yet" });
    const each = { status: 400, headers: Object.fromEntries(refusal.headers), body: await refusal.text() };
    return new Response(JSON.stringify(call.json.map(() => each)), { headers: { "semel-status": "executed" } });
  };
  // However many requests it refuses, it counts as one batch: the next is tried after a minute, then after two.
  for (const [batches, minutes] of [[1, 0], [0, 1], [1, 1], [0, 1], [1, 0]]) {
    server.calls.length = 0;
    assert.ok((await burst({ semel, server }, 20)).every(({ status }) => status === 200));
    assert.deepEqual([server.of("batch").length, server.attempts.length], [batches, 20]);
    later(minutes * MINUTE_MS);
  }
  // A request that is also refused by itself pauses as usual.
  const told = [];
  semel.onpaused = (paused) => told.push(paused);
  server.each = async () => problem(400, "key-mismatch", { executed: "no", retry: "after-fix" });
  overlapping(semel).catch(() => {});
  await until(() => told.length === 1, "it pauses");
});

test("if one request of a batch is unavailable, it is sent by itself, and so are the requests after the batch", async (t) => {
  const { semel, server } = await gathering(t);
  server.each = async (call, serve) => {
    if (call.kind !== "batch") return serve();
    const answers = await (await serve()).json();
    answers[3] = { status: 503, headers: { "semel-status": "unavailable" }, body: "" };
    return new Response(JSON.stringify(answers), { headers: { "semel-status": "executed" } });
  };
  for (const counts of [[1, AT_ONCE + 1], [0, 20]]) {
    server.calls.length = 0;
    assert.ok((await burst({ semel, server }, 20)).every(({ status }) => status === 200));
    assert.deepEqual([server.of("batch").length, server.attempts.length], counts);
  }
});

test("a batch that hangs is aborted, and its requests and those that came meanwhile are answered and run once", async (t) => {
  const { semel, server } = await gathering(t, { attemptTimeoutMs: 1_000 });
  server.each = (call, serve) => (call.kind === "batch" ? hang() : serve());
  assert.ok((await burst({ semel, server }, 20, (n) => overlapping(semel, { id: `${n}` }))).every(({ status }) => status === 200));
  const batches = server.of("batch");
  assert.ok(batches.every(({ init }) => init.signal.aborted), "they were aborted");
  assert.ok(batches.length >= 1 && batches.length <= AT_ONCE, `${made(server)}`);
  assert.deepEqual(many(20, (n) => server.runs.get(`${n}`)), Array(20).fill(1));
});

test("attempts that hang hold up the others for one attempt timeout, and after that the others go by themselves", async (t) => {
  const { semel, server } = await gathering(t, { attemptTimeoutMs: 1_000 });
  server.each = (call, serve) => (call.id?.startsWith("hung") ? hang() : serve());
  const hung = many(AT_ONCE, (n) => overlapping(semel, { id: `hung ${n}` }));
  for (const each of hung) each.catch(() => {});
  await until(() => server.calls.length === AT_ONCE, "they are under way");
  assert.ok((await Promise.all(many(10, () => overlapping(semel)))).every(({ status }) => status === 200));
  const hangingMs = server.calls.at(-1).startedMs - server.calls[0].startedMs;
  assert.ok(hangingMs >= 990, `${hangingMs}`);
  assert.equal(server.of("batch").length, 0, "what was held goes by itself then, however much it is");
  await until(() => server.attempts.filter(({ id }) => id === "hung 0").length > 1, "they are sent again");
  const calls = server.calls.length;
  assert.ok((await Promise.all(many(10, () => overlapping(semel)))).every(({ status }) => status === 200));
  assert.ok(server.calls.slice(calls).every(({ kind }) => kind !== "batch"));
});

test("a closed outbox sends no request that it held", async (t) => {
  const { semel, server } = await gathering(t);
  server.each = hang;
  const first = many(AT_ONCE, () => rejection(overlapping(semel)));
  await until(() => server.calls.length === AT_ONCE, "they are under way");
  const calls = [...first, ...many(16, () => rejection(overlapping(semel)))];
  await until(() => semel.getSnapshot().pending === 20, "the others are in hand");
  await turns();
  await semel.close();
  const errors = await Promise.all(calls);
  assert.ok(errors.every(({ code }) => code === "closed"));
  await turns();
  assert.equal(server.calls.length, AT_ONCE);
});

test("on pagehide the requests that are held or in a batch are sent once more, each by itself", async (t) => {
  const browser = page();
  const { semel, server } = await gathering(t);
  let isFirst = true;
  server.each = async (call, serve) => {
    if (call.init.keepalive) return serve();
    if (call.kind !== "change" || !isFirst) return hang();
    isFirst = false;
    return serve();
  };
  burst({ semel, server }, 10, (n) => overlapping(semel, { id: `${n}` })).catch(() => {});
  await until(() => made(server).includes(6), "a batch is under way");
  for (let n = 10; n < 15; n += 1) overlapping(semel, { id: `${n}` }).catch(() => {});
  await turns();
  browser.window("pagehide");
  await until(() => server.calls.filter(({ init, endedMs }) => init.keepalive && endedMs).length === 14, "all but the one that is answered");
  assert.ok(server.calls.every(({ init, kind }) => !init.keepalive || kind === "change"));
  assert.deepEqual(many(15, (n) => server.runs.get(`${n}`)), Array(15).fill(1));
});

test("rows that were stored for a batch are recovered at the next open, and each request runs once", async (t) => {
  const store = new Rows();
  const { semel, server } = await gathering(t, { store });
  server.each = async (call, serve) => (call.kind === "batch" ? (await serve(), hang()) : serve());
  burst({ semel, server }, 10, (n) => overlapping(semel, { id: `${n}` })).catch(() => {});
  await until(() => server.runs.size === 2 * AT_ONCE + 10, "all have run");
  await semel.close();
  const recovered = new Map();
  server.each = (call, serve) => serve();
  await outbox(t, { server, store, onrecovered: async ({ requestId, response }) => recovered.set(requestId, await response.json()) });
  await until(() => recovered.size === 6, "they have their answers");
  for (const [id, { ran }] of recovered) assert.deepEqual([ran, server.runs.get(id)], [1, 1]);
});
