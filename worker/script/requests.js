// What a handler is given: the complete request, and the context to work with.
//
// Invariant: nothing has to be awaited. Parts that cost something are made when they are first used.

import { answerOf } from "./answers.js";

const DECODER = new TextDecoder();

/** The part of a request that its key is derived from. */
export class Head {
  #url;
  #segments;
  #query;

  constructor(method, url) {
    this.method = method;
    this.#url = url;
  }

  /** The path as it was sent, without the query. */
  get path() {
    const end = this.#url.indexOf("?");
    return end < 0 ? this.#url : this.#url.slice(0, end);
  }

  /** Percent-decoded. The module refuses paths in which a segment would be empty or contain a slash. */
  get segments() {
    return (this.#segments ??= this.path === "/" ? [] : this.path.slice(1).split("/").map(decodeURIComponent));
  }

  get query() {
    return (this.#query ??= new URLSearchParams(this.#url.slice(this.path.length)));
  }
}

export class Request extends Head {
  #lines;
  #headers;

  constructor(method, url, lines, body) {
    super(method, url);
    this.#lines = lines;
    this.body = body;
  }

  get headers() {
    return (this.#headers ??= headersOf(this.#lines));
  }

  text() {
    return DECODER.decode(this.body);
  }

  json() {
    return JSON.parse(this.text());
  }
}

function headersOf(lines) {
  const headers = new Headers();
  for (const line of lines.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) headers.append(line.slice(0, colon), line.slice(colon + 1));
  }
  return headers;
}

/** What a handler works with. Valid until the handler has returned. */
export class Context {
  #storage;
  #store;
  /** The last error that was thrown because the engine refused an effect. */
  refused;
  /** `{ error }` of a call into the module that trapped. */
  trap;

  /**
   * `store([key or undefined, URL, method, header lines, body])` stores an effect in the current transaction: if the handler rolls back a transaction of
   * its own, the effect goes with it. It returns undefined, or `[reason, whether the engine refused]`.
   */
  constructor(storage, store, now, key, principal) {
    this.#storage = storage;
    this.#store = store;
    this.now = now;
    this.key = key;
    this.principal = principal;
  }

  get sql() {
    if (this.#storage === undefined) {
      throw new Error("ctx.sql is of a request that has its answer: what is written now would be another commit, which nothing protects");
    }
    return this.#storage.sql;
  }

  /** Sends a request to another key, exactly once, if the handler's work is committed. */
  emit(key, request) {
    if (typeof key !== "string") throw new TypeError(`ctx.emit got a ${typeof key} for a key: it is a text`);
    if (typeof request?.path !== "string") throw new TypeError("ctx.emit takes a request with a path: { path, method?, headers?, body? }");
    this.#send("emit", key, request.path, request);
  }

  /** Sends a request to an address outside, at least once and always with the same Idempotency-Key, if the handler's work is committed. */
  call(url, request = {}) {
    // `new URL` throws if the runtime could not send to it.
    this.#send("call", undefined, String(new URL(url)), request);
  }

  #send(name, key, url, { method = "POST", headers, body }) {
    if (this.#storage === undefined) throw new Error(`ctx.${name} is of a request that has its answer: nothing is sent any more`);
    const [, lines, content] = answerOf({ status: 200, headers, body });
    const bytes = typeof content === "string" ? new TextEncoder().encode(content) : (content ?? new Uint8Array());
    const wrong = this.#stored([key, url, method, lines, bytes]);
    if (wrong === undefined) return;
    const [reason, isRefused] = wrong;
    const error = new Error(`ctx.${name}: ${reason}`);
    if (isRefused) this.refused = error;
    throw error;
  }

  /** A trap of the module is remembered even if the handler catches it: it is not the handler's error. */
  #stored(sent) {
    try {
      return this.#store(sent);
    } catch (error) {
      this.trap = { error };
      throw error;
    }
  }

  end() {
    this.#storage = undefined;
  }
}
