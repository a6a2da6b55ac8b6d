// The administrator's API over the made-up deployment (`world.mjs`), by HTTP, and the inspector's page beside it.
//
// Invariants:
// - Shapes, statuses and codes are those of PROTOCOL.md. A change needs an id, is recorded, and is replayed byte for byte.
// - Faults never happen by chance: a test asks for each, and it hits the next change or read.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { HEAVY, NOW_MS, atOf, fingerprintOf, idOf, isRecord, keys, listed, mix, numberOf, numberOfId, outcomeOf, packedOf, recordOf, stateOf } from "./world.mjs";

export const TOKEN = "an-administration-token";
/** A valid token of a user. */
export const USERS_TOKEN = "a-token-of-alice";

/** How many rows are searched for one page of the records in one state. It is less than a server's limit, so that some keys need several pages. */
const STATE_ROWS_MAX = 500;
/** From how many rows of a key the times are read, at most. */
const TIMES_ROWS_MAX = 15_000;
const ADMIN = "/semel/v1/admin/";
/** Closes each connection. On a connection that it has used before, a browser sends lost requests again by itself, which would hide faults. */
const CLOSE = { connection: "close" };
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".wasm": "application/wasm", ".png": "image/png" };

/** Starts the API. `after` is the one of node:test, `folder` has the page; `keepsKeys: false` is a deployment that nobody has used. */
export async function startFake(after, { folder, keepsKeys = true } = {}) {
  const fake = new Fake(folder, keepsKeys);
  await new Promise((resolve) => fake.server.listen(0, "127.0.0.1", resolve));
  fake.url = `http://127.0.0.1:${fake.server.address().port}`;
  after(() => fake.close());
  return fake;
}

class Fake {
  server = createServer((request, response) => this.#serve(request, response));
  /** The faults to come: `{ on: "change" or "read", kind: "lose-request", "lose-answer", "hold" or a status, until }`. Each is used once. */
  faults = [];
  /** The requests that came: `{ method, path, id, firstSent, deadline, ack, authorization }`. */
  calls = [];
  /** The changes that were made, each once. */
  done = [];
  #keys;
  /** The list that was last asked for, so that its next pages fit the first. */
  #sorted;
  #recorded = new Map();
  #records = new Map();
  #forgets = new Map();
  #folder;

  constructor(folder, keepsKeys) {
    this.#folder = folder;
    this.#keys = keepsKeys ? keys.map((key) => ({ ...key })) : [];
  }

  /** The effects of keys, as the API returns them; `null` for a key whose handler sends nothing. */
  effects = new Map();

  /** Puts an id in doubt. */
  doubt(key, id) {
    this.#keys.find((each) => each.key === key).inDoubt += 1;
    this.#sorted = undefined;
    this.#records.set(`${key}\0${id}`, { id, state: "in-doubt", principal: "alice", firstSent: NOW_MS / 1000 - 60, at: NOW_MS - 59_000, deadline: null, lapses: null, executed: "unknown", status: null, bytes: null, crashes: null });
  }

  /** Counts one more parked effect at a key. */
  park(key) {
    this.#keys.find((each) => each.key === key).parked += 1;
    this.#sorted = undefined;
  }

  close() {
    this.server.closeAllConnections();
    return new Promise((resolve) => this.server.close(resolve));
  }

  async #serve(request, response) {
    const url = new URL(request.url, this.url);
    if (!url.pathname.startsWith("/semel/")) return this.#serveFile(url.pathname, response);
    let body = "";
    for await (const chunk of request) body += chunk;
    const isChange = request.method !== "GET";
    const id = request.headers["idempotency-key"];
    this.calls.push({ method: request.method, path: url.pathname + url.search, id, firstSent: request.headers["semel-first-sent"], deadline: request.headers["semel-deadline"], ack: request.headers["semel-ack"], authorization: request.headers.authorization });
    const at = url.pathname === "/semel/v1/health" ? -1 : this.faults.findIndex(({ on }) => on === (isChange ? "change" : "read"));
    const [fault] = at < 0 ? [] : this.faults.splice(at, 1);
    if (fault?.kind === "lose-request") return request.socket.destroy();
    if (fault?.kind === "hold") await fault.until;
    if (typeof fault?.kind === "number") return send(response, problem(fault.kind, fault.code, "the test asked for it"));
    const answer = this.#answer(request, url, body, isChange, id);
    if (fault?.kind === "lose-answer") return request.socket.destroy();
    send(response, answer);
  }

  #answer(request, url, body, isChange, id) {
    if (url.pathname === "/semel/v1/health") return read({ now: NOW_MS });
    const token = /^Bearer (.*)$/.exec(request.headers.authorization ?? "")?.[1];
    if (token === USERS_TOKEN) return problem(403, "forbidden", "not the administrator");
    if (token !== TOKEN) return problem(401, "unauthorized", "no administration token");
    const path = url.pathname.slice(ADMIN.length).split("/").map(decodeURIComponent);
    const acknowledged = this.#recorded.get(/^"[^"]*"/.exec(request.headers["semel-ack"])?.[0]);
    if (acknowledged) acknowledged.isAcknowledged = true;
    if (!isChange) return this.#read(path, url.searchParams);
    if (id === undefined) return problem(400, "key-missing", "no Idempotency-Key");
    const print = `${request.method} ${url.pathname} ${body}`;
    const known = this.#recorded.get(id);
    if (known?.isAcknowledged) return problem(410, "acknowledged", "the id was acknowledged before", "yes", "never");
    if (known) return known.print === print ? { ...known.answer, semel: "replayed" } : problem(422, "fingerprint-mismatch", "the id is in use for another request");
    const answer = this.#change(request.method, path, body);
    if (answer.semel === "executed") {
      this.#recorded.set(id, { print, answer });
      this.done.push(`${request.method} ${path.join("/")}${body && ` ${body}`}`);
    }
    return answer;
  }

  #read([kind, key, what, id], query) {
    if (kind === "forget") return this.#forgetting(key);
    if (kind !== "keys") return problem(404, "not-found", "no such path");
    if (key === undefined) return read(this.#list(query));
    const entry = this.#keys.find((each) => each.key === key);
    if (!entry) return problem(404, "not-found", "the key has no tables");
    const i = numberOf(key);
    if (what === undefined) return read(statsOf(entry));
    if (what === "times") return read(timesOf(i, Number(query.get("from")), Number(query.get("step")), Number(query.get("count"))));
    if (what === "effects") return this.#effectsOf(key, Number(query.get("after") ?? 0), Number(query.get("limit")));
    if (what === "records" && id === undefined) return read(this.#page(key, i, query));
    const record = this.#record(key, id);
    if (!record) return problem(404, "not-seen", "this id was never seen", "unknown");
    if (record.outcome) return read({ ...record, fingerprint: null });
    const n = record.state === "executed" ? numberOfId(i, id) : undefined;
    return read({ ...record, outcome: n === undefined ? null : outcomeOf(n), fingerprint: n === undefined ? null : fingerprintOf(n) });
  }

  #effectsOf(key, after, limit) {
    const effects = this.effects.get(key);
    if (effects === null) return nothingSent();
    if (effects === undefined) return read({ count: 0, max: 10_000 });
    const rest = effects.parked.filter(({ number }) => number > after);
    const parked = rest.slice(0, limit);
    return read({ count: effects.parked.length + effects.lanes.reduce((all, { waiting }) => all + waiting, 0), max: 10_000, maxPerRequest: 256, lanes: effects.lanes, parked, next: rest.length > limit ? parked.at(-1).number : null });
  }

  #list(query) {
    const order = query.get("order") ?? "newest";
    const prefix = query.get("prefix") ?? "";
    const isMeant = ({ key, inDoubt, parked }) => key.startsWith(prefix) && ({ "in-doubt": inDoubt, parked }[query.get("state")] ?? 1) > 0;
    const by = { newest: (one, other) => other.created - one.created, heaviest: (one, other) => other.bytes - one.bytes, name: (one, other) => (one.key < other.key ? -1 : 1) }[order];
    const name = `${order} ${this.#keys.length} ${prefix} ${query.get("state")}`;
    if (this.#sorted?.name !== name) this.#sorted = { name, all: this.#keys.filter(isMeant).sort(by) };
    const { all } = this.#sorted;
    const from = Number(query.get("after") ?? 0);
    const to = from + Number(query.get("limit") ?? 50);
    return { keys: all.slice(from, to), next: to < all.length ? String(to) : null, total: all.length };
  }

  #page(key, i, query) {
    const after = query.get("after");
    const limit = Number(query.get("limit") ?? 50);
    const state = query.get("state");
    const first = after === null ? 0 : numberOfId(i, after) + 1;
    const end = state === null ? listed(i) : Math.min(first + STATE_ROWS_MAX, listed(i));
    const records = [];
    let n = first;
    for (; n < end && records.length < limit; n += 1) {
      const record = this.#record(key, idOf(i, n));
      if (state === null || record.state === state) records.push(record);
    }
    // If a state was asked for, there is a next page as long as this one has a record.
    const last = n < listed(i) ? idOf(i, n - 1) : state !== null && records.at(-1)?.id;
    return { records, next: last || null };
  }

  #record(key, id) {
    const changed = this.#records.get(`${key}\0${id}`);
    if (changed) return changed;
    const i = numberOf(key);
    const n = numberOfId(i, id);
    return n === undefined ? undefined : recordOf(i, n);
  }

  #change(method, path, body) {
    const [kind, key, what, id] = path;
    if (method === "POST" && kind === "forget") return this.#forget(JSON.parse(body).before);
    if (method === "POST" && what === "cancel") return this.#cancel(key, JSON.parse(body).id);
    const at = this.#keys.findIndex((each) => each.key === key);
    if (at < 0) return problem(404, "not-found", "the key has no tables");
    if (method === "POST" && what === "records" && path[4] === "resolve") return this.#resolve(key, id, JSON.parse(body));
    if (method === "POST" && what === "effects") return this.#mend(key, path.slice(3));
    if (method === "DELETE" && what === "records") return this.#deleteRecord(key, id);
    this.#keys.splice(at, 1);
    return executed({ state: "deleted", fence: NOW_MS / 1000 });
  }

  #cancel(key, id) {
    const record = this.#record(key, id);
    if (record?.state === "executed") return executed({ state: "executed", outcome: outcomeOf(numberOfId(numberOf(key), id)) });
    if (record?.state === "acknowledged") return problem(410, "acknowledged", "the id was acknowledged before", "yes", "never");
    if (record?.state === "in-doubt") return problem(409, "outcome-unknown", "it can't be known whether it ran", "unknown", "never");
    if (record?.state === "poisoned") return problem(410, "poisoned", "the handler crashed on this id too often", "no", "never");
    if (record?.state === "expired") return problem(410, "outcome-expired", "its outcome is no longer kept", record.executed, "never");
    const none = { id, principal: "semel:admin", firstSent: null, deadline: null, lapses: NOW_MS + 86_400_000, executed: "unknown", status: null, bytes: null };
    this.#records.set(`${key}\0${id}`, { ...none, ...record, state: "cancelled", at: NOW_MS, crashes: null });
    return executed({ state: "cancelled" });
  }

  #resolve(key, id, { executed: word, outcome }) {
    const record = this.#record(key, id);
    if (!record) return problem(404, "not-seen", "this key has no record of this id", "unknown");
    if (record.state !== "in-doubt") return problem(400, "body-invalid", "this id is not in doubt, and keeps what it has");
    const settled = outcome ? { state: "executed", outcome: { headers: {}, body: "", ...outcome }, status: outcome.status } : { state: "cancelled" };
    this.#records.set(`${key}\0${id}`, { ...record, ...settled, executed: word, at: NOW_MS });
    return executed({ state: settled.state, executed: word });
  }

  #mend(key, [id, mending]) {
    const effects = this.effects.get(key);
    if (effects === null) return nothingSent();
    const none = problem(404, "not-seen", "none of that id is there", "unknown");
    if (mending === "park") return effects?.lanes.some((first) => first.id === id) ? executed({ state: "closing" }) : none;
    const at = effects?.parked.findIndex((parked) => parked.id === id) ?? -1;
    if (at < 0) return none;
    effects.parked.splice(at, 1);
    return executed({ state: { retry: "waiting", drop: "dropped" }[mending] });
  }

  #deleteRecord(key, id) {
    const record = this.#record(key, id);
    if (!record) return problem(404, "not-seen", "this id was never seen", "unknown");
    const isSuspect = record.state === "suspect";
    const ran = record.executed;
    this.#records.set(`${key}\0${id}`, { ...record, state: isSuspect ? "cancelled" : "expired", executed: ran, at: NOW_MS, lapses: NOW_MS + 86_400_000, status: null, bytes: null, crashes: null });
    return executed({ state: isSuspect ? "cancelled" : "expired", executed: ran });
  }

  #forget(before) {
    const job = { id: `job-${this.#forgets.size + 1}`, before, state: "running", keys: this.#keys.length, done: 0 };
    this.#forgets.set(job.id, job);
    return { ...executed({ ...job }), status: 202 };
  }

  /** A forget, which is a quarter further at each look. */
  #forgetting(id) {
    const job = this.#forgets.get(id);
    if (!job) return problem(404, "not-found", "no such forget");
    job.done = Math.min(job.keys, job.done + Math.ceil(job.keys / 4));
    job.state = job.done === job.keys ? "done" : "running";
    return read({ ...job, failed: job.state === "running" ? ["orders/slow"] : [] });
  }

  async #serveFile(pathname, response) {
    const path = { "/": "/index.html", "/inspector": "/inspector.html" }[pathname] ?? pathname;
    const file = join(this.#folder ?? "/nowhere", normalize(path));
    try {
      const content = await readFile(file);
      response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "text/plain", "content-security-policy": "frame-ancestors 'none'" }).end(content);
    } catch {
      response.writeHead(404).end();
    }
  }
}

function statsOf({ key, records, tombstones, inDoubt, bytes, oldest }) {
  const at = mix(numberOf(key), 30);
  return {
    ...{ key, now: NOW_MS, records, tombstones, inDoubt, bytes, sessions: key === HEAVY ? 1_200 : 0, oldest, retentionSeconds: key.startsWith("tenants/") ? null : 86_400 },
    ...{ fence: NOW_MS / 1000 - 86_400, forgottenBefore: 0, recordsMax: 1_000_000, tombstonesMax: 2_000_000, sessionsMax: 100_000, bytesMax: 8_000_000_000 },
    counters: { executed: records + (at % 1000), replayed: at % 97, "attempt-expired": at % 13, "fingerprint-mismatch": at % 2 },
  };
}

/** The counts of a plot, by step. Each row is read, up to a limit. The counts of tombstones that share a row come with that row. */
function timesOf(i, from, step, count) {
  const [records, tombstones] = [new Array(count).fill(0), new Array(count).fill(0)];
  const add = (to, at) => {
    const place = Math.floor((at - from) / step);
    if (place >= 0 && place < count) to[place] += 1;
  };
  const rows = Math.min(listed(i), TIMES_ROWS_MAX);
  for (let n = 0; n < rows; n += 1) {
    add(isRecord(stateOf(n)) ? records : tombstones, atOf(i, n));
  }
  const packed = Math.min(packedOf(i), TIMES_ROWS_MAX);
  for (let n = 0; n < packed; n += 1) add(tombstones, atOf(i, n + 2_000_000));
  return { from, step, records, tombstones, ...(rows < listed(i) && { truncated: true }) };
}

const read = (json) => ({ status: 200, semel: "read", json });
const executed = (json) => ({ status: 200, semel: "executed", json });

const nothingSent = () => problem(404, "not-found", "no effects leave this application");

function problem(status, code, title, executed = "no", retry = status >= 500 || ["not-seen", "in-flight", "rate-limited"].includes(code) ? "same-id" : "after-fix") {
  // For this code, the server has a fixed title, and says in `detail` what is wrong.
  const said = code === "body-invalid" ? { title: "malformed body of a control request", detail: title } : { title };
  return { status, semel: code, json: { type: "about:blank", ...said, status, code, executed, retry } };
}

function send(response, { status, semel, json }) {
  const type = status >= 400 ? "application/problem+json" : "application/json";
  response.writeHead(status, { "content-type": type, "semel-status": semel, "semel-now": String(NOW_MS), "cache-control": "no-store", ...CLOSE }).end(JSON.stringify(json));
}
