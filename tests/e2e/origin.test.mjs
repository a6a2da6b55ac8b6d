// What a deployment in front of other code sends to it, and how it reports a failure: that surely nothing was sent, or that nobody knows. The test
// provides time, network and the bound service; `proxy.test.mjs` and `bound.test.mjs` have the same on workerd.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { inChunks } from "./chunks.mjs";
import { RpcStub, given, natively } from "./natively.mjs";

const { senderOf } = await natively("upstream/origin.js");

const ORIGIN = { SEMEL_UPSTREAM: "https://api.example/v1/" };
const bytesOf = (text) => new TextEncoder().encode(text);
const CHANGE = { method: "POST", pathname: "/orders", search: "", lines: "", body: bytesOf("one") };

/** Sends a request under an id, or a probe. Resolves to `[status, lines, text]`, or without an answer to `[whether surely nothing was sent, why]`. */
async function sent(send, { probe, sinceMs, ...asked } = {}) {
  const { method, pathname, search, lines, body } = { ...CHANGE, ...asked };
  const [first, second, bytes] = await send([1, probe, false, "an-id"], undefined, [method, pathname, search, lines, body], sinceMs);
  return [first, second, bytes && new TextDecoder().decode(bytes)];
}

/** Replaces the network. Returns the requests that it gets; `answer` makes its answers. */
function network(t, answer = () => new Response("made", { status: 201 })) {
  const asked = [];
  t.mock.method(globalThis, "fetch", (request) => {
    asked.push(request);
    return answer(request);
  });
  return asked;
}

/** Replaces connections. Returns where they went, and how many are open. `opened()`: what becomes of each. */
function connections(opened = () => Promise.resolve()) {
  const all = { to: [], open: 0 };
  given.connect = (to) => {
    all.to.push(to);
    all.open += 1;
    const its = opened();
    const close = () => {
      all.open -= 1;
      return Promise.reject(new Error("it was none"));
    };
    return { opened: its, closed: its.then(() => {}), close };
  };
  return all;
}

/** Lets this much time pass. */
const passes = async (t, ms) => {
  await turn();
  t.mock.timers.tick(ms);
  await turn();
};

test("a request is sent below the path of its origin with query and body, a read without a body, and a probe as a read", async (t) => {
  const asked = network(t);
  const send = senderOf(ORIGIN);
  assert.deepEqual((await sent(send, { search: "?a=1&b=%20" }))[0], 201);
  await sent(send, { method: "HEAD", lines: "content-type:text/plain\n" });
  await sent(send, { method: "GET" });
  await sent(send, { probe: "/orders/1?by=ref", search: "?a=1" });
  await sent(send, { method: "PUT" });
  const told = await Promise.all(asked.map(async (request) => [request.method, request.url, await request.text(), request.headers.get("idempotency-key")]));
  assert.deepEqual(told, [
    ["POST", "https://api.example/v1/orders?a=1&b=%20", "one", "an-id"],
    ["HEAD", "https://api.example/v1/orders", "", "an-id"],
    ["GET", "https://api.example/v1/orders", "", "an-id"],
    ["GET", "https://api.example/v1/orders/1?by=ref", "", "an-id"],
    ["PUT", "https://api.example/v1/orders", "one", "an-id"],
  ]);
});

test("a read is sent without an id", async (t) => {
  const asked = network(t);
  await senderOf(ORIGIN)([], undefined, ["GET", "/orders", "", "accept:text/plain\n"]);
  assert.deepEqual(Object.fromEntries(asked[0].headers), { accept: "text/plain", "accept-encoding": "identity" });
});

test("a probe is sent without conditions, ranges and the headers of a body", async (t) => {
  const asked = network(t);
  const send = senderOf(ORIGIN);
  const lines = 'if-match:"a"\nif-none-match:"b"\nrange:bytes=0-1\ncontent-type:text/plain\ncontent-language:en\naccept:text/plain\nif_match:"a"\nranges:own\nx-content-own:1\nx-if-own:1\n';
  await sent(send, { lines });
  await sent(send, { lines, probe: "/orders/1" });
  const names = (request) => [...request.headers.keys()].filter((name) => lines.includes(`${name}:`));
  assert.deepEqual(asked.map(names), [["accept", "content-language", "content-type", "if-match", "if-none-match", "if_match", "range", "ranges", "x-content-own", "x-if-own"], ["accept", "ranges", "x-content-own", "x-if-own"]]);
});

test("headers that a client names in Connection are not sent on, however it writes that", async (t) => {
  const asked = network(t);
  await sent(senderOf(ORIGIN), { lines: "connection:close,  X-One ,x-two,x_three\nx-one:1\nx-two:2\nx_three:3\nx-own:3\nsemel-key:\"k\"\nsemel-principal:\"alice\"\nauthorization:Bearer its-own\n" });
  const its = Object.fromEntries(asked[0].headers);
  assert.deepEqual(its, { "accept-encoding": "identity", "idempotency-key": "an-id", "semel-key": '"k"', "semel-principal": '"alice"', "x-own": "3" });
});

test("headers of a connection, a page or this layer, or that name a client, method, path or host, are not sent on", async (t) => {
  const asked = network(t);
  const ofConnection = "connection content-length expect host keep-alive te trailer transfer-encoding upgrade via proxy-connection";
  const ofPage = "access-control-request-method cookie origin referer sec-fetch-mode";
  const ofLayer = "accept-encoding authorization idempotency-key prefer semel-first-sent";
  const client = "cf-connecting-ip client-ip forwarded true-client-ip x-client-ip x-cluster-client-ip x-forwarded-for x-original-forwarded-for x-real-ip";
  const asks = "x-envoy-original-path x-host x-http-host-override x-http-method x-http-method-override x-method-override x-original-host x-original-method x-original-uri x-original-url x-rewrite-uri x-rewrite-url";
  // A server that runs CGI would make HTTP_PROXY of this one, and send its own requests through that.
  const proxies = "proxy";
  const names = [ofConnection, ofPage, ofLayer, client, asks, proxies].join(" ").split(" ");
  // In the other spelling, a server may take the client's id for that of the request, whose header is only replaced in its own.
  const all = [...names, ...names.map((name) => name.replaceAll("-", "_"))];
  await sent(senderOf(ORIGIN), { lines: `${all.map((name) => `${name}:mallory\n`).join("")}own-sec-1:1\nx-own:1\n` });
  assert.deepEqual(Object.fromEntries(asked[0].headers), { "accept-encoding": "identity", "idempotency-key": "an-id", "own-sec-1": "1", "x-own": "1" });
});

test("a failed fetch leaves unknown whether it was sent, and a request that can't be made was surely not sent", async (t) => {
  network(t, () => Promise.reject(new Error("Network connection lost.")));
  const send = senderOf(ORIGIN);
  assert.deepEqual(await sent(send), [false, "Error: Network connection lost.", undefined]);
  for (const none of [{ method: "TRACE" }, { lines: "x-one:\0\n" }]) {
    const [isUnsent, why] = await sent(send, none);
    assert.deepEqual([isUnsent, /TypeError/.test(why)], [true, true], JSON.stringify(none));
  }
});

test("of an answer in many chunks only the bytes are kept while it is read", async (t) => {
  const its = inChunks(2_000, 1);
  network(t, () => new Response(its.stream));
  const [status, , text] = await sent(senderOf(ORIGIN));
  assert.deepEqual([status, text.length], [200, 2_000]);
  assert.ok(its.kept < 5, `${its.kept} chunks are kept`);
});

test("an answer over 1 MiB is refused, and read no further", async (t) => {
  let bytes;
  let isCancelled = false;
  network(t, () => {
    const pull = (controller) => (bytes > 0 ? controller.enqueue(new Uint8Array(Math.min(bytes, 1 << 16))) : controller.close(), (bytes -= 1 << 16));
    return new Response(new ReadableStream({ pull, cancel: () => void (isCancelled = true) }));
  });
  const send = senderOf(ORIGIN);
  bytes = 1 << 20;
  assert.deepEqual([(await sent(send))[0], isCancelled], [200, false]);
  for (const more of [1, 1 << 20]) {
    bytes = (1 << 20) + more;
    assert.deepEqual((await sent(send)).slice(0, 2), [false, "the answer has more than 1048576 bytes"]);
  }
  assert.ok(isCancelled);
});

test("of the headers of an answer 256 with 8 KiB in all are kept, the shortest, in their order", async (t) => {
  const send = senderOf(ORIGIN);
  const namesOf = async (headers) => {
    network(t, () => new Response("made", { status: 201, headers }));
    const [, lines] = await sent(send);
    return lines.split("\n").filter((line) => /^x-/.test(line)).map((line) => line.slice(2, line.indexOf(":")));
  };
  const names = (length) => Array.from({ length }, (_, n) => String(n).padStart(3, "0"));
  const headersOf = (all, value) => all.map((name) => [`x-${name}`, value]);
  const [body] = [["content-type", "text/plain"]];
  assert.deepEqual(await namesOf([body, ...headersOf(names(300), "v")]), names(256), "one of them is longer than these, and left out");
  const fits = (8 << 10) - "x-001".length - 100 - "content-typetext/plain".length - "x-000".length;
  assert.deepEqual(await namesOf([body, ["x-000", "a".repeat(fits)], ["x-001", "b".repeat(100)]]), ["000", "001"]);
  assert.deepEqual(await namesOf([body, ["x-000", "a".repeat(fits + 1)], ["x-001", "b".repeat(100)]]), ["001"]);
  // Headers that are never recorded take no room in the record.
  const never = ["set-cookie", "server-timing", "access-control-allow-headers", "semel-own"].map((name) => [name, "n".repeat(3_000)]);
  assert.deepEqual(await namesOf([body, ...never, ...never.slice(0, 1), ["x-000", "a".repeat(fits)], ["x-001", "b".repeat(100)]]), ["000", "001"]);
  // A character beyond ASCII takes two bytes of the record.
  assert.deepEqual(await namesOf([body, ["x-000", `\u00e9${"a".repeat(fits - 1)}`], ["x-001", "b".repeat(100)]]), ["001"]);
});

test("a header of an answer whose name or encoding is only like one that is left out is kept", async (t) => {
  for (const encoding of ["x-gzip", "gzip, br"]) {
    network(t, () => new Response("made", { headers: [["content-type", "text/plain"], ["content-encoding", encoding], ["date", "1"], ["dated", "2"], ["x-date", "3"]] }));
    assert.deepEqual((await sent(senderOf(ORIGIN)))[1], `content-encoding:${encoding}\ncontent-type:text/plain\ndated:2\nx-date:3\n`);
  }
});

test("an answer that does not come, or does not end, is given up after the timeout, and its sender hears of that", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  let isEnded = false;
  const never = (signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(((isEnded = true), signal.reason))));
  for (const answer of [({ signal }) => never(signal), ({ signal }) => new Response(new ReadableStream({ pull: () => never(signal) }))]) {
    isEnded = false;
    network(t, answer);
    const told = sent(senderOf({ ...ORIGIN, SEMEL_UPSTREAM_TIMEOUT_SECONDS: 600 }));
    await passes(t, 599_999);
    assert.equal(isEnded, false);
    await passes(t, 1);
    assert.deepEqual([await told, isEnded], [[false, "Error: no answer in 600000 ms", undefined], true]);
  }
});

test("CONNECT_FIRST connects to the port of the origin before a call, and if that fails surely nothing was sent", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const asked = network(t);
  const first = (address) => senderOf({ SEMEL_UPSTREAM: address, SEMEL_UPSTREAM_CONNECT_FIRST: "true" });
  const made = connections();
  for (const address of ["https://api.example", "http://api.example", "http://api.example:8080"]) assert.equal((await sent(first(address)))[0], 201);
  assert.deepEqual([made.to, made.open], [[443, 80, 8080].map((port) => ({ hostname: "api.example", port })), 0]);
  await sent(senderOf(ORIGIN));
  assert.equal(made.to.length, 3, "unless it is set, none is");
  asked.length = 0;
  const refused = connections(() => Promise.reject(new Error("refused")));
  assert.deepEqual(await sent(first("http://api.example")), [true, "Error: no connection: Error: refused", undefined]);
  // The runtime throws like this for a name that it takes for invalid, or if an object makes too many connections.
  given.connect = () => {
    throw new TypeError("unsupported characters");
  };
  assert.deepEqual(await sent(first("http://a!b.example")), [true, "Error: no connection: TypeError: unsupported characters", undefined]);
  const hangs = connections(() => new Promise(() => {}));
  const told = sent(first("http://api.example"));
  await passes(t, 5_000);
  assert.deepEqual(await told, [true, "Error: no connection: Error: no answer in 5000 ms", undefined]);
  // Connecting takes no longer than the whole call may.
  const short = sent(senderOf({ SEMEL_UPSTREAM: "http://api.example", SEMEL_UPSTREAM_CONNECT_FIRST: "true", SEMEL_UPSTREAM_TIMEOUT_SECONDS: "1" }));
  await passes(t, 1_000);
  assert.deepEqual(await Promise.race([short, turn("waits")]), [true, "Error: no connection: Error: no answer in 1000 ms", undefined]);
  assert.deepEqual([asked.length, refused.open, hangs.open], [0, 0, 0]);
});

/** A service that has `method`. `looks`: how often the method was looked up; `stubs`: how many stubs of it were not disposed of. */
function serviceOf(method, name = "order") {
  const its = { looks: 0, stubs: 0 };
  const stub = () => {
    its.stubs += 1;
    const dispose = () => void (its.stubs -= 1);
    return Object.assign(Object.setPrototypeOf((...asked) => its.method(...asked), RpcStub.prototype), { [Symbol.dispose]: dispose });
  };
  its.method = method;
  its.binding = new Proxy({}, { get: (_, asked) => ((its.looks += 1), asked === name && its.method !== undefined ? stub() : undefined) });
  its.send = senderOf({ UPSTREAM: its.binding, SEMEL_UPSTREAM_METHOD: name });
  return its;
}

test("a method is checked once, and again after a failed call; if it is missing or silent, surely nothing was sent", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const its = serviceOf(async ({ method, path, body }) => ({ status: 200, body: `${method} ${path} ${new TextDecoder().decode(body)}` }), "first");
  for (let time = 0; time < 2; time += 1) assert.deepEqual(await sent(its.send, { search: "?a=1" }), [200, "content-type:text/plain;charset=UTF-8\n", "POST /orders?a=1 one"]);
  // One look is for the method itself, and two are the calls'. Each call makes a stub.
  assert.deepEqual([its.looks, its.stubs], [3, 2]);
  its.method = () => Promise.reject(new Error("told to fail"));
  assert.deepEqual(await sent(its.send), [false, "Error: told to fail", undefined]);
  its.method = undefined;
  assert.deepEqual(await sent(its.send), [true, "Error: SEMEL_UPSTREAM_METHOD: TypeError: the service has no such method", undefined]);
  const silent = senderOf({ UPSTREAM: { second: new Promise(() => {}) }, SEMEL_UPSTREAM_METHOD: "second", SEMEL_UPSTREAM_TIMEOUT_SECONDS: "1" });
  const told = sent(silent);
  await passes(t, 1_000);
  assert.deepEqual(await told, [true, "Error: SEMEL_UPSTREAM_METHOD: Error: no answer in 1000 ms", undefined]);
});

test("the encoding that a method gives its body is kept, and that of a response whose body was decoded is dropped", async () => {
  const headers = { "content-type": "application/octet-stream", "content-encoding": "br" };
  const made = { "by itself": () => ({ status: 200, headers, body: bytesOf("\u0001x") }), "of a response": () => new Response(bytesOf("\u0001x"), { headers }) };
  const heard = [];
  for (const [name, answer] of Object.entries(made)) heard.push((await sent(serviceOf(async () => answer(), name).send)).slice(1));
  const [encoding, type] = ["content-encoding:br\n", "content-type:application/octet-stream\n"];
  assert.deepEqual(heard, [[encoding + type, "\u0001x"], [type, "\u0001x"]]);
  // A body that begins as gzip does is still encoded, whatever its type. Other headers that mention an encoding stay.
  const zipped = () => new Response(Uint8Array.of(0x1f, 0x8b, 1), { headers: { ...headers, "content-encoding": "gzip" } });
  assert.equal((await sent(serviceOf(async () => zipped(), "zipped").send))[1], `content-encoding:gzip\n${type}`);
  // One that has only half of that, or is no text, may have been decoded.
  for (const bytes of [[0x1f, 1], [1, 0x8b], [0xff]]) {
    assert.equal((await sent(serviceOf(async () => new Response(Uint8Array.of(...bytes), { headers }), `${bytes}`).send))[1], type);
  }
  const said = () => new Response(bytesOf("\u0001x"), { headers: { ...headers, "x-form": "br" } });
  assert.equal((await sent(serviceOf(async () => said(), "said").send))[1], `${type}x-form:br\n`);
});

test("a method that answers with an invalid body or status leaves the request in doubt", async () => {
  for (const [name, answer] of Object.entries({ number: { status: 200, body: 7 }, object: { status: 200, body: {} }, status: { status: "200", body: "x" }, nothing: undefined })) {
    const [isUnsent, why] = await sent(serviceOf(async () => answer, name).send);
    assert.deepEqual([isUnsent, /the service gave a status that is no number, or a body/.test(why)], [false, true], name);
  }
});

test("a method may answer without a body, and without headers", async () => {
  for (const [name, answer] of Object.entries({ bare: { status: 204 }, null: { status: 204, headers: null, body: null } })) assert.deepEqual(await sent(serviceOf(async () => answer, name).send), [204, "", ""]);
});

test("the length that a method tells is passed on of the answer to a HEAD alone", async () => {
  const its = serviceOf(async () => ({ status: 200, headers: { "content-length": "5000" } }), "tells");
  assert.deepEqual(await sent(its.send, { method: "HEAD" }), [200, "content-length:5000\n", ""]);
  assert.deepEqual(await sent(its.send, { method: "GET" }), [200, "", ""]);
  // A probe is a GET, whatever it looks for.
  assert.deepEqual(await sent(its.send, { method: "HEAD", probe: "/orders/1" }), [200, "", ""]);
});

test("a body of a method that does not end in time, or comes too late, is cancelled", async (t) => {
  for (const lateMs of [0, 30_000]) {
    t.mock.timers.enable({ apis: ["setTimeout", "Date"] });
    let isOver = false;
    const endless = () => new ReadableStream({ cancel: () => void (isOver = true) });
    const answered = () => ({ status: 200, body: endless() });
    const its = serviceOf(() => (lateMs === 0 ? Promise.resolve(answered()) : new Promise((resolve) => setTimeout(() => resolve(answered()), lateMs))), `late ${lateMs}`);
    const told = sent(its.send);
    await passes(t, 25_000);
    assert.deepEqual(await told, [false, "Error: no answer in 25000 ms", undefined]);
    await passes(t, lateMs);
    assert.equal(isOver, true);
    t.mock.timers.reset();
  }
});

test("the steps before a call count against its time limit, and if that is over nothing is sent", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_000_000 });
  const vars = { ...ORIGIN, SEMEL_UPSTREAM_TIMEOUT_SECONDS: "10", SEMEL_UPSTREAM_CONNECT_FIRST: "true" };
  const asked = network(t, ({ signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))));
  let open;
  connections(() => new Promise((resolve) => (open = resolve)));
  const connecting = sent(senderOf(vars), { sinceMs: 997_000 });
  await passes(t, 4_000);
  open();
  await passes(t, 2_999);
  assert.equal(await Promise.race([connecting, turn("waits")]), "waits");
  await passes(t, 1);
  assert.deepEqual([await connecting, asked.length], [[false, "Error: no answer in 3000 ms", undefined], 1]);

  let calls = 0;
  let tell;
  const method = Object.assign(Object.setPrototypeOf(() => ((calls += 1), new Promise(() => {})), RpcStub.prototype), { [Symbol.dispose]() {} });
  const looks = [new Promise((resolve) => (tell = resolve)), method];
  const service = { get third() { return looks.shift(); } };
  const called = sent(senderOf({ UPSTREAM: service, SEMEL_UPSTREAM_METHOD: "third", SEMEL_UPSTREAM_TIMEOUT_SECONDS: "10" }));
  await passes(t, 6_000);
  tell(method);
  await passes(t, 4_000);
  assert.deepEqual([await called, calls], [[false, "Error: no answer in 4000 ms", undefined], 1]);

  asked.length = 0;
  connections();
  for (const over of [vars, { ...vars, SEMEL_UPSTREAM_CONNECT_FIRST: "false" }, { UPSTREAM: serviceOf(() => assert.fail("it is called")).binding, SEMEL_UPSTREAM_METHOD: "order", SEMEL_UPSTREAM_TIMEOUT_SECONDS: 10 }]) {
    assert.deepEqual(await sent(senderOf(over), { sinceMs: Date.now() - 10_000 }), [true, "Error: its time was over before it was sent", undefined]);
  }
  assert.equal(asked.length, 0);
});

test("a call whose clock is put back gets no more time than its limit", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: 10_000_000 });
  network(t, ({ signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))));
  // The call was started an hour ahead of what the clock shows now.
  const late = sent(senderOf({ ...ORIGIN, SEMEL_UPSTREAM_TIMEOUT_SECONDS: "10" }), { sinceMs: 13_600_000 });
  await passes(t, 10_000);
  assert.deepEqual(await Promise.race([late, turn("waits")]), [false, "Error: no answer in 10000 ms", undefined]);
});

test("an invalid origin or setting is refused, and the error shows the value, except of an address, which may have a password", () => {
  for (const [vars, says] of [
    [{ SEMEL_UPSTREAM: "https://api.example#a" }, /must be an origin/],
    [{ SEMEL_UPSTREAM: "https://user:swordfish@api.example" }, /^(?!.*swordfish).*must be an origin/],
    [{ SEMEL_UPSTREAM: "https://:swordfish@api.example" }, /^(?!.*swordfish).*must be an origin/],
    [{ ...ORIGIN, SEMEL_UPSTREAM_TIMEOUT_SECONDS: "600.5" }, /is "600.5"; it must be above 0, and at most 600$/],
    [{ ...ORIGIN, SEMEL_UPSTREAM_TIMEOUT_SECONDS: 0 }, /is 0; it must be above 0/],
    [{ ...ORIGIN, SEMEL_UPSTREAM_CONNECT_FIRST: "yes" }, /is "yes"; it must be true or false/],
  ]) assert.throws(() => senderOf(vars), says, JSON.stringify(vars));
});
