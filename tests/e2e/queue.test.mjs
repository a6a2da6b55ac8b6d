// A queue's messages, on workerd: each takes effect once at its key, however often it is delivered. One that can't becomes a dead letter.
// `queue-natively.test.mjs` has the consumer by itself.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { after, test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { randomOf } from "./lossy.mjs";
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
