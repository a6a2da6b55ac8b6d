// `semel.fetch`: from what `fetch` takes to what the module takes, and back; and what the module asks of its host.
//
// Invariants:
// - Nothing is decided here: what is stored, sent and forgotten is the module's.
// - What is stored is what is sent, byte for byte; so nothing with credentials in it is stored.
// - The methods that the module calls don't throw.
// - After `close`, no promise is left that nobody will settle.

import { errorOf } from "./errors.js";
import { indexedDbStore } from "./indexeddb.js";
import { linesOf, toLines } from "./lines.js";
import { DELIVERED, GIVE_UP, LOST, Machine, RESUME, RESUME_ALL } from "./machine.js";
import { encodedKey, setupOf } from "./options.js";
import { customStore, memoryStore } from "./stores.js";
import { lightBeacon } from "./tabs.js";
import { given, send } from "./transport.js";

export { OutcomeUnknownError, SemelError, StoreError } from "./errors.js";

const CHANGES = new Set(["POST", "PUT", "PATCH", "DELETE"]);
/** Statuses with which a Response takes no body. */
const WITHOUT_BODY = new Set([101, 103, 204, 205, 304]);
/** So often a tab looks for what tabs that were opened later have left. */
const LOOK_MS = 5_000;

export class Outbox {
  #setup;
  #machine;
  #beacon;
  /** Who certainly lives, as of the last look. */
  #alive;
  #looking;
  #closing = new AbortController();
  /** The callers that wait, by request id. */
  #callers = new Map();
  /** The attempts under way, by number. */
  #attempts = new Map();
  /** What ends the other waits, once it is closed. */
  #waiting = new Set();
  /** Answers that nobody has taken yet. */
  #recovered = [];
  #onrecovered = null;
  onpaused = null;

  /** Opens the outbox, and goes on with what was left unfinished. `load` gives the module. */
  static async open(options, load) {
    const setup = setupOf(options);
    const semel = new this(setup, await load());
    await semel.#start(options);
    return semel;
  }

  constructor(setup, module) {
    this.#setup = setup;
    this.#machine = new Machine(module, this.#host());
  }

  async #start({ onrecovered = null, onpaused = null }) {
    const { origin, identity, store, durability } = this.#setup;
    const owner = this.#machine.randomId();
    const database = `semel ${origin} ${identity}`;
    const own = store ? customStore(store) : durability === "memory" ? memoryStore() : undefined;
    this.onpaused = onpaused;
    this.onrecovered = onrecovered;
    this.#machine.open(own ?? (await indexedDbStore(database, durability)), { ...this.#setup, owner, database });
    try {
      this.#beacon = own ? store?.presence?.(owner) : await lightBeacon(database, owner);
      await this.#takeOver();
    } catch (error) {
      this.#end();
      throw error;
    }
    // Who is opened later may leave something too. In Node, no process goes on for that alone.
    if (this.#beacon) (this.#looking = setInterval(() => this.#takeOver().catch(() => {}), LOOK_MS)).unref?.();
  }

  /** Goes on with what tabs left that are gone, and waits for those that live. */
  async #takeOver() {
    if (this.#closing.signal.aborted) return;
    const owners = await this.#machine.takeOver(async () => (this.#alive = await this.#beacon?.alive()));
    // Of those that are gone, what is left was taken now, or will be at the next look.
    const alive = owners.filter((owner) => this.#alive?.includes(owner));
    for (const owner of alive) this.#beacon.watch?.(owner, () => this.#takeOver().catch(() => {}));
  }

  get onrecovered() {
    return this.#onrecovered;
  }

  set onrecovered(handler) {
    this.#onrecovered = typeof handler === "function" ? handler : null;
    for (const recovered of this.#recovered.splice(0)) this.#recover(...recovered);
  }

  async fetch(input, init = {}) {
    const { key: named, signal = input.signal, ordered = this.#setup.ordered, ...rest } = init;
    const key = encodedKey(named);
    // It normalises method, headers and body as `fetch` does.
    const request = new Request(input instanceof Request ? input : new URL(input, this.#setup.origin), rest);
    const { origin, pathname, search } = new URL(request.url);
    if (origin !== this.#setup.origin) throw new TypeError(`semel: ${origin} is not ${this.#setup.origin}`);
    if (!CHANGES.has(request.method)) return this.#passThrough(request, key, signal);
    const lines = storable(request.headers);
    const body = new Uint8Array(await this.#unlessClosed(() => request.arrayBuffer(), signal));
    signal?.throwIfAborted();
    this.#closing.signal.throwIfAborted();
    return this.#change([request.method, pathname + search, key, lines, body, ordered], signal);
  }

  async pending() {
    const all = await this.#unlessClosed(() => this.#machine.overview());
    return all.map(([requestId, method, target, state, attempts]) => {
      return { requestId, method, url: this.#setup.origin + target, attempts: Number(attempts), state };
    });
  }

  resume() {
    this.#machine.tell(RESUME_ALL);
  }

  async close() {
    if (!this.#closing.signal.aborted) this.#end();
  }

  /** What a promise gives, unless the outbox is closed before, or `signal` aborts: what may never settle must not be waited for then. */
  async #unlessClosed(begin, signal) {
    this.#closing.signal.throwIfAborted();
    signal?.throwIfAborted();
    let stop;
    const stopped = new Promise((_, reject) => (stop = reject));
    const abort = () => stop(signal.reason);
    this.#waiting.add(stop);
    signal?.addEventListener("abort", abort);
    try {
      return await Promise.race([begin(), stopped]);
    } finally {
      this.#waiting.delete(stop);
      signal?.removeEventListener("abort", abort);
    }
  }

  #end() {
    this.#closing.abort(new TypeError("semel: it is closed"));
    for (const stop of this.#waiting) stop(this.#closing.signal.reason);
    clearInterval(this.#looking);
    for (const attempt of this.#attempts.values()) attempt.abort();
    this.#machine.close();
    this.#beacon?.leave();
  }

  /** A read, or a method that the protocol does not execute: sent as it is, and once. */
  async #passThrough(request, key, signal) {
    const headers = new Headers(await this.#unlessClosed(() => given(this.#setup.headers)));
    for (const [name, value] of request.headers) headers.set(name, value);
    if (key !== undefined) headers.set("semel-key", `"${key}"`);
    const signals = [this.#closing.signal, signal].filter(Boolean);
    const read = new Request(request, { headers });
    return this.#unlessClosed(() => this.#setup.fetch(read, { signal: AbortSignal.any(signals) }));
  }

  #change(request, signal) {
    const requestId = this.#machine.randomId();
    return new Promise((resolve, reject) => {
      let ticket;
      const giveUp = () => this.#machine.tell(GIVE_UP, ticket);
      this.#callers.set(requestId, { resolve, reject, settled: () => signal?.removeEventListener("abort", giveUp) });
      ticket = this.#machine.request(requestId, ...request);
      signal?.addEventListener("abort", giveUp, { once: true });
      // A store that is asked synchronously may have aborted it by now.
      if (signal?.aborted) giveUp();
    });
  }

  /** What the module calls. */
  #host() {
    return {
      transmit: (attempt, ...request) => this.#transmit(attempt, request),
      abort: (attempt) => {
        this.#attempts.get(attempt)?.abort();
        this.#attempts.delete(attempt);
      },
      deliver: ([ticket, ...described], isAwaited, outcome, failure, cause) => {
        const request = this.#described(described);
        const error = failure && errorOf(request.requestId, failure, cause);
        if (!isAwaited) return this.#recover(ticket, request, outcome, error);
        const caller = this.#caller(request.requestId);
        if (outcome) caller?.resolve(responseOf(request.url, outcome));
        else caller?.reject(error);
        this.#machine.tell(DELIVERED, ticket);
      },
      gaveUp: (requestId, failure) => this.#caller(requestId)?.reject(errorOf(requestId, failure)),
      pause: ([ticket, ...described], failure) => this.#pause(ticket, this.#described(described), failure),
    };
  }

  #described([requestId, method, target]) {
    return { requestId, method, url: this.#setup.origin + target };
  }

  /** Takes out who waits for an answer. */
  #caller(requestId) {
    const caller = this.#callers.get(requestId);
    this.#callers.delete(requestId);
    caller?.settled();
    return caller;
  }

  async #transmit(attempt, request) {
    const controller = new AbortController();
    this.#attempts.set(attempt, controller);
    let answer;
    try {
      answer = await send(this.#setup, request, controller.signal);
    } catch {
      // No answer, for whatever reason: the network, or the headers function.
    }
    // One that was given up is reported no more.
    if (!this.#attempts.delete(attempt)) return;
    if (answer) this.#machine.answered(attempt, ...answer);
    else this.#machine.tell(LOST, attempt);
  }

  #pause(ticket, request, failure) {
    const error = errorOf(request.requestId, failure);
    if (typeof this.onpaused !== "function") {
      console.warn(`semel: ${request.method} ${request.url} waits, and there is no onpaused: ${error.message}`);
      return;
    }
    const paused = {
      ...request,
      error,
      resume: () => this.#machine.tell(RESUME, ticket),
      giveUp: () => this.#machine.tell(GIVE_UP, ticket),
    };
    // Not from within the module's call.
    queueMicrotask(() => this.onpaused?.(paused));
  }

  /** Gives an answer that nobody waits for to who takes it. What is not taken without an error is kept. */
  async #recover(ticket, request, outcome, error) {
    const keep = () => this.#recovered.push([ticket, request, outcome, error]);
    if (!this.#onrecovered || this.#closing.signal.aborted) return keep();
    try {
      const response = outcome && responseOf(request.url, outcome);
      await this.#onrecovered({ ...request, response, error });
    } catch (thrown) {
      console.error("semel: onrecovered failed, so the answer is kept:", thrown);
      return keep();
    }
    this.#machine.tell(DELIVERED, ticket);
  }
}

/** What is stored must hold no credentials, and nothing that the module sets itself. */
function storable(headers) {
  for (const [name] of headers) {
    if (name === "authorization" || name === "cookie") throw new TypeError(`semel: ${name} would be stored; give it in the headers option of open`);
    if (name === "idempotency-key" || name.startsWith("semel-")) throw new TypeError(`semel: ${name} is set by the SDK`);
  }
  return toLines(headers);
}

function responseOf(url, [status, lines, body]) {
  const headers = new Headers();
  for (const [name, value] of linesOf(lines)) headers.append(name, value);
  const response = new Response(WITHOUT_BODY.has(status) ? null : body, { status, headers });
  // As `fetch` has it; a Response that was made by hand has none.
  Object.defineProperty(response, "url", { value: url });
  return response;
}
