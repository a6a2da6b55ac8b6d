// Tests headers, identities and reads: what a call carries, and what of it is stored.

import assert from "node:assert/strict";
import { test } from "node:test";
import { serveStub } from "./http-stub.mjs";
import { Rows, Stub, deposit, lost, minutes, outbox, rejection, until } from "./stub.mjs";

test("a headers function is called for each attempt, and nothing that it returns is stored", async (t) => {
  const store = new Rows();
  let called = 0;
  const headers = () => ({ authorization: `Bearer secret-${(called += 1)}`, "x-trace": `trace-${called}` });
  const { semel, server } = await outbox(t, { store, headers });
  server.each = (call, serve) => {
    assert.equal(store.rows.size, 1);
    for (const secret of ["secret", "trace", "Bearer"]) assert.ok(!store.holds(secret), `${secret} is stored`);
    assert.ok(store.holds("application/x-own") && store.holds('{"amount":5}'), "what is the request's own is stored");
    return call.kind === "change" && call.n < 4 ? lost() : serve();
  };
  await deposit(semel, "a", { headers: { "content-type": "application/x-own" } });
  const told = server.calls.map((call) => call.headers.get("authorization"));
  assert.deepEqual(told, [1, 2, 3, 4, 5].map((n) => `Bearer secret-${n}`), "health has credentials too");
  assert.equal(server.attempts.at(-1).headers.get("x-trace"), "trace-5");
  assert.equal(called, 5);
});

for (const [name, headers] of Object.entries({
  "an object": { "x-a": "1" },
  "a list of pairs": [["x-a", "1"]],
  Headers: new Headers({ "x-a": "1" }),
  "a function": () => ({ "x-a": "1" }),
  "an async function": async () => new Headers({ "x-a": "1" }),
})) {
  test(`the headers option may be ${name}`, async (t) => {
    const { semel, server } = await outbox(t, { headers });
    await deposit(semel);
    assert.deepEqual(server.calls.map((call) => call.headers.get("x-a")), ["1", "1"]);
  });
}

test("a headers function may return nothing", async (t) => {
  for (const nothing of [undefined, () => undefined, async () => undefined]) {
    const { semel } = await outbox(t, { headers: nothing });
    assert.equal((await deposit(semel)).status, 200);
  }
});

test("a headers object is copied at open", async (t) => {
  const headers = { "x-a": "1" };
  const { semel, server } = await outbox(t, { headers });
  headers["x-a"] = "2";
  await deposit(semel);
  assert.equal(server.attempts[0].headers.get("x-a"), "1");
});

test("a headers function that throws, rejects or returns nonsense costs one attempt, which is not sent", async (t) => {
  const store = new Rows();
  const failures = [
    () => {
      throw new Error("no token");
    },
    async () => {
      throw new Error("no token");
    },
    () => ({ "not a name": "1" }),
    () => 5,
  ];
  let called = 0;
  const headers = () => {
    called += 1;
    // The first call is for the health check.
    return called === 1 ? {} : (failures.shift() ?? (() => ({ "x-a": "1" })))();
  };
  const { semel, server } = await outbox(t, { store, headers });
  assert.equal((await deposit(semel)).status, 200);
  assert.deepEqual([server.attempts.length, called, failures.length], [1, 6, 0]);
});

test("a headers function that hangs costs one attempt, and what it returns later is not sent", async (t) => {
  let called = 0;
  let late;
  const headers = () => {
    called += 1;
    return called === 2 ? new Promise((resolve) => (late = resolve)) : { "x-n": String(called) };
  };
  const server = new Stub();
  // Not every `fetch` checks whether its signal is aborted already.
  const deaf = (url, init) => server.fetch(url, { ...init, signal: undefined });
  const { semel } = await outbox(t, { server, headers, fetch: deaf, attemptTimeoutMs: 100 });
  assert.equal((await deposit(semel)).status, 200);
  late({ "x-n": "late" });
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual(server.attempts.map((call) => call.headers.get("x-n")), ["3"]);
});

test("the headers option can't change the headers that the SDK or the call sets", async (t) => {
  const headers = {
    "Content-Type": "text/evil",
    "Content-Encoding": "gzip",
    "Idempotency-Key": '"evil"',
    "Semel-Key": '"evil"',
    "Semel-Ack": '"evil"',
    "Semel-First-Sent": "@1",
    "Semel-Deadline": "1",
    "Semel-Principal": '"evil"',
    "semel-newer": "evil",
    "x-a": "1",
  };
  for (const given of [headers, () => headers, async () => new Headers(headers)]) {
    const { semel, server } = await outbox(t, { headers: given });
    await deposit(semel, "a", { headers: { "content-type": "application/json" } });
    await semel.fetch("/accounts/b/deposit", { method: "POST", body: new Uint8Array([1]) });
    for (const call of server.calls) {
      assert.ok(![...call.headers].some(([, value]) => /evil|gzip/.test(value)), JSON.stringify([...call.headers]));
      assert.equal(call.headers.get("x-a"), "1");
    }
    assert.deepEqual(server.attempts.map((call) => call.headers.get("content-type")), ["application/json", null]);
  }
});

for (const name of ["Authorization", "authorization", "Idempotency-Key", "Semel-Key", "semel-deadline", "Semel-Newer", "Cookie"]) {
  test(`${name} among the headers of a change is a TypeError; nothing is stored or sent`, async (t) => {
    const store = new Rows();
    const { semel, server } = await outbox(t, { store });
    for (const method of ["POST", "PUT", "PATCH", "DELETE"]) {
      const error = await rejection(semel.fetch("/accounts/a", { method, headers: { connection: "close", expect: "100-continue", [name]: '"x"' } }));
      assert.ok(error instanceof TypeError, String(error));
      const instead = /^(a|c)/i.test(name) ? "is for the option headers" : "is for the option id or key";
      assert.equal(error.message, `semel: ${name.toLowerCase()} ${instead}`);
    }
    assert.deepEqual([store.log, server.calls], [[["load"]], []]);
  });
}

test("headers of the connection are left out of a change, as in browsers, and Node sends it once", async (t) => {
  const { stub, url } = await serveStub(t);
  for (const [name, value] of Object.entries({ connection: "upgrade", "content-length": "99", expect: "100-continue", "keep-alive": "timeout=5", "transfer-encoding": "chunked", upgrade: "h2c" })) {
    const headers = { [name]: value, "x-a": "1" };
    const { semel } = await outbox(t, { url, fetch: globalThis.fetch, headers });
    for (const init of [{ headers }, {}]) assert.equal((await deposit(semel, name, init)).status, 200, name);
    for (const call of stub.attempts) assert.deepEqual([call.headers.get("x-a"), call.headers.get(name) === value, call.body], ["1", false, '{"amount":5}']);
  }
  assert.equal(stub.attempts.length, 12, "each went once");
});

test("methods in lower or mixed case are sent as fetch normalises them", async (t) => {
  const { semel, server } = await outbox(t);
  for (const method of ["post", "Put", "delete"]) await semel.fetch("/things", { method });
  assert.deepEqual(server.attempts.map((call) => call.method), ["POST", "PUT", "DELETE"]);
});

test("every attempt, cancellation and acknowledgement carries the identity, or the empty one if none is given", async (t) => {
  for (const identity of [undefined, "alice"]) {
    const { semel, server } = await outbox(t, { identity });
    const giveUp = new AbortController();
    server.each = (call, serve) => (call.kind === "change" && call.n < 3 ? lost() : serve());
    await deposit(semel);
    server.each = (call, serve) => {
      if (call.kind !== "change") return serve();
      giveUp.abort();
      return server.problem(call.key, 503, "unavailable");
    };
    assert.equal((await rejection(deposit(semel, "b", { signal: giveUp.signal }))).code, "cancelled");
    const sent = server.calls.filter(({ kind }) => kind !== "health");
    assert.ok(server.of("cancel").length > 0 && server.attempts.length > 3);
    for (const call of sent) assert.equal(call.headers.get("semel-principal"), `"${identity ?? ""}"`);
  }
});

test("a read carries the same semel-principal as a change, whatever characters the identity has", async (t) => {
  for (const identity of ["alice", "CORP\\alice", 'al"ice']) {
    const { semel, server } = await outbox(t, { identity, headers: { "semel-principal": '"mallory"' } });
    await deposit(semel);
    await semel.fetch("/accounts/a");
    assert.equal(server.of("read")[0].headers.get("semel-principal"), server.attempts[0].headers.get("semel-principal"));
  }
});

test("outboxes of two identities keep their requests apart, each in a store of its own", async (t) => {
  const server = new Stub();
  const [one, other] = [new Rows(), new Rows()];
  const { semel: alice } = await outbox(t, { server, store: one, identity: "alice", headers: { authorization: "Bearer alice" } });
  const { semel: bob } = await outbox(t, { server, store: other, identity: "bob", headers: { authorization: "Bearer bob" } });
  await Promise.all([deposit(alice), deposit(bob), deposit(alice, "b"), deposit(bob, "b")]);
  for (const call of server.attempts) assert.equal(call.headers.get("authorization"), `Bearer ${call.principal}`);
  assert.deepEqual(server.attempts.map(({ principal }) => principal).sort(), ["alice", "alice", "bob", "bob"]);
  await until(() => one.rows.size === 2 && other.rows.size === 2, "each has its rows");
  assert.equal(new Set([...one.rows.keys(), ...other.rows.keys()]).size, 4);
});

test("requests of one identity are not sent under another, even if both share a store", async (t) => {
  const store = new Rows();
  const server = new Stub();
  server.each = (call, serve) => (call.kind === "change" ? lost() : serve());
  const { semel: alice } = await outbox(t, { server, store, identity: "alice" });
  const left = rejection(deposit(alice, "alice"));
  await until(() => server.attempts.length > 0, "it was sent");
  await alice.close();
  assert.equal((await left).code, "closed");
  const { semel: bob } = await outbox(t, { server, store, identity: "bob" }).catch(() => ({}));
  if (bob) await Promise.race([deposit(bob, "bob").catch(() => {}), new Promise((resolve) => setTimeout(resolve, 100))]);
  assert.deepEqual(server.attempts.filter(({ key, principal }) => key === "accounts/alice" && principal !== "alice").length, 0);
});

test("GET, HEAD and unknown methods pass through once, with the headers of both, and are not stored", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store, headers: async () => ({ authorization: "Bearer secret", "x-a": "option", accept: "text/plain" }) });
  const answer = await semel.fetch("/accounts/a?x=1", { headers: { "x-a": "own", "x-b": "b" } });
  assert.deepEqual([answer.status, await answer.json()], [200, { path: "/accounts/a?x=1" }]);
  await semel.fetch("https://worker.test/accounts/b", { method: "head", key: "größe/1" });
  await semel.fetch(new URL("https://worker.test/accounts/c"), { method: "PROPFIND" });
  const seen = server.calls.map(({ method, path, headers }) => [method, path, headers.get("authorization"), headers.get("x-a"), headers.get("x-b")]);
  assert.deepEqual(seen, [
    ["GET", "/accounts/a?x=1", "Bearer secret", "own", "b"],
    ["HEAD", "/accounts/b", "Bearer secret", "option", null],
    ["PROPFIND", "/accounts/c", "Bearer secret", "option", null],
  ]);
  assert.equal(decodeURIComponent(server.calls[1].headers.get("semel-key")), '"größe/1"');
  for (const call of server.calls) assert.ok(!call.headers.has("idempotency-key") && !call.headers.has("semel-principal"));
  assert.deepEqual([store.log, store.rows.size], [[["load"]], 0]);
  assert.deepEqual(await semel.pending(), []);
});

test("patch in lower case is a TypeError, since fetch would not send it as PATCH", async (t) => {
  const { semel, server } = await outbox(t);
  const before = server.calls.length;
  for (const method of ["patch", "Patch"]) assert.ok((await rejection(semel.fetch("/accounts/a", { method }))) instanceof TypeError, method);
  assert.equal(server.calls.length, before);
  assert.equal((await deposit(semel, "a", { method: "PATCH" })).status, 200);
});

test("a read carries the identity of its outbox, even with another's credentials", async (t) => {
  const { semel, server } = await outbox(t, { identity: "alice", headers: { authorization: "Bearer bob" } });
  await semel.fetch("/accounts/me");
  assert.deepEqual(server.calls.map(({ method, headers }) => [method, headers.get("semel-principal")]), [["GET", '"alice"']]);
});

test("fetch takes a Request: its method, headers, body and signal count, unless init gives them", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  const url = "https://worker.test/accounts/a/deposit?x=1";
  const request = new Request(url, { method: "PUT", body: "own", headers: { "content-type": "text/own", "x-a": "1" } });
  await semel.fetch(request.clone(), { method: "PATCH", body: "init" });
  assert.equal((await semel.fetch(request, { key: "k" })).url, url);
  assert.deepEqual(
    server.attempts.map(({ method, path, body, headers }) => [method, path, body, headers.get("content-type"), headers.get("x-a"), headers.get("semel-key")]),
    [
      ["PATCH", "/accounts/a/deposit?x=1", "init", "text/own", "1", null],
      ["PUT", "/accounts/a/deposit?x=1", "own", "text/own", "1", '"k"'],
    ],
  );
  const calls = server.calls.length;
  assert.equal((await semel.fetch(new Request(url, { headers: { "x-b": "2" } }))).status, 200);
  assert.deepEqual([server.calls.length - calls, server.of("read")[0].headers.get("x-b")], [1, "2"]);
  // The body of the last was read before.
  const refused = [new Request(url, { method: "POST", headers: { authorization: "Bearer x" } }), new Request("https://elsewhere.test/"), request];
  for (const each of refused) assert.ok((await rejection(semel.fetch(each))) instanceof TypeError);
  assert.equal((await rejection(semel.fetch(new Request(url, { method: "POST", signal: AbortSignal.abort() })))).name, "AbortError");
  assert.deepEqual([server.attempts.length, server.of("read").length], [2, 1]);

  const giveUp = new AbortController();
  server.each = (call, serve) => {
    if (call.kind === "change") giveUp.abort();
    return call.kind === "change" ? server.problem(call.key, 503, "unavailable") : serve();
  };
  assert.equal((await rejection(semel.fetch(new Request(url, { method: "POST", signal: giveUp.signal })))).code, "cancelled");
});

test("fetch takes a Request, or an object that inherits its members, as init: no change becomes a read", async (t) => {
  const { semel, server } = await outbox(t);
  const request = new Request("https://elsewhere.test/", { method: "PUT", body: "own", headers: { "content-type": "text/own" } });
  await semel.fetch("/accounts/a/deposit", request);
  const presets = { method: "POST", headers: { "content-type": "text/preset" }, key: "k" };
  await semel.fetch("/accounts/a/deposit", Object.assign(Object.create(presets), { body: "inherits" }));
  assert.deepEqual(
    server.attempts.map(({ method, path, body, headers }) => [method, path, body, headers.get("content-type"), headers.get("semel-key")]),
    [
      ["PUT", "/accounts/a/deposit", "own", "text/own", null],
      ["POST", "/accounts/a/deposit", "inherits", "text/preset", '"k"'],
    ],
  );
  const stopped = new Request("https://elsewhere.test/", { method: "POST", signal: AbortSignal.abort() });
  assert.equal((await rejection(semel.fetch("/accounts/a/deposit", stopped))).name, "AbortError");
  assert.equal(server.of("read").length, 0);
});

test("semel.fetch works without a receiver and without init", async (t) => {
  const { semel, server } = await outbox(t);
  const { fetch } = semel;
  assert.equal((await fetch("/accounts/a/deposit", { method: "POST" })).status, 200);
  assert.equal((await fetch("/accounts/a", null)).status, 200);
  assert.deepEqual([server.attempts.length, server.of("read").length], [1, 1]);
});

test("a read may have its own credentials, and gets the very error or answer of fetch", async (t) => {
  const { semel, server } = await outbox(t, { headers: { authorization: "Bearer option" } });
  await semel.fetch("/accounts/a", { headers: { authorization: "Bearer own" } });
  assert.equal(server.calls[0].headers.get("authorization"), "Bearer own");
  const thrown = new TypeError("fetch failed");
  server.each = () => Promise.reject(thrown);
  assert.equal(await rejection(semel.fetch("/accounts/a")), thrown);
  const answer = new Response("<h1>Log in</h1>", { status: 503 });
  server.each = () => answer;
  assert.equal(await semel.fetch("/accounts/a"), answer);
  assert.equal(server.calls.length, 3);
});

test("a read is aborted by its signal", async (t) => {
  const { semel, server } = await outbox(t);
  server.each = () => new Promise(() => {});
  const giveUp = new AbortController();
  const read = rejection(semel.fetch("/accounts/a", { signal: giveUp.signal }));
  await until(() => server.calls.length === 1, "it was sent");
  const reason = new Error("enough");
  giveUp.abort(reason);
  assert.equal(await read, reason);
});

test("the key of a request is sent as it was named, on its attempts and on its cancellation", async (t) => {
  const { semel, server } = await outbox(t);
  const giveUp = new AbortController();
  server.each = (call, serve) => {
    if (call.kind === "change") giveUp.abort();
    return call.kind === "change" ? lost() : serve();
  };
  const error = await rejection(semel.fetch("/things", { method: "POST", key: 'größe/a "b" 9%\\<>`#?', signal: giveUp.signal }));
  assert.equal(error.code, "cancelled");
  assert.deepEqual(server.calls.map(({ kind }) => kind), ["health", "change", "cancel"], "its key is known");
  const sent = "gr%C3%B6%C3%9Fe/a%20%22b%22%209%25%5C%3C%3E%60%23%3F";
  assert.equal(server.attempts[0].headers.get("semel-key"), `"${sent}"`);
  assert.equal(server.of("cancel")[0].path, `/semel/v1/keys/${sent.replace("/", "%2F")}/cancel`);
});

for (const [name, key] of Object.entries({ empty: "", "with a control character": "a\nb", "too long": "ä".repeat(257), "a number": 5, "an object": {} })) {
  test(`a key that is ${name} is a TypeError; nothing is stored or sent`, async (t) => {
    const minute = minutes(t);
    const store = new Rows();
    const { semel, server } = await outbox(t, { store });
    const error = await rejection(semel.fetch("/things", { method: "POST", key }));
    assert.ok(error instanceof TypeError, String(error));
    await minute();
    assert.deepEqual([store.log, server.calls], [[["load"]], []]);
    assert.equal((await deposit(semel)).status, 200, "the outbox goes on");
  });
}

test("another origin, or a body that can't be read, is a TypeError; nothing is stored or sent", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  const broken = new ReadableStream({ pull: (controller) => controller.error(new TypeError("broken")) });
  for (const [input, init] of [
    ["https://elsewhere.test/accounts/a", { method: "POST" }],
    ["http://worker.test/accounts/a", { method: "POST" }],
    ["//elsewhere.test/", {}],
    ["https://", {}],
    ["/a", { method: "GET", body: "x" }],
    ["/a", { method: "TRACE" }],
    ["/a", { method: "POST", body: broken, duplex: "half" }],
    ["/a", { method: "POST", headers: { "not a name": "x" } }],
  ]) {
    const error = await rejection(semel.fetch(input, init));
    assert.ok(error instanceof TypeError, `${input}: ${error}`);
  }
  assert.deepEqual([store.log, server.calls], [[["load"]], []]);
});
