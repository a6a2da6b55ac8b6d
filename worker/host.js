// The edge of the worker: it moves bytes between the runtime and the module, and decides nothing.
//
// Invariants:
// - After a panic (see module.js) a fresh instance counts the crash, and the caller gets an answer.
// - Every wait has a deadline.
// - A request has one line in the log at most, whoever makes it: it goes along with the answer, and is written where that leaves. So an object
//   that answers too late writes none beside the router's.

import { DurableObject, waitUntil } from "cloudflare:workers";
import { Batches } from "./batches.js";
import { Chores, within } from "./chores.js";
import { glue, guarded, note, perInstance, settingsOf, Table } from "./module.js";
import { Sockets, UNAVAILABLE } from "./sockets.js";
import { Turns } from "./turns.js";

export { guarded, perInstance };

/** The largest request body that is read. The engine has the same number, and answers 413 beyond it. */
const BODY_BYTES_MAX = 1 << 20;
/** So much of a larger body is read and thrown away: a client that is still sending would not see its 413. */
const DRAINED_BYTES_MAX = 16 << 20;

/** A fetch of keys takes at most so long; who waits for one looks so often, and for so long. */
const KEYS_FETCH_MS = 4_000;
const KEYS_POLL_MS = 20;
const KEYS_WAIT_MS = 8_000;

/** So long each shard of the registry has for its part of a listing. */
const LIST_MS = 5_000;

/** After so long, an object has no suspects but places of sessions: nothing else of a crash before it is still being resent. */
const YOUNG_MS = glue.young_ms();

/** What the router tells an object: who asks, where it is for the object to judge what they may; empty on the way to a socket. */
const ASKER = "semel-asker";
/** With what an object tells the router the line of its answer. */
const LINE = "semel-line";

/** What a router knows and can't rebuild: rates, the last JWK set with its instant, and when its last fetch began. */
const tables = [new Table(), new Table(), new Table()];
const keys = { text: undefined, fetchedMs: 0, startedMs: undefined };

const routerOf = perInstance((env) => {
  const router = new glue.SemelRouter(settingsOf(env), ...tables);
  if (keys.startedMs !== undefined) router.keys_kept(keys.text, keys.fetchedMs, keys.startedMs);
  return router;
});

/** One `name:value` a line: headers cross the boundary in one piece. */
export function linesOf(headers) {
  let lines = "";
  headers.forEach((value, name) => {
    lines += `${name}:${value}\n`;
  });
  return lines;
}

/** Makes a response of `[status, header lines, body or undefined, log line or undefined]`; see `written`. */
export function responseOf([status, lines, body, line]) {
  const headers = new Headers();
  for (const header of lines.split("\n")) {
    const colon = header.indexOf(":");
    if (colon > 0) headers.append(header.slice(0, colon), header.slice(colon + 1));
  }
  if (line !== undefined) headers.set(LINE, encodeURIComponent(line));
  // What the handler encoded is encoded: the runtime must not do it again.
  return new Response(body ?? null, { status, headers, encodeBody: "manual" });
}

/** The same answer without its line, which is in the log now. */
function written(answer) {
  const line = answer.headers.get(LINE);
  if (line === null) return answer;
  console.log(decodeURIComponent(line));
  // What another object answered can't be changed.
  const response = new Response(answer.body, answer);
  response.headers.delete(LINE);
  return response;
}

/** Reads a body; undefined where it has more bytes than allowed. */
export async function bodyOf(request) {
  if (request.body === null) return new Uint8Array();
  const length = request.headers.get("content-length");
  if (Number(length) > DRAINED_BYTES_MAX) return undefined;
  // A stream costs several times as much.
  if (length !== null && Number(length) <= BODY_BYTES_MAX) return new Uint8Array(await request.arrayBuffer());
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

let Effects;

/** Has what handlers emit sent. A Worker whose handler emits nothing does without it. */
export function sendBy(sender) {
  Effects = sender;
}

/** The object of a key. */
export class SemelObject extends DurableObject {
  #engine = perInstance(() => new glue.SemelEngine(this.storage(), settingsOf(this.env)));
  #sockets = new Sockets(
    this.ctx,
    (...first) => this.#admitted(...first),
    (...frame) => this.#chores.during(() => this.#frame(frame)),
    () => this.#wake(),
  );
  #turns = new Turns(() => this.ctx.storage.sync());
  #effects =
    Effects &&
    new Effects(
      { ctx: this.ctx, env: this.env, engine: () => this.#engine(), ready: () => this.#chores.ready(), wake: () => this.#chores.wake() },
      this.#turns,
    );
  #chores = new Chores(this.ctx, this.env, () => this.#engine(), this.#sockets, this.#effects);

  /** Where the engine keeps all it knows. A subclass may look over its shoulder. */
  storage() {
    return this.ctx.storage;
  }

  #startedMs = Date.now();
  #batches = new Batches(
    {
      engine: () => this.#engine(),
      router: () => routerOf(this.env),
      wake: () => this.#wake(),
      sync: () => this.ctx.storage.sync(),
      startedMs: this.#startedMs,
    },
    this.#turns,
  );

  constructor(ctx, env) {
    super(ctx, env);
    ctx.blockConcurrencyWhile(() => this.#chores.start());
  }

  async fetch(request) {
    const arrivedMs = Date.now();
    const asker = request.headers.get(ASKER);
    if (asker === "") return this.#open(request, arrivedMs);
    const answer = await this.#chores.during(() => (asker === null ? this.#answer(request, arrivedMs) : this.#batch(request, decodeURIComponent(asker))));
    answer.headers.append("server-timing", `object;dur=${Date.now() - arrivedMs}`);
    return answer;
  }

  async #answer(request, arrivedMs) {
    const { pathname, search } = new URL(request.url);
    const body = await bodyOf(request);
    const opening = this.#chores.ready();
    if (opening) await opening;
    const lines = linesOf(request.headers);
    const attempt = () => [request.method, pathname, search, lines, body, arrivedMs, Date.now()];
    if (this.isSuspect(request.method, pathname, lines)) return this.#runAlone(attempt, request);
    return this.#turns.together(() => this.run(attempt, request));
  }

  #open(request, arrivedMs) {
    const full = "too many sockets are open on which nobody has said who they are";
    return this.#sockets.open(request) ?? responseOf(routerOf(this.env).unavailable(full, undefined, "GET", linesOf(request.headers), arrivedMs, Date.now()));
  }

  webSocketMessage(socket, message) {
    return this.#sockets.message(socket, message);
  }

  webSocketClose(socket) {
    this.#sockets.closed(socket);
  }

  /** Who the first frame of a socket says it is. */
  async #admitted(text, key, address) {
    const admit = () =>
      guarded(
        () => routerOf(this.env).admit(text, key, address, Date.now()),
        () => UNAVAILABLE,
      );
    return (await decided(admit, this.env, Date.now())) ?? UNAVAILABLE;
  }

  async #batch(request, asker) {
    const body = await bodyOf(request);
    await this.#chores.ready();
    return responseOf(await this.#batches.batch(request.headers.get("semel-key"), asker, linesOf(request.headers), body));
  }

  async #frame(frame) {
    await this.#chores.ready();
    return this.#batches.frame(...frame);
  }

  alarm() {
    this.#sockets.end(Date.now());
    return this.#chores.alarm();
  }

  /** Forgets what was first sent before an instant, in Unix s; whether all of that is swept. For the registry. */
  forget(beforeS) {
    return this.#chores.forget(beforeS);
  }

  /** `[records, tombstones]` of the key; undefined where that can't be known now. Writes nothing. */
  count() {
    return guarded(
      () => this.#engine().count(Date.now()),
      () => undefined,
    );
  }

  /** Whether it may have ended the object that ran before. Only a young object asks, but for places of sessions. */
  isSuspect(method, pathname, lines) {
    const now = Date.now();
    if (now >= this.#startedMs + YOUNG_MS && !lines.includes("semel-session:")) return false;
    return guarded(
      () => this.#engine().is_suspect(method, pathname, lines, this.#startedMs, now),
      () => false,
    );
  }

  /**
   * From the call to the answer nothing is awaited: the decision, the effect and the record are one turn. What a subclass
   * writes right after it, having awaited nothing either, is in the same commit; for that it is given the `request`, whose
   * body is gone.
   */
  run(attempt, _request) {
    return responseOf(this.answered(attempt()));
  }

  /** What the engine answers to the arguments of an attempt. */
  answered(args) {
    const crashed = () => this.#engine().crashed(...args);
    return this.#told(
      () => this.#engine().handle(...args),
      () => guarded(crashed, () => this.#crashed(args)),
    );
  }

  /** What is to be sent before the attempt that was answered last has an answer. */
  taken() {
    return guarded(
      () => this.#engine().take_call(),
      () => undefined,
    );
  }

  /** What the engine answers once that has ended. */
  settled(call, ended, args) {
    return this.#told(
      () => this.#engine().settle(call, ended, ...args),
      () => this.#crashed(args),
    );
  }

  /** What the engine answers while another request of the key is under way. */
  waiting(args) {
    return this.#told(
      () => this.#engine().wait(...args),
      () => this.#crashed(args),
    );
  }

  #told(ask, otherwise) {
    // One instant for both: a crash is counted as of the start.
    const answer = guarded(ask, otherwise);
    this.#wake();
    return answer;
  }

  #wake() {
    this.#chores.wake();
    this.#effects?.begin();
  }

  #crashed([method, , , lines, , arrivedMs]) {
    return routerOf(this.env).unavailable("the object crashed", undefined, method, lines, arrivedMs, Date.now());
  }

  /**
   * Runs what may have ended the object before. Its start is durable before it runs, and so is all that ran before it; if
   * the object ends once more, nobody else was in that commit.
   */
  #runAlone(attempt, request) {
    return this.#turns.alone(async () => {
      const start = (isCounted) =>
        guarded(
          () => this.#engine().start(isCounted, ...attempt()),
          () => undefined,
        );
      start(false);
      await this.ctx.storage.sync();
      // Another object of the isolate may have crashed the module meanwhile, and with it what was known of this start.
      start(true);
      const answer = await this.run(attempt, request);
      await this.ctx.storage.sync();
      return answer;
    });
  }
}

/**
 * Resolves to what an object answers when it is asked for `request`; to `unavailable` where it does not answer in time, or
 * fails. What it goes on to do is its own commit.
 */
export async function answerOf(env, request, ask, waitMs) {
  const arrivedMs = Date.now();
  const { method, headers } = request;
  const unavailable = (detail, reason) =>
    written(responseOf(routerOf(env).unavailable(detail, reason, method, linesOf(headers), arrivedMs, Date.now())));
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(() => resolve("the object did not answer in time"), waitMs);
  });
  try {
    const answer = await Promise.race([ask(), late]);
    return typeof answer === "string" ? unavailable(answer) : written(answer);
  } catch (error) {
    return unavailable("the object failed", `the object failed: ${error}`);
  } finally {
    clearTimeout(timer);
  }
}

/** The Worker: routes a request to the object of its key. */
export async function serve(request, env) {
  const arrivedMs = Date.now();
  try {
    const answer = await routed(request, env);
    return answer.webSocket ? answer : timed(answer, arrivedMs);
  } catch (error) {
    // Nothing could be made to answer: a setting that can't be read, say. The log has the reason.
    note("error", String(error));
    return written(responseOf(glue.unset(settingsOf(env), linesOf(request.headers), Date.now())));
  }
}

/** The answer to a message of a queue, which asks for a change under a name of Semel's own. */
export function asMessage(request, env) {
  return routed(request, env, (head) => routerOf(env).route_message(...head, Date.now()));
}

async function routed(request, env, decide = (head) => routerOf(env).route(...head, Date.now())) {
  const { pathname, search } = new URL(request.url);
  const arrivedMs = Date.now();
  const lines = linesOf(request.headers);
  const route = await routeOf([request.method, pathname, search, lines], env, arrivedMs, decide);
  if (typeof route[0] === "number") return written(responseOf(route));
  const headers = new Headers(request.headers);
  if (route[0] === null) return registered(request, env, headers, route);
  const [key, semelKey, semelPrincipal, waitMs, asker] = route;
  headers.set("semel-key", semelKey);
  headers.set("semel-principal", semelPrincipal);
  if (asker === undefined) headers.delete(ASKER);
  else headers.set(ASKER, encodeURIComponent(asker));
  const stub = env.SEMEL.get(env.SEMEL.idFromName(key));
  return answerOf(env, request, () => stub.fetch(request, { headers, redirect: "manual" }), waitMs);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Where a request goes. */
async function routeOf(head, env, arrivedMs, decide) {
  const [method, , , lines] = head;
  const unavailable = (detail) => routerOf(env).unavailable(detail, undefined, method, lines, arrivedMs, Date.now());
  const route = () =>
    guarded(
      () => decide(head),
      () => unavailable("the router crashed"),
    );
  return (await decided(route, env, arrivedMs)) ?? unavailable("the keys that tokens are verified with did not come in time");
}

/** What is decided. Where that takes keys that are not there yet, it waits for them; undefined: they did not come in time. */
async function decided(decide, env, arrivedMs) {
  let untilMs = Infinity;
  do {
    const decision = decide();
    fetchKeys(env);
    if (decision[0] !== undefined) return decision;
    // No caller waits past its deadline, whoever is slow.
    untilMs = Math.min(untilMs, arrivedMs + Math.min(decision[1], KEYS_WAIT_MS));
    // Not for the promise of the fetch: it is another request's.
    await pause(KEYS_POLL_MS);
  } while (Date.now() < untilMs);
  return undefined;
}

/** Has the JWK set fetched, if that is due: beside the request, and to the end even if its caller leaves. */
function fetchKeys(env) {
  const url = routerOf(env).keys_wanted();
  if (url === undefined) return;
  keys.startedMs = Date.now();
  waitUntil(fetched(url, env));
}

/** Fetches the JWK set and hands it to the router; whatever goes wrong, it is told. */
async function fetched(url, env) {
  let text;
  try {
    const signal = AbortSignal.timeout(KEYS_FETCH_MS);
    const response = await fetch(url, { headers: { accept: "application/json" }, redirect: "manual", signal });
    const body = await bodyOf(response);
    if (response.status === 200 && body !== undefined) text = new TextDecoder().decode(body);
    else note("warn", `the JWK set: status ${response.status}`);
  } catch (error) {
    note("warn", `the JWK set: ${error}`);
  }
  const fetchedMs = Date.now();
  const wrong = guarded(
    () => routerOf(env).keys_fetched(text, fetchedMs),
    () => "it crashed the module",
  );
  if (wrong === undefined) Object.assign(keys, { text, fetchedMs });
  else note("warn", wrong);
}

/** Asks the registry: all shards for a listing, the coordinator for the rest. Without one of them a listing would not be whole. */
function registered(request, env, headers, [, isListing, semelPrincipal, waitMs]) {
  const nowMs = Date.now();
  const { method } = request;
  const { pathname, search } = new URL(request.url);
  const path = pathname + search;
  const object = (name) => env.REGISTRY.get(env.REGISTRY.idFromName(name));
  const list = async () => {
    const shards = Array.from({ length: glue.registry_shards() }, (_, shard) => shard);
    const page = (shard) => within(LIST_MS, object(String(shard)).list(shard, path));
    const failed = (shard) => (error) => Promise.reject(new Error(`shard ${shard} of the registry: ${error.message}`));
    const pages = await Promise.all(shards.map((shard) => page(shard).catch(failed(shard))));
    return responseOf(routerOf(env).listed(path, pages, method, linesOf(headers), nowMs, Date.now()));
  };
  headers.set("semel-principal", semelPrincipal);
  const forget = () => object("coordinator").fetch(request, { headers, redirect: "manual" });
  const ask = env.REGISTRY === undefined ? () => Promise.reject(new Error("REGISTRY is not bound")) : isListing ? list : forget;
  return answerOf(env, request, ask, waitMs);
}

/**
 * The same answer, with how long it took. On Cloudflare a clock moves only while something is waited for: the object's time is that of
 * the body's arrival and of waiting for others, and no computation is in either.
 */
function timed(answer, arrivedMs) {
  // What another object answered can't be changed.
  const response = new Response(answer.body, answer);
  response.headers.append("server-timing", `total;dur=${Date.now() - arrivedMs}`);
  const origin = response.headers.get("access-control-allow-origin");
  if (origin !== null) response.headers.set("timing-allow-origin", origin);
  return response;
}
