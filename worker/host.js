// The edge of the worker: it moves bytes between the runtime and the module, and decides nothing.
//
// Invariants:
// - Every call into the module is synchronous. A panic is an exception here: the instance is thrown away, a fresh one
//   counts the crash, and the caller gets an answer. Nobody is left waiting for a promise that a dead instance held.
// - What an object keeps in memory can be rebuilt from its storage, for a crash anywhere in the isolate drops it.
// - Every wait has a deadline.

import { DurableObject } from "cloudflare:workers";
import module from "./semel_bg.wasm";
import * as glue from "./semel.js";

/** The largest request body that is read. The engine has the same number, and answers 413 beyond it. */
const BODY_BYTES_MAX = 1 << 20;
/** So much of a larger body is read and thrown away: a client that is still sending would not see its 413. */
const DRAINED_BYTES_MAX = 16 << 20;

/** A fetch of keys takes at most so long; who waits for another's looks so often, and for so long. */
const KEYS_FETCH_MS = 4_000;
const KEYS_POLL_MS = 20;
const KEYS_WAIT_MS = 8_000;

/** Counts the instances, so that what was made in an old one is made again. */
let instance = 0;

glue.initSync({ module });
glue.log_panics();
/** After so long, an object has no suspects: nothing of a crash before it is still being resent. */
const YOUNG_MS = glue.young_ms();

/** One line for the log, whatever is in it: no client writes a line of its own there, or moves a terminal's cursor. */
function report(text) {
  const escape = (char) => `\\u{${char.codePointAt(0).toString(16)}}`;
  console.error(`semel: ${String(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, escape)}`);
}

/** Throws the instance away after a panic: its memory may be half-written. */
function restart() {
  instance += 1;
  glue.__wbg_reset_state();
  glue.log_panics();
}

/** Calls into the module; after a panic, calls `otherwise` on a fresh instance. */
export function guarded(call, otherwise) {
  try {
    return call();
  } catch (error) {
    report(`the module was restarted: ${error}`);
    restart();
    return otherwise();
  }
}

/** One setting a line. wrangler hands over numbers, booleans and JSON as what they are; JSON over several lines means the same on one. */
const settingsOf = (env) =>
  Object.entries(env)
    .filter(([name]) => name.startsWith("SEMEL_"))
    .map(([name, value]) => [name, typeof value === "string" ? value : String(JSON.stringify(value))])
    .map(([name, value]) => `${name}=${value}\0`)
    .join("");

/** Keeps what `make` makes in the module for as long as its instance lives. */
export function perInstance(make) {
  let madeIn = -1;
  let made;
  return (argument) => {
    if (madeIn !== instance) {
      made = make(argument);
      madeIn = instance;
    }
    return made;
  };
}

const routerOf = perInstance((env) => new glue.SemelRouter(settingsOf(env)));

/** One `name:value` a line: headers cross the boundary in one piece. */
export function linesOf(headers) {
  let lines = "";
  for (const [name, value] of headers) lines += `${name}:${value}\n`;
  return lines;
}

/** Makes a response of `[status, header lines, body or undefined, log line or undefined]`. */
export function responseOf([status, lines, body, log]) {
  if (log !== undefined) report(log);
  const headers = new Headers();
  for (const line of lines.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) headers.append(line.slice(0, colon), line.slice(colon + 1));
  }
  // What the handler encoded is encoded: the runtime must not do it again.
  return new Response(body ?? null, { status, headers, encodeBody: "manual" });
}

/** Reads a body; undefined where it has more bytes than allowed. */
export async function bodyOf(request) {
  if (request.body === null) return new Uint8Array();
  if (Number(request.headers.get("content-length")) > DRAINED_BYTES_MAX) return undefined;
  const chunks = [];
  let bytes = 0;
  for await (const chunk of request.body) {
    bytes += chunk.byteLength;
    if (bytes > DRAINED_BYTES_MAX) return undefined;
    if (bytes <= BODY_BYTES_MAX) chunks.push(chunk);
    else chunks.length = 0;
  }
  if (bytes > BODY_BYTES_MAX) return undefined;
  if (chunks.length === 1) return chunks[0];
  const body = new Uint8Array(bytes);
  let at = 0;
  for (const chunk of chunks) {
    body.set(chunk, at);
    at += chunk.byteLength;
  }
  return body;
}

/** The object of a key. */
export class SemelObject extends DurableObject {
  #engine = perInstance(() => new glue.SemelEngine(this.storage(), settingsOf(this.env)));

  /** Where the engine keeps all it knows. A subclass may look over its shoulder. */
  storage() {
    return this.ctx.storage;
  }

  #startedMs = Date.now();
  /** Settles when the suspects that came before have ended; undefined where there are none. */
  #suspects;

  async fetch(request) {
    const { pathname, search } = new URL(request.url);
    const body = await bodyOf(request);
    const lines = linesOf(request.headers);
    const attempt = () => [request.method, pathname, search, lines, body, Date.now()];
    if (this.#isSuspect(request.method, pathname, lines)) return this.#runAlone(attempt, request);
    while (this.#suspects) await this.#suspects;
    return this.run(attempt, request);
  }

  /** `[records, tombstones]` of the key; undefined where that can't be known now. Writes nothing. */
  count() {
    return guarded(
      () => this.#engine().count(Date.now()),
      () => undefined,
    );
  }

  /** Whether it may have ended the object that ran before. Only a young object asks. */
  #isSuspect(method, pathname, lines) {
    const now = Date.now();
    if (now >= this.#startedMs + YOUNG_MS) return false;
    return guarded(
      () => glue.is_suspect(method, pathname, lines, this.#startedMs, now),
      () => false,
    );
  }

  /**
   * From the call to the answer nothing is awaited: the decision, the effect and the record are one turn. What a subclass
   * writes right after it, having awaited nothing either, is in the same commit; for that it is given the `request`, whose
   * body is gone.
   */
  run(attempt, _request) {
    // One instant for both: a crash is counted as of the start.
    const args = attempt();
    const crashed = () => this.#engine().crashed(...args);
    const unavailable = () => routerOf(this.env).unavailable("the object crashed", args[3], Date.now());
    return responseOf(
      guarded(
        () => this.#engine().handle(...args),
        () => guarded(crashed, unavailable),
      ),
    );
  }

  /**
   * Runs what may have ended the object before. Its start is durable before it runs, and so is all that ran before it; if
   * the object ends once more, nobody else was in that commit.
   */
  async #runAlone(attempt, request) {
    while (this.#suspects) await this.#suspects;
    let end;
    this.#suspects = new Promise((resolve) => {
      end = resolve;
    });
    try {
      guarded(
        () => this.#engine().start(...attempt()),
        () => undefined,
      );
      await this.ctx.storage.sync();
      const answer = this.run(attempt, request);
      await this.ctx.storage.sync();
      return answer;
    } finally {
      this.#suspects = undefined;
      end();
    }
  }
}

/**
 * Resolves to what an object answers when it is asked; to `unavailable` where it does not answer in time, or fails. What it
 * goes on to do is its own commit. `lines`: the headers of the request.
 */
export async function answerOf(env, ask, waitMs, lines = "") {
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(() => resolve("the object did not answer in time"), waitMs);
  });
  try {
    const answer = await Promise.race([ask(), late]);
    if (typeof answer !== "string") return answer;
    return responseOf(routerOf(env).unavailable(answer, lines, Date.now()));
  } catch (error) {
    report(`the object failed: ${error}`);
    return responseOf(routerOf(env).unavailable("the object failed", lines, Date.now()));
  } finally {
    clearTimeout(timer);
  }
}

/** The Worker: routes a request to the object of its key. */
export async function serve(request, env) {
  try {
    return await routed(request, env);
  } catch (error) {
    // Nothing could be made to answer: a setting that can't be read, say. The log has the reason.
    report(error);
    return responseOf(glue.unset(settingsOf(env), linesOf(request.headers), Date.now()));
  }
}

async function routed(request, env) {
  const { pathname, search } = new URL(request.url);
  const lines = linesOf(request.headers);
  const route = await routeOf([request.method, pathname, search, lines], env);
  if (typeof route[0] === "number") return responseOf(route);
  const [key, semelKey, semelPrincipal, waitMs] = route;
  const headers = new Headers(request.headers);
  headers.set("semel-key", semelKey);
  headers.set("semel-principal", semelPrincipal);
  const stub = env.SEMEL.get(env.SEMEL.idFromName(key));
  return answerOf(env, () => stub.fetch(request, { headers, redirect: "manual" }), waitMs, lines);
}

/** Where a request goes. Where that takes keys that are not there yet, they are fetched first. */
async function routeOf(head, env) {
  const unavailable = (detail) => routerOf(env).unavailable(detail, head[3], Date.now());
  const untilMs = Date.now() + KEYS_WAIT_MS;
  do {
    const route = guarded(
      () => routerOf(env).route(...head, Date.now()),
      () => unavailable("the router crashed"),
    );
    if (route[0] !== undefined) return route;
    if (route[1] !== undefined) await fetchKeys(route[1], env);
    // Another request fetches. Its promise is no use here: the platform ends it when that request's client leaves.
    else await new Promise((resolve) => setTimeout(resolve, KEYS_POLL_MS));
  } while (Date.now() < untilMs);
  return unavailable("the keys that tokens are verified with did not come in time");
}

/** Fetches a JWK set and hands it to the router; whatever goes wrong, it is told. */
async function fetchKeys(url, env) {
  let text;
  try {
    const signal = AbortSignal.timeout(KEYS_FETCH_MS);
    const response = await fetch(url, { headers: { accept: "application/json" }, redirect: "manual", signal });
    const body = await bodyOf(response);
    if (response.status === 200 && body !== undefined) text = new TextDecoder().decode(body);
    else report(`the JWK set: status ${response.status}`);
  } catch (error) {
    report(`the JWK set: ${error}`);
  }
  const wrong = guarded(
    () => routerOf(env).keys_fetched(text, Date.now()),
    () => "it crashed the module",
  );
  if (wrong !== undefined) report(wrong);
}
