// The consumer of a queue, tested in Node with the worker's own modules: which options it takes, and what becomes of a message by its answer.
// `queue.test.mjs` has queues on workerd.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { given, natively } from "./natively.mjs";

test("consumer() refuses a path whose names are not in braces", async () => {
  const { consumer } = await natively("queue.js");
  assert.throws(() => consumer({ path: "/tills/:till/sales" }), /consumer\(\) has \/tills\/:till\/sales: a name is in braces there, as \{name\}/);
  assert.equal(typeof consumer({ path: "/tills/{till}/sales:open" }), "function");
});

test("consumer() refuses an unknown option, or a value of the wrong kind, when it is called", async () => {
  const { consumer } = await natively("queue.js");
  const wrong = {
    path: [undefined, null, 5, "", "shops/{shop}", "{shop}/orders", /a/, async () => "/a", async function* () {}],
    id: [null, 5, {}, ["id"], async () => "a"],
    method: [null, 5, "", "GET", "HEAD", "BREW", "POST ", "REPOST", ["POST"], {}],
    deadLetters: [null, 5, { send() {} }],
    deliveries: [null, "3", 0, 0.5, -1, Number.NaN, {}],
    retries: [null, "3", -1, Number.NaN, {}],
    deadletters: ["LETTERS"],
  };
  for (const [name, values] of Object.entries(wrong)) {
    for (const value of values) assert.throws(() => consumer({ path: "/{a}", [name]: value }), new RegExp(`^TypeError: consumer\\(\\).*\\b${name}\\b`), `${name}: ${String(value)}`);
  }
  assert.throws(() => consumer(), /path is a template/);
  for (const fine of [{}, { id: () => "a", method: "patch", deadLetters: "LETTERS", deliveries: Infinity, retries: 0 }, { deliveries: 1 }, { id: undefined, method: undefined, deadLetters: undefined, deliveries: undefined, retries: undefined }]) {
    assert.equal(typeof consumer({ path: () => "/a", ...fine }), "function");
  }
});

/**
 * Delivers a message whose key gives this answer. Resolves to what became of it, the reasons of the letters, and `[method, path, query, headers]` of
 * each request.
 */
async function consumed(t, answer, message = {}, options = {}) {
  t.mock.method(console, "log", () => {});
  const { consumer } = await natively("queue.js");
  const [done, letters, asked] = [[], [], []];
  // The Worker keeps the first router that it gets, so this object must stay the same.
  given.glue.router ??= {};
  given.glue.router.route_message = (...head) => (asked.push(head.slice(0, 4)), answer);
  const all = { id: "one", body: { a: 1 }, timestamp: new Date(), attempts: 1, ack: () => done.push("ack"), retry: ({ delaySeconds }) => done.push(delaySeconds), ...message };
  await consumer({ path: "/{a}", ...options })({ queue: "q", messages: [all] }, { DEAD_LETTERS: { send: async ({ reason }) => letters.push(reason) } });
  return [done, letters, asked];
}
const bytesOf = (text) => new TextEncoder().encode(text);

test("a message is acknowledged if its outcome is 2xx, and a dead letter if it redirects or refuses", async (t) => {
  for (const status of [200, 299]) assert.deepEqual((await consumed(t, [status, "semel-status:executed\n", bytesOf("x")])).slice(0, 2), [["ack"], []]);
  for (const status of [300, 303, 399, 400]) assert.deepEqual((await consumed(t, [status, "semel-status:replayed\n", bytesOf("why")]))[1], [{ code: "refused", status, executed: "yes", retry: "never", detail: "why" }]);
});

test("a message whose id was acknowledged meanwhile is acknowledged if it is known to have run, else a dead letter", async (t) => {
  const problem = (members) => [410, 'semel-status:acknowledged\nsemel-key:"k"\n', bytesOf(JSON.stringify({ code: "acknowledged", retry: "never", ...members }))];
  assert.deepEqual((await consumed(t, problem({ executed: "yes" }))).slice(0, 2), [["ack"], []]);
  assert.equal((await consumed(t, problem({ executed: "unknown" })))[1].length, 1);
  const [, [reason]] = await consumed(t, problem({ code: "outcome-expired", executed: "yes" }));
  assert.deepEqual([reason.code, reason.executed], ["outcome-expired", "yes"], "nobody knows whether it was refused");
});

test("the log has why a message is a dead letter, also where no queue takes letters, but no answer of a handler", async (t) => {
  const logged = () => console.log.mock.calls.map(({ arguments: [line] }) => JSON.parse(line).message);
  const problem = [404, "semel-status:not-found\n", bytesOf(JSON.stringify({ code: "not-found", executed: "no", retry: "after-fix", detail: "nothing handles this" }))];
  const said = 'a message of the queue q is a dead letter: {"message":"one","code":"not-found","status":404,"executed":"no","retry":"after-fix","detail":"nothing handles this"}';
  for (const [deadLetters, ended] of [["DEAD_LETTERS", "ack"], ["UNBOUND", 5]]) {
    const [done, letters] = await consumed(t, problem, {}, { deadLetters });
    assert.deepEqual([done, letters.length, logged()], [[ended], ended === "ack" ? 1 : 0, [said]]);
  }
  const [, [{ detail }]] = await consumed(t, [400, "semel-status:executed\n", bytesOf("a secret")]);
  assert.deepEqual([detail, logged()], ["a secret", ['a message of the queue q is a dead letter: {"message":"one","code":"refused","status":400,"executed":"yes","retry":"never"}']]);
});

const EXECUTED = [200, "semel-status:executed\n", bytesOf("x")];

test("a member is one escaped segment of the path; if it is empty, fractional or inherited, the message is invalid", async (t) => {
  for (const [a, path] of [["x/../../semel/v1/admin", "/x%2F..%2F..%2Fsemel%2Fv1%2Fadmin"], ["?#", "/%3F%23"], [-5, "/-5"], [".a", "/.a"], ["a..", "/a.."]]) {
    const [done, letters, [[, pathname, search]]] = await consumed(t, EXECUTED, { body: { a } });
    assert.deepEqual([done, letters, pathname, search], [["ack"], [], path, ""]);
  }
  // A path that begins with two slashes is not taken for a host.
  for (const path of ["//elsewhere/x", "/x?a=//b"]) {
    const [, , [[, pathname, search]]] = await consumed(t, EXECUTED, {}, { path: () => path });
    assert.equal(pathname + search, path);
  }
  for (const [body, path] of [[{ a: "" }], [{ a: 1.5 }], [{ a: 2 ** 53 }], [{ a: true }], [new Uint8Array(1), "/{byteLength}"], [new Map(), "/{size}"]]) {
    const [done, [reason], asked] = await consumed(t, EXECUTED, { body }, path && { path });
    assert.deepEqual([done, reason.code, asked], [["ack"], "message-invalid", []]);
  }
});

test("a text or null has no members, and what a path function returns must be a path", async (t) => {
  const invalid = { code: "message-invalid", executed: "no", retry: "after-fix" };
  for (const body of ["text", null]) {
    assert.deepEqual((await consumed(t, EXECUTED, { body }, { path: "/{length}" }))[1], [{ ...invalid, detail: "TypeError: the body has no length that is a text or a whole number" }]);
  }
  for (const path of [undefined, 5, ["/a"], "a", Promise.resolve("/a")]) {
    assert.deepEqual((await consumed(t, EXECUTED, {}, { path: () => path }))[1], [{ ...invalid, detail: "TypeError: the path of a message begins with /" }]);
  }
});

test("a request's content type says whether its message is text, bytes of any kind, or JSON", async (t) => {
  const bytes = new Uint8Array([1, 2]);
  for (const [body, type] of [["a", "text/plain; charset=utf-8"], [bytes, "application/octet-stream"], [bytes.buffer, "application/octet-stream"], [new DataView(bytes.buffer), "application/octet-stream"], [[1], "application/json"]]) {
    const [, , [[, , , lines]]] = await consumed(t, EXECUTED, { body }, { path: () => "/a" });
    assert.ok(lines.startsWith(`content-type:${type}\n`), lines);
  }
});

test("an id is a text of 1 to 255 characters, else a dead letter says why in at most 1,000 characters", async (t) => {
  const of = (id) => consumed(t, EXECUTED, {}, { id: () => id });
  const throws = () => {
    throw new Error("x".repeat(2_000));
  };
  assert.deepEqual((await of("x".repeat(255)))[0], ["ack"]);
  assert.match((await of('a "b" \\'))[2][0][3], /^idempotency-key:"a \\"b\\" \\\\"$/m);
  for (const id of ["", "x".repeat(256)]) assert.match((await of(id))[1][0].detail, /the id of a message has 1 to 255 characters/);
  for (const id of [5, undefined, Promise.resolve("x")]) assert.match((await of(id))[1][0].detail, /the id of a message is a text/);
  assert.equal((await consumed(t, EXECUTED, {}, { id: throws }))[1][0].detail.length, 1_000);
  const throwsNoText = () => {
    throw Object.create(null);
  };
  const [done, [{ code, detail }]] = await consumed(t, EXECUTED, {}, { path: throwsNoText });
  assert.deepEqual([done, code, detail], [["ack"], "message-invalid", "what was thrown can't be written as text"]);
});

test("the method of a consumer may be in small letters", async (t) => {
  for (const method of ["patch", "post", "DELETE"]) assert.deepEqual((await consumed(t, EXECUTED, {}, { method }))[2].map(([asked]) => asked), [method.toUpperCase()]);
});

test("a message that is given up is cancelled under its whole key, unless it may have run", async (t) => {
  const fails = (members) => [500, 'semel-status:rolled-back\nsemel-key:"a/b%25/c"\n', bytesOf(JSON.stringify({ code: "rolled-back", executed: "no", retry: "same-id", ...members }))];
  const [done, letters, [[, , , lines], cancel]] = await consumed(t, fails(), { attempts: 3, timestamp: new Date(5_999) });
  assert.deepEqual([done, letters, cancel.slice(0, 3)], [[5], [], ["POST", "/semel/v1/keys/a%2Fb%25%2Fc/cancel", ""]]);
  assert.match(lines, /prefer:wait=20\nsemel-first-sent:@5\n/);
  assert.match(cancel[3], /prefer:wait=20\nsemel-first-sent:@\d+\n/);
  // An answer without Retry-After has the message delivered again after the default interval.
  assert.deepEqual((await consumed(t, fails(), { attempts: 1 })).slice(0, 2), [[5], []]);
  const [, [reason], asked] = await consumed(t, fails({ code: "unavailable", executed: "unknown" }), { attempts: 3 }, { retries: 2 });
  assert.deepEqual([reason.executed, reason.retry, asked.length], ["unknown", "same-id", 1]);
});

test("a dead letter whose sending never ends is waited for 20 s, and then its message is delivered again", async (t) => {
  const { mock } = t.mock.method(console, "log", () => {});
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { consumer } = await natively("queue.js");
  given.glue.router ??= {};
  given.glue.router.route_message = () => EXECUTED;
  const done = [];
  const messages = [{ a: 1 }, {}].map((body, id) => ({ id: `${id}`, body, timestamp: new Date(), attempts: 1, ack: () => done.push(id), retry: (how) => done.push([id, how]) }));
  let isOver = false;
  consumer({ path: "/{a}" })({ queue: "q", messages }, { DEAD_LETTERS: { send: () => new Promise(() => {}) } }).then(() => (isOver = true));
  for (const [ms, is] of [[19_999, false], [1, true]]) {
    for (let turns = 0; turns < 10; turns += 1) await turn();
    t.mock.timers.tick(ms);
    for (let turns = 0; turns < 10; turns += 1) await turn();
    assert.equal(isOver, is);
  }
  assert.deepEqual(done, [0, [1, { delaySeconds: 5 }]]);
  assert.equal(JSON.parse(mock.calls.at(-1).arguments[0]).message, "a message of the queue q could not be consumed: Error: no answer in 20000 ms");
});

test("sixteen messages of a batch are under way at a time, and the next begins when one is done", async (t) => {
  t.mock.method(console, "log", () => {});
  const { consumer } = await natively("queue.js");
  given.glue.router ??= {};
  given.glue.router.route_message = () => ["k", "", 5_000];
  const underWay = [];
  const env = { SEMEL: { idFromName: (name) => name, get: () => ({ ask: () => new Promise((resolve) => underWay.push(resolve)) }) } };
  const done = [];
  const messages = Array.from({ length: 20 }, (_, id) => ({ id: `${id}`, body: { a: 1 }, timestamp: new Date(), attempts: 1, ack: () => done.push(id) }));
  const all = consumer({ path: "/{a}" })({ queue: "q", messages }, env);
  const pass = async () => {
    for (let turns = 0; turns < 10; turns += 1) await turn();
  };
  await pass();
  assert.equal(underWay.length, 16);
  underWay[3](EXECUTED);
  await pass();
  assert.deepEqual([underWay.length, done], [17, [3]]);
  for (let at = 0; at < 20; at += 1) {
    underWay[at](EXECUTED);
    await pass();
  }
  await all;
  assert.equal(done.length, 20);
});

test("a dead letter has the instant at which its message was sent, and how often it was delivered", async (t) => {
  t.mock.method(console, "log", () => {});
  const { consumer } = await natively("queue.js");
  const sent = [];
  const message = { id: "one", body: {}, timestamp: new Date(5_999), attempts: 2, ack: () => {}, retry: () => assert.fail("it is no letter") };
  await consumer({ path: "/{a}" })({ queue: "q", messages: [message] }, { DEAD_LETTERS: { send: async (letter) => sent.push(letter) } });
  const [{ reason, ...letter }] = sent;
  assert.deepEqual([reason.code, letter], ["message-invalid", { queue: "q", id: "one", timestamp: 5_999, attempts: 2, body: {} }]);
});

test("a dead letter is JSON, unless that would lose something of its message", async (t) => {
  t.mock.method(console, "log", () => {});
  const { consumer } = await natively("queue.js");
  const sent = [];
  const letters = { send: async ({ body }, { contentType }) => sent.push([body, contentType]) };
  const bodies = { json: ["text", { a: [1, null] }, { at: new Date(0) }], v8: [new Uint8Array([1]), new Map([["a", 1]]), { in: new Set([1]) }, [NaN], undefined] };
  const unread = () => {
    throw new Error("nobody knows its key");
  };
  for (const body of Object.values(bodies).flat()) {
    const message = { id: "one", body, timestamp: new Date(), attempts: 1, ack: () => {}, retry: () => assert.fail("it is no letter") };
    await consumer({ path: unread })({ queue: "q", messages: [message] }, { DEAD_LETTERS: letters });
  }
  assert.deepEqual(sent, Object.entries(bodies).flatMap(([type, each]) => each.map((body) => [body, type])));
});
