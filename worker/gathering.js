// Changes of one key that come to an isolate together go to the key's object in one call.
//
// Invariants:
// - Nothing waits where nothing of its key is under way. Where something is, a change waits for no time, only for turns of the runtime's, as long as they bring
//   more of its key, and for a bounded number of them: all that have come by then go together.
// - Who is first of them asks for all, and to the end, though its own client leave meanwhile. Each of the others waits in a request of its own, no longer than
//   its client does.
// - What the object says it has done nothing of is asked for by itself. Where a call fails, so have all that were in it, as if each had been in one of its own.
// - What is known of a key is bounded, and forgotten by itself: a request whose client leaves ends without a word.

import { waitUntil } from "cloudflare:workers";
import { within } from "./chores.js";
import { guarded } from "./module.js";

/** So many are in one call, with so many bytes of heads and bodies: the object has them in one commit, and the module's memory never shrinks. */
const CALLS_MAX = 256;
const BYTES_MAX = 1 << 20;
/** The object runs no more of a call than until its answers have so many bytes: the platform takes 32 MiB. */
const ANSWERS_BYTES_MAX = 4 << 20;
/** After so many turns that have brought no more they go, and after so many in any case. */
const IDLE_TURNS = 2;
const TURNS_MAX = 20;
/** So many keys are known at a time. Changes of others go by themselves. */
const KEYS_MAX = 1_000;

/** Whether the runtime sees to it that who waits for what another request settles goes on in its own. It does unless its day of compatibility is an old one. */
const CROSSES = globalThis.Cloudflare?.compatibilityFlags?.handle_cross_request_promise_resolution === true;

/** Of a key: the calls that are under way, each until an instant at most, and who goes together next. */
const keys = new Map();

/**
 * How a change is asked for: by itself, and then `{ leave }`, if it is known, is to be called when that is over; or with others, and then `{ told }` resolves to the
 * answer, and to undefined where the object has done nothing of it, so that it goes by itself after all. `objectOf()`: a stub; `call`: the arguments of its `ask`;
 * until then, in Unix ms, an answer is waited for.
 */
export function placeOf(key, objectOf, call, untilMs) {
  const [method, , , lines] = call;
  const bytes = bytesOf(call);
  // What reads is undone, and takes all that is in one transaction with it. Of what has no id nobody could ask again.
  const isAlone = !CROSSES || method === "GET" || method === "HEAD" || !lines.includes("idempotency-key:") || !(bytes <= BYTES_MAX);
  if (isAlone) return undefined;
  const nowMs = Date.now();
  const going = keys.get(key);
  if (going !== undefined && isUnderWay(going, nowMs)) return { told: joined(key, going, objectOf, { call, bytes, untilMs }) };
  if (!hasRoom(nowMs)) return undefined;
  const first = { untilMs };
  const its = { calls: [first], next: undefined };
  keys.set(key, its);
  return { leave: () => left(key, its, first) };
}

/** Goes along with who goes next. */
function joined(key, going, objectOf, { call, bytes, untilMs }) {
  if (going.next === undefined || going.next.calls.length === CALLS_MAX || going.next.bytes + bytes > BYTES_MAX) {
    going.next = { calls: [], told: [], bytes: 0, untilMs: 0 };
    going.calls.push(going.next);
    waitUntil(led(key, going, going.next, objectOf));
  }
  const group = going.next;
  // Made by a call: what the compiler makes of `new Promise` does not know whose request it is.
  const { promise, resolve, reject } = Promise.withResolvers();
  group.calls.push(call);
  group.told.push({ resolve, reject, untilMs });
  group.bytes += bytes;
  group.untilMs = Math.max(group.untilMs, untilMs);
  return promise;
}

/** Resolves once all have come that come together: those whose answers left together come again within some turns. */
async function come({ calls }) {
  for (let turns = 0, idle = 0; turns < TURNS_MAX && idle < IDLE_TURNS; turns += 1) {
    const before = calls.length;
    await new Promise((go) => setTimeout(go, 0));
    idle = calls.length === before ? idle + 1 : 0;
  }
}

/** How many there are in a call. A body that was too large to read is no number. */
const bytesOf = ([, pathname, search, lines, body]) => pathname.length + search.length + lines.length + body?.byteLength;

/** Asks for all who have come by then, and tells each. It never rejects. */
async function led(key, going, group, objectOf) {
  await come(group);
  if (going.next === group) going.next = undefined;
  let tell;
  try {
    const [answers, objectMs] = await within(group.untilMs - Date.now(), objectOf().askAll(group.calls));
    tell = ({ resolve }, at) => resolve(answers[at] && [...answers[at], objectMs]);
  } catch (error) {
    tell = ({ reject }) => reject(error);
  }
  const nowMs = Date.now();
  // Of each whose request has ended by then the runtime would warn in the log.
  for (const [at, waits] of group.told.entries()) if (waits.untilMs > nowMs) tell(waits, at);
  left(key, going, group);
}

function left(key, going, call) {
  going.calls = going.calls.filter((each) => each !== call);
  if (going.calls.length === 0 && keys.get(key) === going) keys.delete(key);
}

/** Of one whose caller left, or waits no longer, nobody says that it is over. */
function isUnderWay(going, nowMs) {
  if (!(going.calls[0]?.untilMs > nowMs)) going.calls = going.calls.filter(({ untilMs }) => untilMs > nowMs);
  return going.calls.length > 0;
}

/** Whether one more key may be known: those go of which nothing can be under way any more. */
function hasRoom(nowMs) {
  if (keys.size < KEYS_MAX) return true;
  for (const [key, going] of keys) if (!isUnderWay(going, nowMs)) keys.delete(key);
  return keys.size < KEYS_MAX;
}

/**
 * Resolves to the answers of an object to the calls of one for all, and how long that took, in ms. Undefined instead of an answer: nothing was done of it.
 * `object`: its `isSuspect` and `run`; `chores` and `turns` are its own.
 */
export async function answers(calls, object, { chores, turns }) {
  const arrivedMs = Date.now();
  const attempts = calls.map(([method, pathname, search, lines, body]) => () => [method, pathname, search, lines, body, arrivedMs, Date.now()]);
  const bytes = calls.reduce((sum, call) => sum + bytesOf(call), 0);
  const all = () => {
    // Who may have ended the object before is in no commit with others.
    if (attempts.some((attempt) => object.isSuspect(...attempt()))) return [];
    return turns.together((known) => eachOf(attempts, object, known), attempts, bytes);
  };
  const opening = chores.ready();
  return [await chores.during(opening ? turns.after(opening, all, bytes, calls.length) : all()), Date.now() - arrivedMs];
}

function eachOf(attempts, object, known) {
  let room = ANSWERS_BYTES_MAX;
  return attempts.map((attempt, at) => {
    if (room <= 0) return undefined;
    const answer = object.run(attempt, known?.[at]);
    room -= answer[2]?.byteLength ?? 0;
    return answer;
  });
}

/** What the engine answers to attempts in one transaction, in their order; undefined: each is to run by itself. `wake()` follows what was done. */
export function group(attempts, engine, wake) {
  const all = attempts.map((attempt) => attempt());
  const bytes = all.reduce((sum, [, , , , body]) => sum + (body?.byteLength ?? 0), 0);
  const heads = all.map((args) => `${args.slice(0, 4).join("\0")}\0`).join("");
  if (heads.length + bytes > BYTES_MAX) return undefined;
  const bodies = new Uint8Array(bytes);
  let at = 0;
  const numbers = new Float64Array(all.length * 3);
  for (const [n, [, , , , body, arrivedMs, nowMs]] of all.entries()) {
    numbers.set([body?.byteLength ?? -1, arrivedMs, nowMs], n * 3);
    if (body === undefined) continue;
    bodies.set(body, at);
    at += body.byteLength;
  }
  const answers = guarded(() => engine.group(heads, bodies, numbers));
  if (answers !== undefined) wake();
  return answers;
}
