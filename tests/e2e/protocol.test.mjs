// The worker takes the requests that PROTOCOL.md shows, and answers as it shows: authors of clients go by these examples.
//
// Invariants:
// - All instants of the page are moved by the same time, so that an instant a minute after the page's present is a minute after this one.
// - An answer may have headers that the page leaves out. Those that it shows must be there, as shown.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { serve } from "./server.mjs";

const PRESENT_MS = 1_795_238_129_894;
const INSTANT = /\b1795\d{6}(?:\d{3})?\b/g;
/** The values of these depend on the moment: only their length is compared. */
const OF_THE_MOMENT = /semel-now|semel-expires/;

const text = await readFile(join(ROOT, "PROTOCOL.md"), "utf8");
const server = await serve(after, "ledger");

const now = Math.floor((Date.now() - PRESENT_MS) / 1000);
const moved = (shown) => shown.replace(INSTANT, (instant) => (instant.length === 13 ? String(Number(instant) + now * 1000) : String(Number(instant) + now)));

/** The code blocks of a section: `{ first, headers, body }` for HTTP, and the text of others. */
function blocksOf(title) {
  const [, section] = new RegExp(`\n##+ ${title}\n([\\s\\S]*?)(?=\n##+ |$)`).exec(text) ?? assert.fail(`PROTOCOL.md has ${title}`);
  return [...section.matchAll(/```(\w+)\n([\s\S]*?)\n?```/g)].map(([, kind, block]) => {
    if (kind !== "http") return block;
    const [head, ...body] = block.split("\n\n");
    const [first, ...lines] = head.split("\n");
    const headers = Object.fromEntries(lines.map((line) => [line.split(": ")[0].toLowerCase(), line.slice(line.indexOf(": ") + 2)]));
    return { first, headers, body: body.join("\n\n") };
  });
}

/** Sends a request as the page shows it. */
async function sent({ first, headers, body }, more = {}) {
  const [method, path] = first.split(" ");
  const { host, "content-length": length, ...others } = headers;
  assert.ok(host && Number(length) === Buffer.byteLength(body), `${first}: a length of ${length}`);
  const said = Object.fromEntries(Object.entries({ ...others, ...more }).map(([name, value]) => [name, moved(value)]));
  return fetch(server.url + path, { method, headers: said, body: moved(body) });
}

/** Checks an answer against what the page shows. */
async function isShown(answer, { first, headers, body }) {
  const [, status] = first.split(" ");
  const got = await answer.text();
  assert.equal(answer.status, Number(status), got);
  for (const [name, value] of Object.entries(headers)) {
    const came = answer.headers.get(name);
    if (OF_THE_MOMENT.test(name)) assert.match(String(came), new RegExp(`^@?\\d{${value.replace("@", "").length}}$`), name);
    else assert.equal(came, value, name);
  }
  assert.equal(got, body);
}

test("PROTOCOL.md: the shortest client, a lost answer, another amount and a past deadline are answered as it shows", async () => {
  const [request, executed] = blocksOf("The shortest client");
  const [again, replayed, mismatch] = blocksOf("An example: a lost answer");
  const [expired] = blocksOf("Codes");
  await isShown(await sent(request), executed);
  await isShown(await sent(again), replayed);
  const other = again.body.replace("5", "6");
  await isShown(await sent({ ...again, body: other }), mismatch);
  await isShown(await sent(request, { "idempotency-key": '"late"', "semel-deadline": "0" }), expired);
});

test("PROTOCOL.md: health is answered as it shows, apart from the instant and from line breaks", async () => {
  const [shown] = blocksOf("Health");
  const answer = await fetch(`${server.url}/semel/v1/health`);
  const now = (answered) => Number(answered["semel-now"]);
  const compact = ({ headers, body }) => body.replace(/\n */g, "").replace(`"now":${now(headers)}`, '"now":0');
  const headers = Object.fromEntries(answer.headers);
  assert.equal(compact({ headers, body: await answer.text() }), compact(shown));
  for (const name of ["content-type", "semel-status", "cache-control"]) assert.equal(headers[name], shown.headers[name], name);
  assert.equal(answer.status, 200);
});

test("PROTOCOL.md: a look-up, an acknowledgement and a cancellation are answered as it shows", async () => {
  await sent(blocksOf("The shortest client")[0]);
  const [lookUp] = blocksOf("Look up");
  const [, path] = /http:\/\/127\.0\.0\.1:8787(\S+)/.exec(lookUp);
  const found = await fetch(server.url + path);
  assert.deepEqual([found.status, found.headers.get("semel-status")], [200, "replayed"]);
  const [acks, acknowledged] = blocksOf("Acknowledge without a request");
  await isShown(await sent(acks), acknowledged);
  assert.equal((await (await fetch(server.url + path)).json()).code, "acknowledged");
  const [cancel] = blocksOf("Cancel");
  assert.deepEqual(await (await sent(cancel)).json(), { state: "cancelled" });
});

test("PROTOCOL.md: a batch is answered as it shows, apart from the instants", async () => {
  // The batch is sent to another key, where its id is new.
  const [request, answers] = blocksOf("Batch").map((block) => block.replaceAll("alice", "bruno"));
  const answer = await fetch(`${server.url}/semel/v1/keys/accounts%2Fbruno/batch`, { method: "POST", body: moved(request) });
  const instants = (json) => JSON.parse(json, (name, value) => (OF_THE_MOMENT.test(name) ? value.replace(/\d/g, "0") : value));
  assert.deepEqual(instants(await answer.text()), instants(answers));
});

test("PROTOCOL.md: batches refused whole, invalid ids in bodies and a place closed twice are answered as it says", async () => {
  const path = `${server.url}/semel/v1/keys/accounts%2Fcarla/`;
  const post = (what, body, headers = {}) => fetch(path + what, { method: "POST", headers, body: JSON.stringify(body) });
  const told = async (answer) => [answer.status, answer.headers.get("semel-status"), answer.headers.has("semel-key")];
  const deposit = (more) => ({ method: "POST", path: "/accounts/carla/deposit", headers: { "content-type": "application/json" }, body: '{"amount":1}', ...more });
  await post("batch", [deposit({ id: "one" })]);

  const along = { "semel-ack": '"one"' };
  assert.deepEqual(await told(await post("batch", [], { ...along, "semel-deadline": "0" })), [408, "attempt-expired", false]);
  assert.deepEqual(await told(await post("batch", {}, along)), [400, "body-invalid", false]);
  assert.deepEqual(await told(await post("batch", Array(257).fill(deposit({ id: "two" })), along)), [413, "too-large", false]);
  assert.deepEqual(await told(await post("batch", [deposit({ id: "two", body: { base64: "QQ" } })], along)), [400, "body-invalid", false], "it is not padded");
  assert.deepEqual(await told(await fetch(`${path}outcomes/one`)), [200, "replayed", true]);

  const long = "a".repeat(256);
  assert.deepEqual(await told(await post("acks", { ids: [long] })), [400, "body-invalid", true]);
  assert.deepEqual(await told(await post("cancel", { id: long }, { "idempotency-key": "long" })), [400, "body-invalid", true]);
  const refused = await (await post("batch", [deposit({ id: long }), deposit({ id: "far", deadline: Date.now() + 600_000 })])).json();
  assert.deepEqual(refused.map(({ headers }) => headers["semel-status"]), ["key-invalid", "key-invalid"]);

  const { epoch } = await (await post("sessions", { name: "tab" }, { "idempotency-key": "holder" })).json();
  for (const id of ["close", "close-again"]) {
    const closed = await post("cancel", { session: { name: "tab", epoch, seq: 1 } }, { "idempotency-key": id });
    assert.deepEqual([closed.headers.get("semel-status"), await closed.json()], ["executed", { state: "cancelled" }], id);
  }
});

test("PROTOCOL.md: a take-over, a place, and a holder without answers to two requests are answered as it shows", async () => {
  const path = "/semel/v1/keys/accounts%2Fdora/sessions";
  // The page shows the fourth holder, after 17 places were taken.
  const dora = (shown) => ({ ...shown, first: shown.first.replace("alice", "dora") });
  const takenOver = async (id, body) => (await fetch(server.url + path, { method: "POST", headers: { "idempotency-key": id }, body })).json();
  for (const id of ["one", "two", "three"]) await takenOver(id, '{"name":"tab"}');
  const [shown] = blocksOf("Sending");
  const at = (epoch, seq) => sent(dora(shown), { "semel-session": `"tab";epoch=${epoch};seq=${seq}` });
  for (let seq = 1; seq <= 17; seq += 1) assert.equal((await at(3, seq)).status, 200);

  const [, answer] = /The answer is 200 `(\{"name":"tab","epoch":4,"lastSeq":17\})`/.exec(text);
  const [take] = blocksOf("Taking over");
  assert.deepEqual(await (await sent(dora(take))).json(), JSON.parse(answer));
  const placed = await sent(dora(shown));
  assert.deepEqual([placed.status, placed.headers.get("semel-status")], [200, "executed"]);

  assert.deepEqual(await takenOver("five", '{"name":"tab","after":4}'), { name: "tab", epoch: 5, lastSeq: 18 });
  const told = [];
  for (const [epoch, seq] of [[4, 18], [4, 19], [5, 19]]) {
    const got = await at(epoch, seq);
    const { executed, currentEpoch } = await got.json();
    told.push([got.headers.get("semel-status"), executed, currentEpoch]);
  }
  assert.deepEqual(told, [["replayed", undefined, undefined], ["fenced", "no", 5], ["executed", undefined, undefined]]);
});

test("PROTOCOL.md: fingerprints, escapes in a key and headers on a read count as it says", async () => {
  const deposit = (headers = {}, path = "/accounts/j%C3%B6rg%20m/deposit") =>
    fetch(server.url + path, { method: "POST", headers: { "content-type": "application/json", "idempotency-key": "same", ...headers }, body: '{"amount":1}' });
  const told = async (answer) => [(await answer).headers.get("semel-status"), (await answer).headers.get("semel-key")];
  const key = '"accounts/j%C3%B6rg%20m"';
  assert.deepEqual(await told(deposit({ "semel-key": '"accounts%2Fj%C3%B6rg m"' })), ["executed", key]);
  for (const same of [{ "content-type": "Application/JSON" }, { accept: "text/html" }, { "idempotency-key": '"same"', "semel-key": key }]) {
    assert.deepEqual(await told(deposit(same)), ["replayed", key], JSON.stringify(same));
  }
  for (const other of [{ "content-type": "application/json; charset=utf-8" }, { "content-encoding": "identity" }]) {
    assert.deepEqual(await told(deposit(other)), ["fingerprint-mismatch", key], JSON.stringify(other));
  }
  assert.deepEqual(await told(deposit({}, "/accounts/j%C3%B6rg%20m/%64eposit")), ["fingerprint-mismatch", key]);
  assert.deepEqual(await told(deposit({ "semel-key": '"accounts/another"' })), ["key-mismatch", null]);

  const read = (headers) => told(fetch(`${server.url}/accounts/emil`, { headers }));
  for (const none of [{ "idempotency-key": "any" }, { "semel-first-sent": "@5" }, { "semel-deadline": "0" }]) {
    assert.equal((await read(none))[0], "read", JSON.stringify(none));
  }
  const far = String(Date.now() + 600_000);
  for (const bad of [{ "idempotency-key": "'any'" }, { "semel-first-sent": "5" }, { "semel-deadline": far }, { "semel-session": '"tab";epoch=1;seq=1' }]) {
    assert.equal((await read(bad))[0], "key-invalid", JSON.stringify(bad));
  }
});
