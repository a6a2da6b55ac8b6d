// What a Worker does with a request before and after its object: reads in front of other code, room for each principal, sockets that can't be opened,
// headers that a client may not send, and waiting for keys of tokens. The test provides the router.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { given, natively } from "./natively.mjs";

const { sendBy, routerOf, serve } = await natively("router.js");

test("an acknowledgement on a read in front of other code is done before the read, and if it fails the read fails", async (t) => {
  t.mock.method(console, "log", () => {});
  // The Worker makes its router only once, from what is set here at that time.
  Object.assign((given.glue.router ??= {}), { route: () => ["k", "semel-key:k\n", 5_000, undefined, true], read: (ended) => [200, `x-ended:${ended}\n`], unavailable: () => [503, ""] });
  const done = [];
  sendBy(() => async () => (done.push("read"), "it"));
  let settle;
  const env = { SEMEL: { idFromName: (name) => name, get: () => ({ ask: () => (done.push("acknowledges"), new Promise((resolve, reject) => (settle = { resolve, reject }))) }) } };
  for (const [how, status, all] of [["resolve", 200, ["acknowledges", "read"]], ["reject", 503, ["acknowledges"]]]) {
    done.length = 0;
    const answered = serve(new Request("https://a.example/orders/1"), env);
    await turn();
    assert.deepEqual(done, ["acknowledges"]);
    settle[how](how === "resolve" ? [200, 'semel-key:"k"\n'] : new Error("gone"));
    const answer = await answered;
    assert.deepEqual([answer.status, done, answer.headers.get("semel-key")], [status, all, status === 200 ? '"k"' : null]);
  }
});

test("the room of a principal is free once requests are answered or fail, and without room a request is refused", async (t) => {
  t.mock.method(console, "log", () => {});
  given.glue.router ??= {};
  Object.assign(routerOf({}), { route: () => ["k", 'semel-principal:"alice"\n', 5_000], unavailable: (detail) => [503, `x-detail:${detail}\n`] });
  const underWay = [];
  const env = { SEMEL: { idFromName: (name) => name, get: () => ({ ask: () => new Promise((resolve, reject) => underWay.push({ resolve, reject })) }) } };
  const request = () => new Request("https://a.example/one", { method: "POST", body: "its length is not known" });
  for (let round = 0; round < 3; round += 1) {
    const all = Array.from({ length: 31 }, () => serve(request(), env));
    while (underWay.length < 31) assert.equal(await Promise.race([turn("waits"), ...all]), "waits");
    const cut = new ReadableStream({ pull: (controller) => controller.error(new Error("the client has left")) });
    for (const beyond of [request(), new Request("https://a.example/one", { method: "POST", body: cut, duplex: "half" })]) {
      const { status, headers } = await serve(beyond, env);
      assert.deepEqual([status, headers.get("x-detail"), beyond.bodyUsed], [503, "too much of this principal is under way", true]);
    }
    let end;
    const slow = new ReadableStream({ start: (controller) => void (end = () => controller.close()) });
    const refused = serve(new Request("https://a.example/one", { method: "POST", body: slow, duplex: "half" }), env);
    assert.equal(await Promise.race([refused, turn("waits")]), "waits", "a client that still sends would not see its answer");
    end();
    assert.equal((await refused).status, 503);
    for (const { resolve, reject } of underWay.splice(0)) round === 0 ? reject(new Error("gone")) : resolve([200, ""]);
    assert.deepEqual(new Set((await Promise.all(all)).map((answer) => answer.status)), new Set([round === 0 ? 503 : 200]));
  }
});

test("an answer's line of the log is written when it leaves, and an answer without one writes none", async (t) => {
  const noted = t.mock.method(console, "log", () => {}).mock;
  given.glue.router ??= {};
  for (const line of ["a line", undefined]) {
    Object.assign(routerOf({}), { route: () => [401, "", undefined, line] });
    assert.equal((await serve(new Request("https://a.example/one"), {})).status, 401);
  }
  assert.deepEqual(noted.calls.map((call) => call.arguments), [["a line"]]);
});

test("an answer says how long it took, to the page that may read it, and to no other", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1_000_000_000 });
  given.glue.router ??= {};
  Object.assign(routerOf({}), { route: () => ["k", "", 5_000] });
  for (const [lines, page] of [["", null], ["access-control-allow-origin:https://b.example\n", "https://b.example"]]) {
    const ask = async () => (t.mock.timers.tick(30), [200, lines, undefined, undefined, 20]);
    const { headers } = await serve(new Request("https://a.example/one", { method: "POST", body: "" }), { SEMEL: { idFromName: (name) => name, get: () => ({ ask }) } });
    assert.deepEqual([headers.get("server-timing"), headers.get("timing-allow-origin")], ["object;dur=20, total;dur=30", page]);
  }
});

test("no timer is left of a request that has its answer, or whose object has failed", async (t) => {
  t.mock.method(console, "log", () => {});
  given.glue.router ??= {};
  Object.assign(routerOf({}), { route: () => ["k", "", 60_000], unavailable: () => [503, ""] });
  const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
  const before = timers();
  for (const [ask, status] of [[async () => [200, ""], 200], [() => Promise.reject(new Error("gone")), 503]]) {
    const env = { SEMEL: { idFromName: (name) => name, get: () => ({ ask }) } };
    assert.equal((await serve(new Request("https://a.example/one", { method: "POST", body: "" }), env)).status, status);
  }
  assert.equal(timers(), before);
});

test("a listing of keys fails if a shard of the registry does, and the log says which", async (t) => {
  t.mock.method(console, "log", () => {});
  given.glue.router ??= {};
  const listed = [];
  Object.assign(routerOf({}), {
    route: () => [null, 'semel-principal:"semel:admin"\n', 5_000, true],
    listed: (path, pages) => (listed.push(path, ...pages), [200, ""]),
    unavailable: (_detail, reason) => [503, `x-reason:${reason}\n`],
  });
  const envOf = (list) => ({ REGISTRY: { idFromName: (name) => name, get: (shard) => ({ list: async (...asked) => list(shard, ...asked) }) } });
  const ask = (list) => serve(new Request("https://a.example/semel/v1/admin/keys?limit=1"), envOf(list));
  assert.equal((await ask((shard, ...asked) => [shard, ...asked])).status, 200);
  const path = "/semel/v1/admin/keys?limit=1";
  assert.deepEqual(listed, [path, ["0", 0, path], ["1", 1, path]]);
  const { status, headers } = await ask((shard) => (shard === "1" ? Promise.reject(new Error("gone")) : []));
  assert.deepEqual([status, headers.get("x-reason")], [503, "the object failed: Error: shard 1 of the registry: gone"]);
});

test("who opens a socket is told whether its object has failed or has no room for it", async (t) => {
  t.mock.method(console, "log", () => {});
  given.glue.router ??= {};
  Object.assign(routerOf({}), { route: () => ["k", 'semel-key:"k"\n', 5_000, ""], unavailable: (detail) => [503, `x-detail:${detail}\n`] });
  for (const [answer, detail] of [[Promise.reject(new Error("gone")), "the object failed"], [new Response(null, { status: 503 }), "too many sockets are open on which nobody has said who they are"]]) {
    const env = { SEMEL: { idFromName: (name) => name, get: () => ({ fetch: async () => answer }) } };
    const { status, headers } = await serve(new Request("https://a.example/semel/v1/keys/k/socket"), env);
    assert.deepEqual([status, headers.get("x-detail")], [503, detail]);
  }
});

test("semel-key, semel-principal and semel-from of a client never reach the object, and headers that end so do", async () => {
  given.glue.router ??= {};
  const says = 'semel-key:"k"\n';
  Object.assign(routerOf({}), { route: () => ["k", says, 5_000] });
  let heard;
  const env = { SEMEL: { idFromName: (name) => name, get: () => ({ ask: async (_method, _pathname, _search, lines) => ((heard = lines), [200, ""]) }) } };
  for (const first of [{}, { accept: "*/*" }]) {
    for (const name of ["semel-key", "semel-principal", "semel-from"]) {
      const headers = { ...first, [name]: '"mallory"', [`x-${name}`]: "its own" };
      await serve(new Request("https://a.example/one", { method: "POST", headers }), env);
      assert.equal(heard, `${first.accept ? "accept:*/*\n" : ""}x-${name}:its own\n${says}`);
    }
  }
});

test("a request that waits for keys is decided anew when their fetch is over, or once a second if that is never told", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  t.mock.method(console, "log", () => {});
  given.glue.router ??= {};
  let decisions = 0;
  let isOver = false;
  const url = ["https://issuer.example/keys"];
  Object.assign(routerOf({}), {
    route: () => ((decisions += 1), isOver ? [401, ""] : [undefined, 30_000]),
    keys_wanted: () => url.pop(),
    signature_wanted: () => undefined,
    keys_fetched: () => void (isOver = true),
    unavailable: () => [503, ""],
  });
  let end;
  t.mock.method(globalThis, "fetch", () => new Promise((resolve) => (end = resolve)));
  const env = { SEMEL_JWKS_URL: url[0] };
  const asked = () => serve(new Request("https://a.example/one"), env);
  const pass = async (ms) => {
    for (let passed = 0; passed < ms; passed += 20) {
      t.mock.timers.tick(20);
      await turn();
    }
  };
  const answered = asked();
  await pass(980);
  assert.equal(decisions, 1);
  await pass(20);
  assert.equal(decisions, 2);
  end(new Response("{}"));
  await turn();
  await pass(20);
  assert.deepEqual([(await answered).status, decisions], [401, 3]);
  // The fetch is over, so this one asks at each look. It waits no longer than 8 s.
  isOver = false;
  const late = asked();
  await pass(8_000);
  assert.equal((await late).status, 503);
});

test("a body that the Worker itself has read before is said to be that, to the caller and in the log; one that breaks off is not", async (t) => {
  const logged = t.mock.method(console, "log", () => {});
  given.glue.router ??= {};
  const object = { idFromName: (name) => name, get: () => ({ ask: async () => [200, ""] }) };
  const request = (body) => new Request("https://a.example/one", { method: "POST", body, duplex: "half" });
  const detail = "the Worker has read the body before it passed the request on: it has to read that of request.clone()";
  // To the object of a key, and to the registry.
  for (const key of ["k", null]) {
    Object.assign(routerOf({}), { route: () => [key, "", 5_000, key === null ? false : undefined], unavailable: (detail, reason = detail) => [503, `x-detail:${detail}\n`, detail, reason] });
    logged.mock.resetCalls();
    const read = request("{}");
    await read.json();
    const answer = await serve(read, { SEMEL: object, REGISTRY: object });
    assert.deepEqual([answer.status, answer.headers.get("x-detail")], [503, detail]);
    assert.deepEqual(logged.mock.calls.map(({ arguments: [line] }) => line), [detail]);
    const broken = await serve(request(new ReadableStream({ pull: (controller) => controller.error(new Error("gone")) })), { SEMEL: object, REGISTRY: object });
    assert.deepEqual([broken.status, broken.headers.get("x-detail")], [503, "the body of the request did not arrive whole"]);
    assert.equal(logged.mock.callCount(), 1);
  }
});
