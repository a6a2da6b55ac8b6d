// A key with sessions, as PROTOCOL.md describes them, as a `fetch` function.
//
// Invariants:
// - A place is taken once, by the epoch that is current then, and only as the next place.
// - What is acknowledged is no longer answered.

import { Semel } from "../../sdk/npm/node.js";
import { problem, Rows, URL_OF_STUB } from "./stub.mjs";

/** How many places may be unacknowledged. */
const WINDOW = 64;

/** Opens an outbox that sends to `server`. It is closed after the test. */
export async function outbox(t, { server = new SessionStub(), ...options } = {}) {
  const semel = await Semel.open({ url: URL_OF_STUB, identity: "alice", fetch: server.fetch, durability: "memory", retryIntervalMs: 10, ...options });
  t.after(() => semel.close());
  return { semel, server };
}

/** A store that several sessions share, and that knows which of them are alive. */
export class SharedRows extends Rows {
  living = new Set();

  presence(owner) {
    this.living.add(owner);
    return { alive: async () => [...this.living], leave: () => this.living.delete(owner) };
  }
}

/** Makes a change in `session`. */
export const deposit = (session, body, init) => session.fetch("/accounts/a/deposit", { method: "POST", body, ...init });
/** What the key says of a change that it ran. */
export const ran = async (response) => (await response).json();

export class SessionStub {
  /** Every call: its method, path and headers, and its elements. */
  calls = [];
  /** The bodies of what ran, in order. */
  effects = [];
  /** Decides what becomes of a call, as in `stub.mjs`. */
  each = (_call, serve) => serve();
  /** Returns what an element is refused with, if anything. */
  refuse = (_element) => undefined;
  /** Whether the handler has crashed too often on an element. */
  crashes = (_element) => false;
  /** Returns what an element is answered, whatever became of it; undefined: the truth. */
  says = (_element) => undefined;
  acked = 0;
  #epochs = [];
  #lastSeq = 0;
  #places = new Map();
  #takeOvers = new Map();
  /** The outcomes of cancellations, by id. */
  #cancellations = new Map();

  fetch = async (url, init) => {
    const { pathname } = new URL(url);
    const headers = new Headers(init.headers);
    const text = typeof init.body === "string" ? init.body : new TextDecoder().decode(init.body);
    const call = { method: init.method, path: pathname, headers, elements: this.#elements(pathname, headers, text) };
    this.calls.push(call);
    init.signal?.throwIfAborted();
    return this.each(call, () => this.serve(call));
  };

  /** The calls that contain requests. */
  get frames() {
    return this.calls.filter(({ path }) => !path.endsWith("/sessions"));
  }

  serve({ path, headers, elements }) {
    if (path.endsWith("/sessions")) return this.#takeOver(headers.get("idempotency-key"), elements);
    if (!path.endsWith("/batch")) return response(this.#element(elements[0]));
    return response({ status: 200, headers: { "semel-status": "executed" }, body: this.batch(elements) });
  }

  /** The answers to the elements of a batch, or of a frame of a socket. */
  batch(elements) {
    return JSON.stringify(elements.map((element) => this.#element(element)));
  }

  #elements(path, headers, text) {
    if (path.endsWith("/sessions") || path.endsWith("/batch")) return JSON.parse(text);
    const [, name, epoch, seq, , ack] = /^"(.*)";epoch=(\d+);seq=(\d+)(;ack=(\d+))?$/.exec(headers.get("semel-session") ?? "") ?? [];
    const session = name === undefined ? undefined : { name, epoch: Number(epoch), seq: Number(seq), ...(ack && { ack: Number(ack) }) };
    const [, id] = /^"(.*)"$/.exec(headers.get("idempotency-key") ?? "") ?? [];
    return [{ session, id, path, headers: Object.fromEntries(headers), body: text }];
  }

  #takeOver(id, { after }) {
    const current = this.#epochs.at(-1)?.epoch ?? 0;
    if (!this.#takeOvers.has(id)) {
      if (after < current) return problem(409, "fenced", { executed: "no", retry: "never", currentEpoch: current });
      this.#takeOvers.set(id, { name: "s", epoch: current + 1, lastSeq: this.#lastSeq });
      this.#epochs.push({ epoch: current + 1, after: this.#lastSeq });
    }
    return response({ status: 200, headers: { "semel-status": "executed", "content-type": "application/json" }, body: JSON.stringify(this.#takeOvers.get(id)) });
  }

  #element(element) {
    const refused = this.refuse(element);
    if (refused) return of(...refused);
    const answer = this.#judged(element);
    const said = this.says(element);
    return said ? of(...said) : answer;
  }

  #judged(element) {
    if (!element.path.endsWith("/cancel")) return this.#at(element, element.session);
    // A cancellation is recorded, unless it is refused, and answered the same again.
    const known = this.#cancellations.get(element.id);
    if (known) return known.body === element.body ? known.answer : of(422, "fingerprint-mismatch", "no", "after-fix");
    const answer = this.#at(element, JSON.parse(element.body).session, true);
    if (answer.status === 200) this.#cancellations.set(element.id, { body: element.body, answer });
    return answer;
  }

  #at(element, { epoch, seq, ack = 0 }, isCancel = false) {
    const at = this.#epochs.findIndex((each) => each.epoch === epoch);
    const isCurrent = at === this.#epochs.length - 1;
    if (isCurrent) this.acked = Math.max(this.acked, Math.min(ack, this.#lastSeq));
    const taken = this.#places.get(seq);
    if (taken?.epoch === epoch) {
      if (seq <= this.acked) return of(410, "acknowledged", "unknown", "never");
      if (isCancel) return taken.state === "poisoned" ? of(410, "poisoned", "no", "never") : outcome({ state: taken.state });
      if (taken.state !== "executed") return of(410, taken.state, "no", "never");
      return taken.body === bodyOf(element) ? outcome({ ran: taken.body }) : of(422, "fingerprint-mismatch", "no", "after-fix");
    }
    if (!isCurrent) return of(409, "fenced", "no", "never");
    if (seq !== this.#lastSeq + 1) return of(409, "sequence-gap", "no", "same-id");
    if (seq > this.acked + WINDOW) return of(503, "capacity", "no", "same-id", { "retry-after": "1" });
    this.#lastSeq = seq;
    const state = isCancel ? "cancelled" : this.crashes(element) ? "poisoned" : "executed";
    this.#places.set(seq, { epoch, state, body: bodyOf(element) });
    if (isCancel) return outcome({ state });
    if (state === "poisoned") return of(410, state, "no", "never");
    this.effects.push(bodyOf(element));
    return outcome({ ran: bodyOf(element) });
  }
}

const bodyOf = ({ body }) => (typeof body === "string" ? body : atob(body.base64));
const outcome = (body) => ({ status: 200, headers: { "semel-status": "executed", "content-type": "application/json" }, body: JSON.stringify(body) });
const response = ({ status, headers, body }) => new Response(body, { status, headers });

function of(status, code, executed, retry, more) {
  const headers = { "semel-status": code, "content-type": "application/problem+json", ...more };
  return { status, headers, body: JSON.stringify({ code, executed, retry, detail: `this is ${code}` }) };
}
