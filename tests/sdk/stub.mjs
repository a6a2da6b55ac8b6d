// A Semel worker as a `fetch` function, and stores that record what is done to them.
//
// Invariants:
// - By default it answers as PROTOCOL.md says: it runs an id once, replays it, judges deadlines by the key's clock, cancels, and forgets what is
//   acknowledged.
// - It treats a signal like the real `fetch`: an aborted call rejects. What had arrived before stays done.
// - It records every call, even one that is lost on the way.
// - An element of a batch is served as if it had come alone. Only the batch is recorded as a call.

import assert from "node:assert/strict";
import { Semel } from "../../sdk/npm/node.js";

export const URL_OF_STUB = "https://worker.test";
const AHEAD_MS_MAX = 120_000;
const TOMBSTONE_MS = 60_000;
const ACKS_MAX = 64;
const ACK_BYTES_MAX = 4_096;

/** No test may take longer than this. */
const TEST_MS_MAX = 9_000;
/** The real timers, for use while a test holds all others. */
const { setTimeout, clearTimeout } = globalThis;

/** Opens an outbox that sends to a stub. It is closed after the test; or before, if the test hangs: then waiting calls get `closed`. */
export async function outbox(t, { server = new Stub(), ...options } = {}) {
  const semel = await Semel.open({ url: URL_OF_STUB, fetch: server.fetch, durability: "memory", retryIntervalMs: 10, ...options });
  const overdue = setTimeout(() => semel.close(), TEST_MS_MAX);
  t.after(() => {
    clearTimeout(overdue);
    return semel.close();
  });
  return { semel, server };
}

/** Makes a change at the key `accounts/{account}`. */
export function deposit(semel, account = "a", init = {}) {
  return semel.fetch(`/accounts/${account}/deposit`, { method: "POST", body: '{"amount":5}', ...init });
}

/** Resolves to what a promise rejects with. */
export async function rejection(promise) {
  const [settled] = await within(Promise.allSettled([promise]), "what is to reject", TEST_MS_MAX);
  if (settled.status === "fulfilled") throw new Error("it did not reject");
  return settled.reason;
}

/** Checks the class of an error by its name, from whichever module it comes. */
export const is = (error, ...names) => assert.ok(names.includes(error?.name), `${names.join(" or ")} was expected, and it is ${error}`);

/** Resolves to what `condition` returns, once that is truthy. */
export async function until(condition, what, timeoutMs = 20_000) {
  // Measured by the wall clock, because a test may set the other one forward, or stop it.
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const met = await condition();
    if (met) return met;
    if (Date.now() > deadline) throw new Error(`in ${timeoutMs} ms it did not come to this: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** Settles as `promise` does, or rejects if that takes too long. */
export async function within(promise, what, timeoutMs = 10_000) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error(`in ${timeoutMs} ms it did not settle: ${what}`)), timeoutMs)));
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Lets time jump: returns what sets the clock forward. Whatever waits sees that when it is next woken, such as by an attempt of a request that is
 * lost.
 */
export function clock(t) {
  const before = performance.now;
  let laterMs = 0;
  t.mock.method(performance, "now", () => before.call(performance) + laterMs);
  return (ms) => (laterMs += ms);
}

/**
 * For tests that something does not happen. From now on, timers that are set stand still. Returns what lets a minute pass, with everything that runs
 * in it and all that follows.
 */
export function minutes(t) {
  const [{ now }, { now: wall }] = [performance, Date];
  let laterMs = 0;
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  t.mock.method(performance, "now", () => now.call(performance) + laterMs);
  t.mock.method(Date, "now", () => wall() + laterMs);
  return async () => {
    for (const endMs = laterMs + 60_000; laterMs < endMs; laterMs += 500) {
      for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
      t.mock.timers.tick(500);
    }
  };
}

/** Watches what is put into maps and sets from now on, except by `servers`. Returns what gives the size of the largest of them. */
export function keeping(t, ...servers) {
  // The runtime makes its own maps with the first Request.
  new Request(URL_OF_STUB);
  const [kept, before] = [[], [[Map, "set"], [Set, "add"]].map(([{ prototype }, name]) => [prototype, name, prototype[name]])];
  let isServing = false;
  for (const [prototype, name, put] of before) {
    prototype[name] = function (...given) {
      if (!isServing && !kept.includes(this)) kept.push(this);
      return put.apply(this, given);
    };
  }
  t.after(() => before.forEach(([prototype, name, put]) => (prototype[name] = put)));
  for (const server of servers) {
    for (const name of ["serve", "batch", "fetch"].filter((name) => server[name])) {
      const of = server[name];
      server[name] = (...given) => {
        isServing = true;
        try {
          return of.apply(server, given);
        } finally {
          isServing = false;
        }
      };
    }
  }
  return () => Math.max(...kept.map(({ size }) => size));
}

/** A call that never settles, unless it is aborted. */
export const hang = () => new Promise(() => {});

/** A call whose connection broke. */
export const lost = () => Promise.reject(new TypeError("fetch failed"));

/** A problem of the layer. `members` replace its own; one that is undefined is left out. */
export function problem(status, code, { headers = {}, ...members } = {}) {
  const body = { type: `urn:semel:problem:${code}`, title: code, status, detail: `this is ${code}`, code, executed: "unknown", retry: "same-id", ...members };
  return new Response(JSON.stringify(body), { status, headers: { "content-type": "application/problem+json", "semel-status": code, ...headers } });
}

export class Stub {
  /** Every call, in order. */
  calls = [];
  /** How often each id has run. */
  runs = new Map();
  /** How many ms the worker's clock is ahead of this process's; and by key, where that differs. */
  aheadMs = 0;
  aheadMsOfKeys = new Map();
  /**
   * Called for every call: returns or throws what becomes of it. `serve` gives what the worker makes of it. `call.n` counts the calls of the same
   * kind, from 1.
   */
  each = (_call, serve) => serve();
  /** The application: returns the status and body of an outcome. */
  handler = (call) => ({ status: 200, body: { ran: this.runs.get(call.id), path: call.path } });
  /** Whether the tombstone of an id leaves, a minute after its `until`. */
  lapses = (_id) => false;
  /** The records, by key and id. */
  #records = new Map();

  fetch = async (url, init) => {
    const call = new Call(url, init);
    this.calls.push(call);
    call.n = this.of(call.kind).length;
    try {
      return await aborting(init.signal, Promise.resolve().then(() => this.each(call, () => this.serve(call))));
    } finally {
      call.endedMs = performance.now();
    }
  };

  /** The calls of a kind: `health`, `change`, `read`, `acks`, `cancel` or `batch`. */
  of(kind) {
    return this.calls.filter((call) => call.kind === kind);
  }

  get attempts() {
    return this.of("change");
  }

  record(key, id) {
    const record = this.#records.get(`${key} ${id}`);
    return record?.until + TOMBSTONE_MS < this.now(key) && this.lapses(id) ? undefined : record;
  }

  /** Whether any key has a record of an id. */
  knows(id) {
    return [...this.#records.keys()].some((of) => of.endsWith(` ${id}`));
  }

  /** A copy of the records, to which the stub can be set back later. */
  get kept() {
    return new Map(this.#records);
  }

  set kept(records) {
    this.#records = new Map(records);
  }

  /** Makes an id poisoned, as if the handler had crashed on it too often; unless it has a record. */
  poison(key, id, principal) {
    if (!this.record(key, id)) this.#records.set(`${key} ${id}`, { state: "poisoned", principal });
  }

  now(key) {
    return Date.now() + (this.aheadMsOfKeys.get(key) ?? this.aheadMs);
  }

  /** What the worker answers. */
  serve(call) {
    const { kind, path, key } = call;
    if (kind === "health") return this.#answer(undefined, 200, "read", { status: "ok", now: this.now() });
    if (call.acks.length > ACKS_MAX || call.headers.get("semel-ack")?.length > ACK_BYTES_MAX) return problem(400, "key-invalid", { executed: "no", retry: "after-fix" });
    for (const [id, until] of call.acks) this.#acknowledge(key, id, until, call.principal);
    if (kind === "read") return this.#answer(key, 200, "read", { path });
    if (kind === "acks") {
      for (const each of call.json.ids) this.#acknowledge(key, each.id ?? each, each.until, call.principal);
      return this.#answer(key, 204, "executed");
    }
    if (kind === "batch") return this.#batch(call);
    const record = this.record(key, call.id);
    if (record) return this.#ofRecord(call, record);
    const refused = this.#judgeDeadline(call);
    if (refused) return refused;
    if (kind === "cancel") return this.#cancel(call);
    this.runs.set(call.id, (this.runs.get(call.id) ?? 0) + 1);
    return this.#keep(call, this.handler(call));
  }

  async #batch(call) {
    const answers = [];
    for (const element of call.elements) {
      const answer = await this.serve(element);
      answers.push({ status: answer.status, headers: Object.fromEntries(answer.headers), body: await answer.text() });
    }
    return this.#answer(call.key, 200, "executed", answers);
  }

  #ofRecord({ key, principal, fingerprint }, record) {
    if (record.principal !== principal || (record.fingerprint ?? fingerprint) !== fingerprint) {
      return this.problem(key, 422, "fingerprint-mismatch", { executed: "no", retry: "after-fix" });
    }
    if (record.state === "cancelled") return this.problem(key, 410, "cancelled", { executed: "no", retry: "never" });
    if (record.state === "poisoned") return this.problem(key, 410, "poisoned", { executed: "no", retry: "never" });
    if (record.state === "acknowledged") return this.problem(key, 410, "acknowledged", { executed: record.executed, retry: "never" });
    return this.#answer(key, record.status, "replayed", record.body);
  }

  #judgeDeadline({ key, deadline }) {
    if (deadline < this.now(key)) return this.problem(key, 408, "attempt-expired", { executed: "no", retry: "same-id" });
    if (deadline > this.now(key) + AHEAD_MS_MAX) return this.problem(key, 400, "key-invalid", { executed: "no", retry: "after-fix" });
    return undefined;
  }

  #keep({ key, id, principal, fingerprint }, { status, body }) {
    this.#records.set(`${key} ${id}`, { state: "executed", status, body, principal, fingerprint });
    return this.#answer(key, status, "executed", body);
  }

  #cancel(call) {
    const { id } = call.json;
    const named = this.record(call.key, id);
    if (named?.state === "acknowledged" || named?.state === "poisoned") return this.#ofRecord(call, { ...named, fingerprint: undefined });
    if (named?.state === "executed") {
      const { status, body } = named;
      return this.#keep(call, { status: 200, body: { state: "executed", outcome: { status, headers: {}, body: JSON.stringify(body) } } });
    }
    this.#records.set(`${call.key} ${id}`, { state: "cancelled", principal: call.principal });
    return this.#keep(call, { status: 200, body: { state: "cancelled" } });
  }

  #acknowledge(key, id, until, principal) {
    const record = this.record(key, id);
    if (!/^(executed|poisoned)$/.test(record?.state) || record.principal !== principal) return;
    this.#records.set(`${key} ${id}`, { state: "acknowledged", executed: record.state === "executed" ? "yes" : "no", until, principal });
  }

  /** A problem from the object of `key`. */
  problem(key, status, code, { headers, ...members } = {}) {
    return problem(status, code, { headers: { ...this.#headers(key), ...headers }, ...members });
  }

  #answer(key, status, semelStatus, body) {
    const headers = { ...this.#headers(key), "semel-status": semelStatus };
    if (body !== undefined) headers["content-type"] = "application/json";
    return new Response(body === undefined ? null : JSON.stringify(body), { status, headers });
  }

  #headers(key) {
    const headers = { "semel-now": String(this.now(key)) };
    if (key !== undefined) headers["semel-key"] = `"${key}"`;
    return headers;
  }
}

/** One call of the stub's `fetch`. */
class Call {
  startedMs = performance.now();
  endedMs = undefined;

  constructor(url, init = {}) {
    // The real `fetch` takes a URL or a Request.
    const { method, headers } = url instanceof Request ? url : init;
    const { origin, pathname, search } = new URL(url instanceof Request ? url.url : url);
    this.init = init;
    this.wasAborted = init.signal?.aborted ?? false;
    this.origin = origin;
    this.method = method ?? "GET";
    this.path = pathname + search;
    this.headers = new Headers(headers);
    this.body = init.body === undefined ? "" : Buffer.from(init.body).toString("latin1");
    const [, control, what] = /^\/semel\/v1\/keys\/([^/]+)\/(\w+)$/.exec(pathname) ?? [];
    this.kind = what ?? kindOf(this.method, pathname);
    this.key = control === undefined ? this.#keyOf(pathname) : control.replaceAll("%2F", "/");
    this.id = this.#unquoted("idempotency-key");
    this.principal = this.#unquoted("semel-principal");
    this.firstSent = this.headers.get("semel-first-sent");
    this.deadline = this.headers.has("semel-deadline") ? Number(this.headers.get("semel-deadline")) : undefined;
    const acks = (this.headers.get("semel-ack") ?? "").matchAll(/"([^"]+)"(?:;until=(\d+))?/g);
    this.acks = [...acks].map(([, id, until]) => [id, until === undefined ? undefined : Number(until)]);
    this.fingerprint = [this.method, this.path, this.headers.get("content-type"), this.body].join("\n");
  }

  get json() {
    return JSON.parse(Buffer.from(this.body, "latin1").toString());
  }

  /** The elements of a batch, each as the call that it would be. */
  get elements() {
    return this.json.map(({ id, firstSent, deadline, method, path, headers, body }) => {
      const said = { ...headers, "idempotency-key": JSON.stringify(id), "semel-first-sent": `@${firstSent}`, "semel-deadline": String(deadline), "semel-principal": this.headers.get("semel-principal"), "semel-key": `"${this.key}"` };
      return new Call(this.origin + path, { method, headers: said, body: typeof body === "string" ? body : Buffer.from(body.base64, "base64") });
    });
  }

  #keyOf(pathname) {
    const [, account] = /^\/accounts\/([^/]+)/.exec(pathname) ?? [];
    return account === undefined ? (this.#unquoted("semel-key") ?? pathname.slice(1)) : `accounts/${account}`;
  }

  #unquoted(name) {
    return this.headers.get(name)?.slice(1, -1).replace(/\\(.)/g, "$1");
  }
}

function kindOf(method, pathname) {
  if (pathname === "/semel/v1/health") return "health";
  return ["POST", "PUT", "PATCH", "DELETE"].includes(method) ? "change" : "read";
}

function aborting(signal, promise) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    promise.then(resolve, reject);
  });
}

/** A store as index.d.ts asks for it. Each change takes a turn of the event loop, and tabs can share it. */
export class Rows {
  rows = new Map();
  /** What was done, once it is durable: `["change", id, "put" | "delete" | "nothing"]` and the like. */
  log = [];
  closed = 0;
  /** Called before each change. If it throws or rejects, that is the store's error. */
  before = async (_id) => {};

  async load() {
    this.log.push(["load"]);
    return [...this.rows];
  }

  async change(id, to) {
    await this.before(id);
    await new Promise((resolve) => setImmediate(resolve));
    const row = to(this.rows.get(id));
    if (row === undefined) this.rows.delete(id);
    else if (row !== null) this.rows.set(id, row);
    this.log.push(["change", id, row === undefined ? "delete" : row === null ? "nothing" : "put"]);
  }

  async remove(ids, isDone) {
    for (const id of ids) if (this.rows.has(id) && isDone(this.rows.get(id))) this.rows.delete(id);
    this.log.push(["remove", ids]);
  }

  close() {
    this.closed += 1;
  }

  /** Whether any row contains the bytes of `text`. */
  holds(text) {
    return [...this.rows.values()].some((row) => Buffer.from(row).includes(text));
  }
}
