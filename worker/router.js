// The Worker's side of the edge: it passes each request to the object of its key, and sends the answer.
//
// Invariants:
// - It moves bytes between the runtime and the module. All decisions are the module's.
// - Every wait has a deadline.
// - A request writes at most one line to the log. The line travels with the answer, and is written when the answer leaves. So an object that
//   answers too late writes no second line.
// - Only the router says which principal asks, and for which key. Headers of these names that a client sends are removed.
// - Steps that need not wait create no promise. A dozen promises, here and in the object, cost 4 % of a request that comes alone.

import { waitUntil } from "cloudflare:workers";
import { bodyOf, decodedBodyOf, drained, roomFor } from "./bodies.js";
import { within } from "./chores.js";
import { collect } from "./garbage.js";
import { linesOf, pathOf, responseOf, valueIn } from "./lines.js";
import { glue, guarded, note, perInstance, settingsOf, Table } from "./module.js";
import { objectOf, SHARDS, shardOf } from "./objects.js";
import { isSigned } from "./signatures.js";

/**
 * For keys of tokens: the time limit of a fetch; how often a waiting request looks whether the fetch is over; after how long it asks the module anyway, in
 * case the fetch was given up without notice; how long a request waits at most.
 */
const KEYS_FETCH_MS = 4_000;
const KEYS_POLL_MS = 20;
const KEYS_ASK_MS = 1_000;
const TELLING_MS = 8_000;

/** The time limit of each shard of the registry for its part of a listing. */
const LIST_MS = 5_000;

/**
 * The header lines that only Semel sets: the router (key, principal) and a sending key (from). They are cut out of a client's headers. Only a line
 * feed ends a line, because a value may contain other characters that a pattern takes for a line's end. The lookbehind comes after the literal
 * prefix because that takes a quarter of the time.
 */
const ROUTERS = /semel-(?<=(?:^|\n)semel-)(?:key|principal|from):[^\n]*\n/g;

/** Groups changes of one key that arrive together, if the Worker has that: see gathering.js. */
export let gathering;

/** Called by Workers that group. A Worker in front of other code sends one request of a key after the other, and does not. */
export function gatherBy(its) {
  gathering = its;
}

/** Returns the function that sends calls to the upstream. Throws if a setting of the upstream can't be read. */
let senderOf = () => () => Promise.reject(new Error("nothing here reads what is executed elsewhere"));

/** Called by a Worker in front of other code. */
export function sendBy(its) {
  senderOf = its;
}

/**
 * State that a new router could not rebuild after a crash of the module: rates, the last JWK set and when it was fetched, when the last fetch began, and
 * whether it goes on.
 */
const rates = new Table();
const keys = { text: undefined, fetchedMs: 0, startedMs: undefined, isFetching: false };

export const routerOf = perInstance((env) => {
  // If a setting of the upstream can't be read, every request is told, health too. It is thrown as the module throws its own: see `guarded`.
  try {
    senderOf(env);
  } catch (error) {
    throw error.message;
  }
  const router = new glue.SemelRouter(settingsOf(env), rates);
  if (keys.startedMs !== undefined) router.keys_kept(keys.text, keys.fetchedMs, keys.startedMs);
  return router;
});

/** The Worker: routes a request to the object of its key. */
export async function serve(request, env) {
  const arrivedMs = Date.now();
  collect();
  const { method } = request;
  let lines = "";
  try {
    lines = linesOf(request.headers);
    const answer = await routed(request, lines, env);
    return Array.isArray(answer) ? left(answer, timingOf(answer, arrivedMs)) : answer;
  } catch (error) {
    return unset(error, lines, env);
  }
}

/** The answer to a request that was made of a queue's message. Its id is in a namespace of its own. `cancels`: the request cancels an earlier one. */
export async function asMessage(request, env, cancels = false) {
  const lines = linesOf(request.headers);
  try {
    return left(await routed(request, lines, env, (head) => routerOf(env).route_message(...head, cancels, Date.now())));
  } catch (error) {
    return unset(error, lines, env);
  }
}

/** The answer if none could be made, for example because a setting can't be read. The log has the reason. */
function unset(error, lines, env) {
  note("error", String(error));
  return left(glue.unset(settingsOf(env), lines, Date.now()));
}

/** Makes the `Response` of an answer, with `more` header lines, and writes its line of the log. */
export function left(answer, more) {
  const [, , , line] = answer;
  if (line !== undefined) console.log(line);
  return responseOf(answer, more);
}

/**
 * How long an answer took, as header lines. On Cloudflare the clock stands still while code computes. So both times contain only waiting.
 */
function timingOf([, lines, , , objectMs], arrivedMs) {
  const object = objectMs === undefined ? "" : `object;dur=${objectMs}, `;
  const origin = valueIn(lines, "access-control-allow-origin");
  const reader = origin === undefined ? "" : `timing-allow-origin:${origin}\n`;
  return `server-timing:${object}total;dur=${Date.now() - arrivedMs}\n${reader}`;
}

/**
 * Resolves to what `ask` resolves to, or to the answer `unavailable` if `ask` fails or takes longer than `waitMs`. A late `ask` is not stopped: the
 * object may still commit. The second argument is the method and the header lines of the request.
 */
export async function answerOf(env, [method, lines], ask, waitMs) {
  const arrivedMs = Date.now();
  const unavailable = (detail, reason) => routerOf(env).unavailable(detail, reason, method, lines, arrivedMs, Date.now());
  let timer;
  try {
    const answer = await new Promise((resolve, reject) => {
      timer = setTimeout(resolve, waitMs);
      ask().then(resolve, reject);
    });
    return answer ?? unavailable("no answer came in time");
  } catch (error) {
    return unavailable("the object failed", `the object failed: ${error}`);
  } finally {
    clearTimeout(timer);
  }
}

/** Returns an answer, or a promise of one; of a `Response` if the request opens a socket. */
function routed(request, lines, env, decide = (head) => routerOf(env).route(...head, Date.now())) {
  const { method } = request;
  const { pathname, search } = pathOf(request.url);
  const head = [method, pathname, search, lines];
  const arrivedMs = Date.now();
  const unavailable = (detail) => routerOf(env).unavailable(detail, undefined, method, lines, arrivedMs, Date.now());
  const decision = () =>
    guarded(
      () => decide(head),
      () => unavailable("the router crashed"),
    );
  const follow = (route = unavailable("what tokens are verified with did not come in time")) => followed(request, env, head, route);
  const route = decided(decision, env);
  return Array.isArray(route) ? follow(route) : route.then(follow);
}

function followed(request, env, [method, pathname, search, lines], route) {
  if (typeof route[0] === "number") return route;
  const [key, says, waitMs, asker, acknowledges] = route;
  if (asker === "") return opened(request, lines, env, route);
  const head = [method, pathname, search, lines.replace(ROUTERS, "") + says];
  const byObject = () => asked(request, env, [key, head, asker], Date.now() + waitMs);
  if (acknowledges !== undefined) return answerOf(env, [method, lines], () => readElsewhere(head, env, acknowledges ? byObject : undefined), waitMs);
  const ask = key === null ? registered(head, request, env, asker) : byObject;
  return answerOf(env, [method, lines], ask, waitMs);
}

/** A read that the upstream answers. `before` asks the key's object, if the request carries acknowledgements for it. */
async function readElsewhere(head, env, before) {
  const arrivedMs = Date.now();
  const [, told = ""] = (await before?.()) ?? [];
  const ended = await senderOf(env)([], undefined, head);
  const [method, , , lines] = head;
  const [status, own, ...rest] = routerOf(env).read(ended, method, lines, arrivedMs, Date.now());
  // `Semel-Key` tells the client that its acknowledgements were taken. Without it, the client would send them again and again.
  const key = valueIn(told, "semel-key");
  return [status, key === undefined ? own : `${own}semel-key:${key}\n`, ...rest];
}

/**
 * Asks the object of a key. A batch goes by itself; other requests go together with those of the same key, if there are any. This is one long function
 * because each async function costs one more promise.
 */
async function asked(request, env, [key, head, asker], untilMs) {
  const [method, , , lines] = head;
  const leave = roomFor(request, lines, untilMs);
  if (leave === null) {
    await drained(request).catch(() => undefined);
    return routerOf(env).unavailable("too much of this principal is under way", undefined, method, lines, Date.now(), Date.now());
  }
  let place;
  try {
    let body;
    const isRead = request.bodyUsed;
    try {
      body = await bodyOf(request);
    } catch {
      return cutShort(env, method, lines, isRead);
    }
    const call = [...head, body, asker];
    const object = () => objectOf(env, "SEMEL", key);
    place = asker === undefined ? gathering?.placeOf(key, object, call, untilMs) : undefined;
    if (place?.told) {
      const answer = await place.told;
      if (answer !== undefined) return answer;
    }
    return await object().ask(...call);
  } finally {
    place?.leave?.();
    leave?.();
  }
}

/**
 * The answer if the client broke off in the middle of the body. It has no line in the log: no object was asked, and nothing of the server has failed. If
 * the Worker around has read the body (`isRead`), the same request would fail for ever, so its author is told, in the log too.
 */
function cutShort(env, method, lines, isRead) {
  const detail = isRead ? "the Worker has read the body before it passed the request on: it has to read that of request.clone()" : "the body of the request did not arrive whole";
  const answer = routerOf(env).unavailable(detail, isRead ? detail : undefined, method, lines, Date.now(), Date.now());
  return isRead ? answer : answer.slice(0, 3);
}

/** Opens a socket to the object. The object refuses only if it has no room. */
async function opened(request, lines, env, [key, says, waitMs]) {
  const headers = new Headers(request.headers);
  headers.set("semel-key", valueIn(says, "semel-key"));
  const head = [request.method, lines];
  const answer = await answerOf(env, head, () => objectOf(env, "SEMEL", key).fetch(request, { headers, redirect: "manual" }), waitMs);
  if (Array.isArray(answer) || answer.webSocket) return answer;
  const full = "too many sockets are open on which nobody has said who they are";
  return routerOf(env).unavailable(full, undefined, ...head, Date.now(), Date.now());
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Returns the module's decision. If the decision needs a signature to be checked, or keys that must be fetched first, returns a promise of it, which
 * resolves to undefined if that takes until `untilMs`.
 */
export function decided(decide, env, untilMs = Date.now() + TELLING_MS) {
  const decision = decide();
  fetchKeys(env);
  return decision[0] === undefined ? decidedLater(decide, env, Math.min(untilMs, Date.now() + decision[1])) : decision;
}

/** Waits for a signature or for keys, but no longer than until `untilMs`. */
async function decidedLater(decide, env, untilMs) {
  const signed = routerOf(env).signature_wanted();
  if (signed) {
    const isRight = await isSigned(signed);
    // The module keeps the result for the next decision only. That is the one made below: nothing is awaited in between.
    routerOf(env).signature_checked(signed[0], isRight);
  } else {
    // It polls because the fetch belongs to another request, and the platform lets no request await another's I/O. The module is not asked each time: a
    // stranger can make a request wait, by a token with an unknown `kid`.
    const askMs = Math.min(untilMs, Date.now() + KEYS_ASK_MS);
    do await pause(KEYS_POLL_MS);
    while (keys.isFetching && Date.now() < askMs);
  }
  return Date.now() < untilMs ? decided(decide, env, untilMs) : undefined;
}

/** Begins to fetch the JWK set if that is due. The fetch goes on to its end even if the client of this request leaves. */
function fetchKeys(env) {
  // Most deployments have no such set: spare them the call into the module.
  if (env.SEMEL_JWKS_URL === undefined) return;
  const url = routerOf(env).keys_wanted();
  if (url === undefined) return;
  keys.startedMs = Date.now();
  keys.isFetching = true;
  waitUntil(fetched(url, env));
}

/** Fetches the JWK set and hands it to the router, which is told of failures too. */
async function fetched(url, env) {
  let text;
  try {
    const signal = AbortSignal.timeout(KEYS_FETCH_MS);
    const response = await fetch(url, { headers: { accept: "application/json" }, redirect: "manual", signal });
    const body = await decodedBodyOf(response);
    if (response.status !== 200) note("warn", `the JWK set: status ${response.status}`);
    else if (body === undefined) note("warn", "the JWK set: it is too large");
    else text = new TextDecoder().decode(body);
  } catch (error) {
    note("warn", `the JWK set: ${error}`);
  }
  const fetchedMs = Date.now();
  keys.isFetching = false;
  const wrong = guarded(
    () => routerOf(env).keys_fetched(text, fetchedMs),
    () => "it crashed the module",
  );
  if (wrong === undefined) Object.assign(keys, { text, fetchedMs });
  else note("warn", wrong);
}

/** Asks the registry: all shards for a listing, otherwise the coordinator. A listing fails if one shard does, because it would be incomplete. */
function registered(head, request, env, isListing) {
  const nowMs = Date.now();
  const [method, pathname, search, lines] = head;
  const path = pathname + search;
  const list = async () => {
    const page = (shard) => within(LIST_MS, shardOf(env, shard).list(shard, path));
    const failed = (shard) => (error) => Promise.reject(new Error(`shard ${shard} of the registry: ${error.message}`));
    const pages = await Promise.all(SHARDS.map((shard) => page(shard).catch(failed(shard))));
    return routerOf(env).listed(path, pages, method, lines, nowMs, Date.now());
  };
  const change = async () => {
    const isRead = request.bodyUsed;
    const body = await bodyOf(request).catch(() => cutShort(env, method, lines, isRead));
    return Array.isArray(body) ? body : objectOf(env, "REGISTRY", "coordinator").ask(...head, body);
  };
  return isListing ? list : change;
}
