// What a handler is given: the request, whole, and what it may work on.
//
// Invariant: all of it is there at once, and what costs something is made where it is asked for.

import { answerOf } from "./answers.js";

const DECODER = new TextDecoder();

/** A request as far as its key is told by it. */
export class Head {
  #url;
  #segments;
  #query;

  constructor(method, url) {
    this.method = method;
    this.#url = url;
  }

  /** As it was sent, without its query. */
  get path() {
    const end = this.#url.indexOf("?");
    return end < 0 ? this.#url : this.#url.slice(0, end);
  }

  /** Decoded. The module lets no path through in which one would be empty, or hold a slash. */
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

/** What a handler works on, until it has answered. */
export class Context {
  #storage;
  #store;
  /** What was thrown last for that the layer refused to have something sent. */
  refused;
  /** What came of a call into the module that did not come back. */
  trap;

  /**
   * `store` has `[key or undefined, URL, method, header lines, body]` sent, if it is committed: in the transaction of whoever calls it, so that
   * one that the handler undoes by itself takes it along. It gives `[why not, whether the layer refused]`, or undefined.
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

  /** Has a request sent to another key, exactly once, if what the handler does is committed. */
  emit(key, request) {
    if (typeof key !== "string") throw new TypeError(`ctx.emit got a ${typeof key} for a key: it is a text`);
    if (typeof request?.path !== "string") throw new TypeError("ctx.emit takes a request with a path: { path, method?, headers?, body? }");
    this.#send("emit", key, request.path, request);
  }

  /** Has a request sent to an address outside, at least once and always with the same Idempotency-Key, if what the handler does is committed. */
  call(url, request = {}) {
    // What the runtime could not send is no effect.
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

  /** What does not come back is no error of the handler's, whoever catches it. */
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
