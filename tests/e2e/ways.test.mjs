// The same requests one by one, in batches and in frames of a socket, on workerd with the probe's handler: sessions and ids, failures, crashes that are
// counted up to poison, gaps, closings, take-overs, acknowledgements, a window that is full, a key that is full, and restarts after which all of them are
// suspects.
//
// Invariants:
// - Each request has the same answer in all three ways, and the key keeps the same in the end.
// - The requests depend on a seed and on what was answered before, so that places are usually the next ones. `SEMEL_SEED` sets the first
//   seed, and `SEMEL_SEEDS` how many there are.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { randomOf } from "./lossy.mjs";
import { serve } from "./server.mjs";
import { open } from "./websocket.mjs";

const LIMIT = { timeout: 240_000 };
const CHUNKS = 40;
const WAYS = ["alone", "batch", "frame"];
const RECORDS_MAX = 40;
const WINDOW = 64;
const server = await serve(after, "probe", { SEMEL_RATE_BURST: "1000000", SEMEL_RATE_PER_SECOND: "1000000", SEMEL_RECORDS_MAX: String(RECORDS_MAX), SEMEL_SESSIONS_MAX: "2" });

/** Makes requests as elements of a batch, with `KEY` where the key belongs. */
class Calls {
  #below;
  #own = 0;
  /** For each session, its epoch and last number, as far as the answers tell. */
  #sessions = new Map();

  constructor(below) {
    this.#below = below;
  }

  #pick(choices) {
    return choices[this.#below(choices.length)];
  }

  #body() {
    return this.#below(6) === 0 ? { body: "other" } : {};
  }

  #path() {
    return this.#pick(["/echo", "/echo", "/echo", "/echo", "/gzip", "/headers", "/echo", "/status/404", "/status/500", "/fail", "/nowhere", "/bad-header", "/panic", "/large/1000", "/who"]);
  }

  #control(what, body) {
    this.#own += 1;
    return { id: `own ${this.#own}`, method: "POST", path: `/semel/v1/keys/KEY/${what}`, body: JSON.stringify(body) };
  }

  /** The requests that go together. */
  chunk() {
    if (this.#sessions.size === 0) return ["s", "t"].map((name) => this.#control("sessions", { name }));
    if (this.#below(12) === 0) return this.#burst();
    return Array.from({ length: 1 + this.#below(7) }, () => this.#any());
  }

  /** As many places as a session may have that are not acknowledged, or some more. */
  #burst() {
    const name = this.#pick(["s", "t"]);
    const { epoch = 1, last = 0 } = this.#sessions.get(name) ?? {};
    const fails = this.#below(200);
    return Array.from({ length: WINDOW + this.#below(3) }, (_, n) => ({ session: { name, epoch, seq: last + 1 + n, ack: last }, method: "POST", path: n === fails ? "/fail" : "/echo" }));
  }

  #any() {
    const below = this.#below(20);
    if (below < 5) return { id: this.#pick(["a", "b", "c", "d", `new ${(this.#own += 1)}`]), method: "POST", path: this.#path(), ...this.#body() };
    if (below === 5) return { id: "crashes", method: "POST", path: "/panic" };
    if (below < 15) return this.#place();
    if (below < 16) return this.#takeOver();
    if (below === 16) return this.#close();
    if (below === 17) return this.#control("cancel", { id: this.#pick(["a", "b", "c", "d", "e"]) });
    if (below === 18) return { method: "GET", path: this.#pick(["/runs", "/runs", "/fail", "/status/404"]) };
    return this.#pick([{ method: "GET", path: "/semel/v1/keys/KEY/outcomes/a" }, { method: "POST", path: "/semel/v1/keys/KEY/acks", body: '{"ids":["a","b","own 1"]}' }, { method: "POST", path: "/semel/v1/keys/KEY/acks", body: "{" }]);
  }

  #place() {
    const name = this.#pick(["s", "s", "s", "t", "t", "t", "u"]);
    const known = this.#sessions.get(name) ?? { epoch: 1, last: 0 };
    const epoch = Math.max(1, known.epoch + this.#pick([0, 0, 0, 0, 0, 0, 0, -1, 1]));
    const seq = Math.max(1, known.last + this.#pick([1, 1, 1, 1, 1, 1, 0, -1, 2, WINDOW + 1]));
    const acks = this.#below(3);
    const ack = acks === 0 ? {} : { ack: Math.max(0, Math.min(seq - 1, known.last - (acks - 1) * this.#below(4))) };
    const deadline = this.#below(16) === 0 ? { deadline: 1 } : {};
    const path = this.#path();
    // What probably takes the place, so that the next request of the same batch has the next one.
    if (/echo|gzip|headers|404|large|who/.test(path) && seq === known.last + 1) this.#sessions.set(name, { ...known, last: seq });
    return { session: { name, epoch, seq, ...ack }, method: "POST", path, ...this.#body(), ...deadline };
  }

  #takeOver() {
    const name = this.#pick(["s", "t", "u"]);
    const after = this.#below(4) === 0 ? { after: Math.max(0, (this.#sessions.get(name)?.epoch ?? 0) + this.#below(3) - 1) } : {};
    return this.#control("sessions", { name, ...after });
  }

  #close() {
    const name = this.#pick(["s", "t"]);
    const { epoch = 1, last = 0 } = this.#sessions.get(name) ?? {};
    return this.#control("cancel", { session: { name, epoch, seq: Math.max(1, last + this.#pick([1, 1, 0, 2])) } });
  }

  /** Takes note of the answers. */
  learn(elements, answers) {
    for (const [n, { session, path }] of elements.entries()) {
      const [, status, , body] = answers[n];
      if (path.endsWith("/sessions") && status === "executed") {
        const { name, epoch, lastSeq } = JSON.parse(body);
        this.#sessions.set(name, { epoch, last: lastSeq });
      }
      if (session && status === "sequence-gap") this.#sessions.set(session.name, { ...this.#sessions.get(session.name), last: JSON.parse(body).expectedSeq - 1 });
    }
  }
}

/** An answer as all ways tell it, without its clock and its key. */
const told = (status, semel, replayed, body) => [status, semel, replayed ?? undefined, body];

const bytesOf = (body) => (typeof body === "string" ? body : Buffer.from(body.base64, "base64").toString("latin1"));
const elementTold = ({ status, headers, body }) => told(status, headers["semel-status"], headers["idempotent-replayed"], bytesOf(body));

const at = (key, elements) => elements.map(({ path, ...element }) => ({ ...element, path: path.replace("KEY", key) }));

async function alone(key, elements, acks, as) {
  const control = `/semel/v1/keys/${key}/acks`;
  if (acks) assert.equal((await server.send("POST", control, { as, body: JSON.stringify({ ids: acks }) })).semel, "executed");
  const answers = [];
  for (const { id, session, method, path, body, deadline } of at(key, elements)) {
    const headers = {};
    if (session) headers["semel-session"] = `"${session.name}";epoch=${session.epoch};seq=${session.seq}${session.ack === undefined ? "" : `;ack=${session.ack}`}`;
    const named = path.startsWith("/semel/") ? {} : { key: `"${key}"` };
    const answer = await server.send(method, path, { id: id && `"${id}"`, as, headers, deadline, body: body && Buffer.from(body), ...named });
    const bytes = answer.headers.get("content-encoding") === "gzip" ? GZIPPED : answer.text;
    answers.push(told(answer.status, answer.semel, answer.headers.get("idempotent-replayed"), bytes));
  }
  return answers;
}

/** What the probe answers to `/gzip`, which `fetch` decodes. */
const GZIPPED = Buffer.from([31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 203, 207, 75, 78, 5, 0, 208, 115, 64, 115, 4, 0, 0, 0]).toString("latin1");

async function batch(key, elements, acks, as) {
  const ack = acks?.map((id) => `"${id}"`).join(", ");
  const answer = await server.send("POST", `/semel/v1/keys/${key}/batch`, { as, ack, body: JSON.stringify(at(key, elements)) });
  assert.deepEqual([answer.status, answer.semel], [200, "executed"], answer.text);
  return answer.json.map(elementTold);
}

async function frame(key, elements, acks, as) {
  const { status, socket } = await open(server.url, `/semel/v1/keys/${key}/socket`);
  assert.equal(status, 101);
  socket.send(JSON.stringify({ authorization: `Bearer ${as}` }));
  socket.send(JSON.stringify({ frame: 7, requests: at(key, elements), acks }));
  const { answers } = JSON.parse(await socket.next());
  socket.destroy();
  return answers.map(elementTold);
}

const SENDS = { alone, batch, frame };

/** What a key keeps, without its clock. */
async function keptAt(key) {
  const { records, tombstones, sessions, inDoubt } = (await server.admin("GET", `keys/${key}`)).json;
  const page = (await server.admin("GET", `keys/${key}/records?limit=200`)).json.records ?? [];
  const each = page.map(({ id, state, principal, executed, status, bytes, crashes }) => [id, state, principal, executed, status, bytes, crashes]);
  const runs = (await server.send("GET", "/runs", { key: `"${key}"`, as: "alice" })).text;
  return { records, tombstones, sessions, inDoubt, each, runs };
}

const first = Number(process.env.SEMEL_SEED ?? 1);
/** Every `Semel-Status` that was answered. */
const seen = new Set();
for (const seed of Array.from({ length: Number(process.env.SEMEL_SEEDS ?? 3) }, (_, n) => first + n)) {
  test(`requests sent singly, in batches or in frames get the same answers and leave the same records (seed ${seed})`, LIMIT, async () => {
    const next = randomOf(seed);
    const below = (end) => Math.floor(next() * end);
    const calls = new Calls(below);
    const keys = WAYS.map((way) => `${way}-${seed}`);
    for (let n = 0; n < CHUNKS; n += 1) {
      if (below(8) === 0) await server.restart();
      const as = n > 0 && below(16) === 0 ? "bob" : "alice";
      const acks = below(4) === 0 ? ["a", "c", "own 2"] : undefined;
      const elements = calls.chunk();
      const answers = await Promise.all(WAYS.map((way, at) => SENDS[way](keys[at], elements, acks, as)));
      const what = () => `chunk ${n}: ${JSON.stringify(elements)}`;
      const named = answers.map((each, at) => each.map((one) => one.map((part) => (typeof part === "string" ? part.replaceAll(keys[at], "KEY") : part))));
      for (const other of [1, 2]) assert.deepEqual(named[other], named[0], `${WAYS[other]}, ${what()}`);
      calls.learn(elements, named[0]);
      const kept = await Promise.all(keys.map(keptAt));
      for (const other of [1, 2]) assert.deepEqual(kept[other], kept[0], `${WAYS[other]}, ${what()}`);
      for (const [, semel] of named[0]) seen.add(semel);
    }
  });
}

const isOther = process.env.SEMEL_SEED !== undefined || process.env.SEMEL_SEEDS !== undefined;
test("the compared requests meet every Semel-Status that they can get", { skip: isOther && "other seeds" }, () => {
  const ways = ["executed", "replayed", "read", "rolled-back", "poisoned", "cancelled", "acknowledged", "fingerprint-mismatch", "capacity", "sequence-gap", "fenced", "session-unknown", "forbidden", "attempt-expired", "key-invalid", "body-invalid", "not-found"];
  assert.deepEqual(ways.filter((way) => !seen.has(way)), []);
});
