// The Worker's side of the edge: where a request goes, and what leaves as its answer.
//
// Invariants:
// - It moves bytes between the runtime and the module, and decides nothing.
// - Every wait has a deadline.
// - A request has one line in the log at most, whoever makes it: it goes along with the answer, and is written where that leaves. So an object
//   that answers too late writes none beside the router's.
// - Who asks, and for which key, is what the router says: what a client sends under these names goes no further.
// - What has not to be waited for is done without a promise: a dozen of them, here and in the object, took a twenty-fifth of what a request by itself costs.

import { waitUntil } from "cloudflare:workers";
import { bodyOf, decodedBodyOf, drained, roomFor } from "./bodies.js";
import { within } from "./chores.js";
import { collect } from "./garbage.js";
import { linesOf, pathOf, responseOf, valueIn } from "./lines.js";
import { glue, guarded, note, perInstance, settingsOf, Table } from "./module.js";
import { objectOf, SHARDS, shardOf } from "./objects.js";
import { isSigned } from "./signatures.js";

/** A fetch of keys takes at most so long, and who waits for one looks so often. Who asks is told in so long, whatever that takes. */
const KEYS_FETCH_MS = 4_000;
const KEYS_POLL_MS = 20;
const TELLING_MS = 8_000;

/** So long each shard of the registry has for its part of a listing. */
const LIST_MS = 5_000;

/**
 * What the router alone says, and which key sends, in whatever a client sends. Only a line feed ends a line: a value may have what a pattern takes for
 * the end of one. What comes before is looked at last, which takes a quarter of the time.
 */
const ROUTERS = /semel-(?<=(?:^|\n)semel-)(?:key|principal|from):[^\n]*\n/g;

/** How changes of one key that come together are asked for together, and answered: see gathering.js. */
export let gathering;

/** A Worker in front of other code sends one after the other, and does without it. */
export function gatherBy(its) {
  gathering = its;
}

/** Reads what is executed elsewhere, by a head; resolves to what came of it. */
let reading = () => Promise.reject(new Error("nothing here reads what is executed elsewhere"));

/** A Worker in front of other code has one. */
export function readBy(its) {
  reading = its;
}

/** What a router knows and can't rebuild: rates, the last JWK set with its instant, and when its last fetch began. */
const rates = new Table();
const keys = { text: undefined, fetchedMs: 0, startedMs: undefined };

export const routerOf = perInstance((env) => {
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

/** The answer to a message of a queue, which asks for a change under a name of Semel's own; `cancels`: for the cancellation of one. */
export async function asMessage(request, env, cancels = false) {
  const lines = linesOf(request.headers);
  try {
    return left(await routed(request, lines, env, (head) => routerOf(env).route_message(...head, cancels, Date.now())));
  } catch (error) {
    return unset(error, lines, env);
  }
}

/** The answer where none could be made: a setting can't be read, say. The log has the reason. */
function unset(error, lines, env) {
  note("error", String(error));
  return left(glue.unset(settingsOf(env), lines, Date.now()));
}

/** An answer leaves, with more lines of headers, and its line of the log is written. */
export function left(answer, more) {
  const [, , , line] = answer;
  if (line !== undefined) console.log(line);
  return responseOf(answer, more);
}

/**
 * How long an answer took, as lines of headers. On Cloudflare a clock moves only while something is waited for: the object's time is that of
 * waiting for others, and no computation is in either.
 */
function timingOf([, lines, , , objectMs], arrivedMs) {
  const object = objectMs === undefined ? "" : `object;dur=${objectMs}, `;
  const origin = valueIn(lines, "access-control-allow-origin");
  const reader = origin === undefined ? "" : `timing-allow-origin:${origin}\n`;
  return `server-timing:${object}total;dur=${Date.now() - arrivedMs}\n${reader}`;
}

/**
 * Resolves to what `ask` resolves to; to the answer `unavailable` where that does not come in time, or fails. What it goes on to do is
 * its own commit. `head`: the method and the header lines of who asks.
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

/** An answer, or what resolves to one; a response where it opens a socket. */
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
  if (key !== null && asker === "") return opened(request, lines, env, route);
  const head = [method, pathname, search, lines.replace(ROUTERS, "") + says];
  const byObject = () => asked(request, env, [key, head, asker], Date.now() + waitMs);
  if (acknowledges !== undefined) return answerOf(env, [method, lines], () => readElsewhere(head, env, acknowledges ? byObject : undefined), waitMs);
  const ask = key === null ? registered(head, request, env, asker) : byObject;
  return answerOf(env, [method, lines], ask, waitMs);
}

/** A read that no object has a part in, but for what comes along with it. */
async function readElsewhere(head, env, before) {
  const arrivedMs = Date.now();
  const [, told = ""] = (await before?.()) ?? [];
  const ended = await reading(head, env);
  const [method, , , lines] = head;
  const [status, own, ...rest] = routerOf(env).read(ended, method, lines, arrivedMs, Date.now());
  // That what was acknowledged with it was: its client would acknowledge it again and again.
  const key = valueIn(told, "semel-key");
  return [status, key === undefined ? own : `${own}semel-key:${key}\n`, ...rest];
}

/** Asks the object of a key; a batch by itself, all else with others of its key where there are any. Each function that waits is one promise more: there is one. */
async function asked(request, env, [key, head, asker], untilMs) {
  const [method, , , lines] = head;
  const leave = roomFor(request, lines, untilMs);
  if (leave === null) {
    await drained(request);
    return routerOf(env).unavailable("too much of this principal is under way", undefined, method, lines, Date.now(), Date.now());
  }
  let place;
  try {
    const call = [...head, await bodyOf(request), asker];
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

/** Opens a socket to the object, which refuses only for want of room. */
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

/** What is decided; or, where that takes a signature to be checked, or keys that are not there yet, what resolves to it, until then at most. Undefined: it took longer. */
export function decided(decide, env, untilMs = Date.now() + TELLING_MS) {
  const decision = decide();
  fetchKeys(env);
  return decision[0] === undefined ? decidedLater(decide, env, Math.min(untilMs, Date.now() + decision[1])) : decision;
}

/** No caller waits past its deadline, whoever is slow. */
async function decidedLater(decide, env, untilMs) {
  const signed = routerOf(env).signature_wanted();
  if (signed) {
    const isRight = await isSigned(signed);
    // The next to ask is who waits for it: here, with nothing in between.
    routerOf(env).signature_checked(signed[0], isRight);
  } else {
    // Not for the promise of the fetch: it is another request's.
    await pause(KEYS_POLL_MS);
  }
  return Date.now() < untilMs ? decided(decide, env, untilMs) : undefined;
}

/** Has the JWK set fetched, if that is due: beside the request, and to the end even if its caller leaves. */
function fetchKeys(env) {
  // Most have none, and need not ask the module.
  if (env.SEMEL_JWKS_URL === undefined) return;
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
    const body = await decodedBodyOf(response);
    if (response.status !== 200) note("warn", `the JWK set: status ${response.status}`);
    else if (body === undefined) note("warn", "the JWK set: it is too large");
    else text = new TextDecoder().decode(body);
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
  return isListing ? list : async () => objectOf(env, "REGISTRY", "coordinator").ask(...head, await bodyOf(request));
}
