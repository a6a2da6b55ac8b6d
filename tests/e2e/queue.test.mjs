// A queue's messages, on workerd: each takes effect once at its key, however often it is delivered. One that can't becomes a dead letter.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { after, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { randomOf } from "./lossy.mjs";
import { given, natively } from "./natively.mjs";
import { deadLetters, deliver } from "./queue-side.mjs";
import { scriptWorker } from "./script.mjs";
import { serve } from "./server.mjs";

const LIMIT = { timeout: 120_000 };
const DAY_MS = 86_400_000;
const side = await deadLetters(after);
const folder = await scriptWorker(after, join(ROOT, "tests/e2e/queue/index.js"));
const server = await serve(after, "script", {}, { folder, objects: { SEMEL: "Tills", REGISTRY: "SemelRegistry" }, deadLetters: side.address });
const sales = async (till) => (await server.send("GET", `/tills/${till}/all`)).json;
const sale = (till, name, more = {}) => ({ id: randomUUID(), body: { till, sale: name, ...more } });

/** Takes the letter that has come; there must be exactly one. */
function letter() {
  assert.equal(side.letters.length, 1, JSON.stringify(side.letters));
  return side.letters.pop();
}

test("a message takes effect once however often it is delivered, and is acknowledged each time", LIMIT, async () => {
  const message = sale("north", "one");
  for (const attempts of [1, 2, 3]) assert.deepEqual(await deliver(server, "sales", [{ ...message, attempts }]), { acknowledged: [message.id], again: {} });
  const twice = sale("north", "two");
  await Promise.all([deliver(server, "sales", [twice, twice]), deliver(server, "sales", [twice])]);
  assert.deepEqual((await sales("north")).map(({ sale, principal }) => [sale, principal]), [["one", "semel:queue"], ["two", "semel:queue"]]);
});

test("with ids from a member, equal messages take effect once, and a different one under that id is a dead letter", LIMIT, async () => {
  const [one, other] = [sale("south", "s1"), sale("south", "s1")];
  assert.deepEqual((await deliver(server, "named", [one, { ...other, timestamp: Date.now() - 1000 }])).again, {});
  assert.equal((await sales("south")).length, 1);
  const differs = sale("south", "s1", { amount: 2 });
  assert.deepEqual((await deliver(server, "named", [differs])).acknowledged, [differs.id]);
  const { reason, ...rest } = letter();
  assert.deepEqual([reason.code, reason.status, reason.executed, reason.retry], ["fingerprint-mismatch", 422, "no", "after-fix"]);
  assert.deepEqual([rest.queue, rest.id, rest.attempts, rest.body], ["named", differs.id, 1, differs.body]);
  assert.equal((await sales("south")).length, 1);
});

test("each message of a batch is acknowledged by itself; one refused for good or failing thrice is a dead letter", LIMIT, async () => {
  const [fine, refused, throws, last] = [sale("west", "fine"), sale("west", "refused", { does: "refuses" }), sale("west", "throws", { does: "throws" }), sale("west", "last")];
  const { acknowledged, again } = await deliver(server, "sales", [fine, refused, throws, last]);
  assert.deepEqual([acknowledged.toSorted(), again], [[fine.id, refused.id, last.id].toSorted(), { [throws.id]: 5 }]);
  const { reason } = letter();
  assert.deepEqual(reason, { code: "refused", status: 409, executed: "yes", retry: "never", detail: '{"error":"sold out"}' });
  const lengthy = sale("west", "lengthy", { does: "refuses at length" });
  assert.deepEqual((await deliver(server, "sales", [lengthy])).acknowledged, [lengthy.id]);
  assert.equal(letter().reason.detail, "sold out ".repeat(100_000).slice(0, 1_000), "a letter has 128 kB at most");
  await server.line(new RegExp(`a dead letter: .*${refused.id}`));
  // A message whose handler fails at each delivery is given up after three.
  assert.deepEqual((await deliver(server, "sales", [{ ...throws, attempts: 2 }])).again, { [throws.id]: 5 });
  assert.equal(side.letters.length, 0);
  assert.deepEqual((await deliver(server, "sales", [{ ...throws, attempts: 3 }])).acknowledged, [throws.id]);
  assert.deepEqual([letter().reason.code, (await sales("west")).length], ["rolled-back", 4]);
  // What the handler answered is in the letter, but not in the log.
  await server.line(new RegExp(`a dead letter: .*${throws.id}`));
  assert.doesNotMatch(server.log, /sold out/);
  assert.deepEqual((await deliver(server, "patient", [{ ...throws, id: randomUUID(), attempts: 3 }])).acknowledged, []);
});

test("at the last delivery of its queue a message that fails is a dead letter with its reason", LIMIT, async () => {
  const throws = sale("limited", "throws", { does: "throws" });
  assert.deepEqual((await deliver(server, "limited", [{ ...throws, attempts: 4 }])).again, { [throws.id]: 5 });
  assert.equal(side.letters.length, 0);
  assert.deepEqual((await deliver(server, "limited", [{ ...throws, attempts: 5 }])).acknowledged, [throws.id]);
  const { reason, attempts } = letter();
  assert.deepEqual([reason.code, reason.executed, attempts], ["rolled-back", "no", 5]);
});

/** What a letter says about the execution of its message. */
const said = ({ reason: { code, executed, retry } }) => [code, executed, retry];
const open = (till) => deliver(server, "sales", [sale(till, "open")]);

test("a message whose dead letter says that it did not run never runs, even if it is delivered again", LIMIT, async () => {
  const given = { waits: ["rolled-back", sale("late", "waits", { does: "waits" })], unknown: ["not-found", sale("late", "unknown", { does: "unknown" })] };
  for (const [does, [code, message]] of Object.entries(given)) {
    assert.deepEqual((await deliver(server, "sales", [{ ...message, attempts: 3 }])).acknowledged, [message.id], does);
    assert.deepEqual(said(letter()), [code, "no", "never"], does);
  }
  await open("late");
  const [, waits] = given.waits;
  for (const attempts of [4, 5]) {
    assert.deepEqual((await deliver(server, "sales", [{ ...waits, attempts }])).acknowledged, [waits.id]);
    assert.deepEqual(said(letter()), ["cancelled", "no", "never"]);
  }
  assert.deepEqual((await sales("late")).map(({ sale }) => sale), ["open"]);
  // To the queue, the same message sent in again is another message.
  assert.deepEqual((await deliver(server, "sales", [{ ...waits, id: randomUUID() }])).again, {});
  assert.deepEqual([(await sales("late")).length, side.letters.length], [2, 0]);
});

test("a message with an id of its own is not cancelled but a dead letter that says same-id, and can be sent in again", LIMIT, async () => {
  const message = sale("again", "waits", { does: "waits" });
  assert.deepEqual((await deliver(server, "named", [{ ...message, attempts: 3 }])).acknowledged, [message.id]);
  assert.deepEqual(said(letter()), ["rolled-back", "no", "same-id"]);
  await open("again");
  for (const id of [randomUUID(), message.id]) assert.deepEqual((await deliver(server, "named", [{ ...message, id, attempts: 4 }])).acknowledged, [id]);
  assert.deepEqual([(await sales("again")).map(({ sale }) => sale), side.letters.length], [["open", "waits"], 0]);
});

test("if the answer to the cancellation of a message is lost, a dead letter is sent only at the last delivery", LIMIT, async () => {
  const [message, last] = [sale("unheard", "one", { does: "waits" }), sale("unheard", "two", { does: "waits" })];
  assert.deepEqual((await deliver(server, "unheard", [{ ...message, attempts: 3 }])).again, { [message.id]: 5 });
  assert.equal(side.letters.length, 0);
  assert.deepEqual((await deliver(server, "unheard", [{ ...last, attempts: 5 }])).acknowledged, [last.id]);
  assert.deepEqual(said(letter()), ["rolled-back", "no", "same-id"]);
  await open("unheard");
  assert.deepEqual((await deliver(server, "unheard", [{ ...message, attempts: 4 }])).acknowledged, [message.id]);
  assert.deepEqual([said(letter()), (await sales("unheard")).length], [["cancelled", "no", "never"], 1]);
});

test("if the answer to a cancellation is lost, the log has its cause, and the later dead letter says only cancelled", LIMIT, async () => {
  const message = sale("unheard", "nowhere", { does: "unknown" });
  for (const [attempts, again] of [[1, { [message.id]: 5 }], [2, {}]]) assert.deepEqual((await deliver(server, "unheard", [{ ...message, attempts }])).again, again);
  assert.deepEqual(said(letter()), ["cancelled", "no", "never"]);
  await server.line(new RegExp(`a dead letter: .*${message.id}.*not-found`));
});

test("a message whose dead letter does not say never may still run late, and cancelling it tells whether it did", LIMIT, async () => {
  const cancel = async (id) => (await server.admin("POST", `keys/${encodeURIComponent("tills/on-its-way")}/cancel`, { id: randomUUID(), body: JSON.stringify({ id }) })).json.state;
  const [first, second] = ["first", "second"].map((name) => sale("on-its-way", name, { does: "waits" }));
  for (const message of [first, second]) {
    assert.deepEqual((await deliver(server, "late", [{ ...message, attempts: 4 }])).again, { [message.id]: 1 });
    assert.deepEqual((await deliver(server, "uncancelled", [{ ...message, attempts: 5 }])).acknowledged, [message.id]);
    assert.deepEqual(said(letter()), ["rolled-back", "no", "same-id"]);
  }
  await open("on-its-way");
  assert.equal(await cancel(second.id), "cancelled");
  await deliver(server, "arriving", []);
  assert.deepEqual([await cancel(first.id), (await sales("on-its-way")).map(({ sale }) => sale)], ["executed", ["open", "first"]]);
});

test("a message that another delivery executed meanwhile is acknowledged, or a dead letter with the refusal", LIMIT, async () => {
  const [fine, refused] = [sale("raced", "fine", { does: "waits" }), sale("raced-too", "refused", { does: "waits-and-refuses" })];
  assert.deepEqual((await deliver(server, "raced", [{ ...fine, attempts: 3 }])).acknowledged, [fine.id]);
  assert.deepEqual([(await sales("raced")).map(({ sale }) => sale), side.letters.length], [["open", "fine"], 0]);
  assert.deepEqual((await deliver(server, "raced", [{ ...refused, attempts: 3 }])).acknowledged, [refused.id]);
  assert.deepEqual(letter().reason, { code: "refused", status: 409, executed: "yes", retry: "never", detail: '{"error":"sold out"}' });
  // The detail of a letter stays a text, even where base64 would be shorter in JSON.
  const quotes = sale("raced-quotes", "refused", { does: "waits-and-refuses-in-quotes" });
  assert.deepEqual((await deliver(server, "raced", [{ ...quotes, attempts: 3 }])).acknowledged, [quotes.id]);
  assert.equal(letter().reason.detail, JSON.stringify({ error: '"'.repeat(60) }));
});

test("a message that can be neither run nor cancelled is a dead letter at once, which does not say never", LIMIT, async () => {
  const ahead = { ...sale("ahead", "one"), timestamp: Date.now() + 30 * DAY_MS };
  assert.deepEqual((await deliver(server, "sales", [ahead])).acknowledged, [ahead.id]);
  assert.deepEqual([said(letter()), await sales("ahead")], [["key-invalid", "no", "after-fix"], []]);
});

test("without a queue for dead letters a message that fails is not cancelled, and can still run", LIMIT, async () => {
  const message = sale("unlettered", "one", { does: "waits" });
  assert.deepEqual((await deliver(server, "unlettered", [{ ...message, attempts: 3 }])).again, { [message.id]: 5 });
  await open("unlettered");
  assert.deepEqual((await deliver(server, "unlettered", [{ ...message, attempts: 4 }])).acknowledged, [message.id]);
  assert.equal((await sales("unlettered")).length, 2);
});

test("with settings that can't be read a message is delivered again, and is a dead letter at the last delivery", LIMIT, async () => {
  const wrong = await serve(after, "script", { SEMEL_RETENTION_SECONDS: "nonsense" }, { folder, objects: { SEMEL: "Tills", REGISTRY: "SemelRegistry" }, deadLetters: side.address });
  const message = sale("limited", "unset");
  assert.deepEqual((await deliver(wrong, "limited", [{ ...message, attempts: 4 }])).again, { [message.id]: 1 });
  assert.equal(side.letters.length, 0);
  assert.deepEqual((await deliver(wrong, "limited", [{ ...message, attempts: 5 }])).acknowledged, [message.id]);
  const { reason } = letter();
  assert.deepEqual([reason.code, reason.status, reason.executed], ["unavailable", 503, "unknown"]);
});

test("text, bytes and JSON arrive as they are, each once, under ids with quotes and backslashes", LIMIT, async () => {
  const messages = [{ id: "text", body: "caf\u00e9" }, { id: "bytes", made: "bytes" }, { id: "json", body: [1, null] }, { id: "date", made: "date" }];
  for (let time = 0; time < 2; time += 1) assert.equal((await deliver(server, "plain", messages)).acknowledged.length, 4);
  const found = (await sales("plain")).map(({ type, body }) => [type, body]).toSorted();
  assert.deepEqual(found, [["application/json", "[1,null]"], ["application/json", '{"at":"1970-01-01T00:00:00.000Z"}'], ["application/octet-stream", "caf\u00e9"], ["text/plain; charset=utf-8", "caf\u00e9"]]);
});

test("a message that can't be made into a request is a dead letter at once, with its body", LIMIT, async () => {
  const wrong = {
    "no object": ["sales", { body: "text" }, /no till that is/],
    "no member": ["sales", { body: { till: "east" } }, /no sale that is/],
    "inherited": ["inherited", { body: { till: "east" } }, /no constructor that is/],
    "a way out": ["sales", { body: { till: "..", sale: "1" } }, /can be no segment of a path/],
    "no json": ["plain", { made: "map" }, /the body is or has \[object Map\]/],
    "no json in it": ["plain", { made: "set" }, /the body is or has \[object Set\]/],
    "no number in it": ["plain", { made: "nan" }, /the body is or has NaN/],
    "no id": ["named", { body: { till: "east", sale: "\u00e9" } }, /printable ASCII/],
    "no path": ["nowhere", { body: { path: "elsewhere" } }, /begins with/],
  };
  for (const [name, [queue, message, detail]] of Object.entries(wrong)) {
    const id = randomUUID();
    assert.deepEqual((await deliver(server, queue, [{ id, ...message }])).acknowledged, [id], name);
    const found = letter();
    assert.deepEqual([found.id, found.reason.code, found.reason.executed, found.reason.retry], [id, "message-invalid", "no", "after-fix"], name);
    assert.match(found.reason.detail, detail, name);
    if (message.body !== undefined) assert.deepEqual(found.body, message.body);
  }
});

test("a message can't ask for a path of the protocol or the administrator, and is a dead letter with not-found", LIMIT, async () => {
  for (const path of ["/semel/v1/keys/tills%2Fnorth/acks", "/semel/v1/keys/tills%2Fnorth/cancel", "/semel/v1/admin/keys/tills%2Fnorth/forget", "/%73emel/v1/admin/keys", "/unknown", "/tills/north/nothing"]) {
    const id = randomUUID();
    assert.deepEqual((await deliver(server, "nowhere", [{ id, body: { path } }])).acknowledged, [id], path);
    assert.deepEqual([letter().reason.code, path], ["not-found", path]);
  }
});

test("a message that is older than the retention does not run, and is a dead letter with outside-window", LIMIT, async () => {
  const old = { ...sale("old", "one"), timestamp: Date.now() - 3 * DAY_MS };
  assert.deepEqual((await deliver(server, "sales", [old])).acknowledged, [old.id]);
  assert.deepEqual([letter().reason.code, await sales("old")], ["outside-window", []]);
});

test("if a dead letter can't be sent, its message is delivered again", LIMIT, async () => {
  const refused = sale("letters", "one", { does: "refuses" });
  side.fails = 1;
  assert.deepEqual(await deliver(server, "sales", [refused]), { acknowledged: [], again: { [refused.id]: 5 } });
  assert.deepEqual(await deliver(server, "sales", [refused]), { acknowledged: [refused.id], again: {} });
  assert.equal(letter().reason.code, "refused");
  assert.deepEqual((await deliver(server, "unlettered", [sale("letters", "two", { does: "refuses" })])).acknowledged, []);
});

test("a message whose id a client has used is a dead letter, and a client can't use the principal of queues", LIMIT, async () => {
  const message = sale("taken", "one");
  const mine = await server.send("POST", "/tills/taken/sales/one", { id: message.id, as: "alice", body: JSON.stringify(message.body), headers: { "content-type": "application/json" } });
  assert.equal(mine.semel, "executed");
  await deliver(server, "sales", [message]);
  assert.equal(letter().reason.code, "fingerprint-mismatch");
  // The other message with this id took effect. That says nothing about this one.
  const executed = sale("taken", "other");
  for (const body of [executed.body, { ...executed.body, amount: 2 }]) assert.deepEqual((await deliver(server, "sales", [{ ...executed, body }])).acknowledged, [executed.id]);
  assert.deepEqual(said(letter()), ["fingerprint-mismatch", "no", "after-fix"]);
  assert.equal((await server.send("POST", "/tills/taken/sales/two", { id: randomUUID(), as: "semel:queue" })).semel, "unauthorized");
  assert.equal((await server.send("POST", "/tills/taken/sales/two", { id: randomUUID(), headers: { "semel-principal": '"semel:queue"' } })).semel, "forbidden");
});

test("a message on which a handler in Rust panics three times is poisoned, and a dead letter", LIMIT, async () => {
  const probe = await serve(after, "probe", {}, { deadLetters: side.address });
  const panics = { id: randomUUID(), body: { does: "panic" } };
  for (const attempts of [1, 2]) assert.deepEqual((await deliver(probe, "probe", [{ ...panics, attempts }, { id: randomUUID(), body: { does: "now" } }])).again, { [panics.id]: 5 });
  assert.deepEqual((await deliver(probe, "probe", [{ ...panics, attempts: 3 }])).acknowledged, [panics.id]);
  const { reason } = letter();
  assert.deepEqual([reason.code, reason.status, reason.executed], ["poisoned", 410, "no"]);
});

test("kill -9 and duplicates: of 300 messages, each takes effect once", LIMIT, async () => {
  const random = randomOf(7);
  const pick = (from) => from[Math.floor(random() * from.length)];
  const messages = Array.from({ length: 300 }, (_, at) => ({ ...sale(`till-${at % 7}`, `sale-${at}`), attempts: 0 }));
  const left = new Map(messages.map((message) => [message.id, message]));
  let [deliveries, kills] = [0, 0];
  const batch = async () => {
    // Some messages come again after they were acknowledged, and some twice in one batch.
    const chosen = [...Array.from({ length: 20 }, () => pick([...left.values()])), ...Array.from({ length: 4 }, () => pick(messages))].filter(Boolean);
    deliveries += chosen.length;
    const { acknowledged } = await deliver(server, "sales", chosen);
    return acknowledged;
  };
  while (left.size > 0) {
    const batches = [batch(), batch(), batch()].map((each) => each.catch(() => []));
    if (kills < 8) {
      kills += 1;
      await new Promise((resolve) => setTimeout(resolve, random() * 60));
      await server.restart();
    }
    // The queue never hears the answer to one of the three batches, so it delivers these messages again.
    const [, ...heard] = await Promise.all(batches);
    for (const id of heard.flat()) left.delete(id);
  }
  const made = (await Promise.all(Array.from({ length: 7 }, (_, till) => sales(`till-${till}`)))).flat().map(({ sale }) => sale);
  assert.deepEqual([made.length, new Set(made).size], [300, 300], `${deliveries} deliveries, ${kills} kills`);
  assert.equal(side.letters.length, 0);
});

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
    method: [null, 5, "", "GET", "HEAD", "BREW", "POST ", ["POST"], {}],
    deadLetters: [null, 5, { send() {} }],
    deliveries: [null, "3", 0, 0.5, -1, Number.NaN, {}],
    retries: [null, "3", -1, Number.NaN, {}],
    deadletters: ["LETTERS"],
  };
  for (const [name, values] of Object.entries(wrong)) {
    for (const value of values) assert.throws(() => consumer({ path: "/{a}", [name]: value }), new RegExp(`^TypeError: consumer\\(\\).*\\b${name}\\b`), `${name}: ${String(value)}`);
  }
  assert.throws(() => consumer(), /path is a template/);
  for (const fine of [{}, { id: () => "a", method: "patch", deadLetters: "LETTERS", deliveries: Infinity, retries: 0 }, { id: undefined, method: undefined, deadLetters: undefined, deliveries: undefined, retries: undefined }]) {
    assert.equal(typeof consumer({ path: () => "/a", ...fine }), "function");
  }
});

test("with ids from a member a message runs however old it is", LIMIT, async () => {
  const old = { ...sale("old-named", "one"), timestamp: Date.now() - 3 * DAY_MS };
  assert.deepEqual((await deliver(server, "named", [old])).acknowledged, [old.id]);
  assert.deepEqual([(await sales("old-named")).length, side.letters.length], [1, 0]);
});

test("with settings that can't be read a message is delivered again, even at its 50th delivery", LIMIT, async () => {
  const wrong = await serve(after, "script", { SEMEL_RETENTION_SECONDS: "nonsense" }, { folder, objects: { SEMEL: "Tills", REGISTRY: "SemelRegistry" }, deadLetters: side.address });
  const message = { ...sale("unset", "one"), attempts: 50 };
  assert.deepEqual((await deliver(wrong, "sales", [message])).again, { [message.id]: 1 });
  assert.equal(side.letters.length, 0);
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
});

const EXECUTED = [200, "semel-status:executed\n", bytesOf("x")];

test("a member is one escaped segment of the path; if it is empty, fractional or inherited, the message is invalid", async (t) => {
  for (const [a, path] of [["x/../../semel/v1/admin", "/x%2F..%2F..%2Fsemel%2Fv1%2Fadmin"], ["?#", "/%3F%23"], [-5, "/-5"]]) {
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
  t.mock.method(console, "log", () => {});
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
