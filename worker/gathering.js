// Groups changes of one key that arrive at an isolate together, so that they reach the key's object in one call.
//
// Invariants:
// - A change waits only if another of its key is under way. It then waits for no fixed time, but for turns of the runtime, as long as they bring more changes
//   of the key, up to a limit. All that have arrived by then go together.
// - The first change of a group makes the call for all, and finishes it even if its own client leaves. Each of the others waits in its own request, for as
//   long as its own client waits.
// - If the object says that it did nothing of a change, that change is sent by itself. If a call fails, all its changes have failed, just as if each had been
//   sent alone.
// - The state of a key is bounded, and expires by itself, because a request whose client has left ends without notice.

import { waitUntil } from "cloudflare:workers";
import { within } from "./chores.js";
import { guarded } from "./module.js";

/** The limits of one call, in changes and in bytes of heads and bodies: the object runs them in one commit, and the module's memory never shrinks. */
const CALLS_MAX = 256;
const BYTES_MAX = 1 << 20;
/** The object stops running a call's changes when their answers have this many bytes. The platform's limit is 32 MiB. */
const ANSWERS_BYTES_MAX = 4 << 20;
/** A group leaves after this many turns that brought nothing, or after this many turns in all. */
const IDLE_TURNS = 2;
const TURNS_MAX = 20;
/** For this many keys, state is kept at a time. Changes of other keys are sent alone. */
const KEYS_MAX = 1_000;

/** Whether a request may await a promise that another request settles. The runtime allows it unless the compatibility date is an old one. */
const CROSSES = globalThis.Cloudflare?.compatibilityFlags?.handle_cross_request_promise_resolution === true;

/** For each key: `calls`, those under way, each with the instant at which it is over at the latest; and `next`, the group that leaves next. */
const keys = new Map();

/**
 * Says how to send a change. Returns one of:
 * - undefined: alone, and nothing is kept of it.
 * - `{ leave }`: alone; call `leave` when it is over.
 * - `{ told }`: it is in a group. `told` resolves to the answer, or to undefined if the object did nothing of it; then send it alone.
 *
 * `objectOf()` gives a stub; `call` is the arguments of its `ask`; `untilMs` (Unix ms): until then the answer is waited for.
 */
export function placeOf(key, objectOf, call, untilMs) {
  const [method, , , lines] = call;
  const bytes = bytesOf(call);
  // A read is rolled back at its end, and would roll back the whole group. A request without an id can't be sent a second time.
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

/** Adds a change to the group that leaves next. */
function joined(key, going, objectOf, { call, bytes, untilMs }) {
  if (going.next === undefined || going.next.calls.length === CALLS_MAX || going.next.bytes + bytes > BYTES_MAX) {
    going.next = { calls: [], told: [], bytes: 0, untilMs: 0 };
    going.calls.push(going.next);
    waitUntil(led(key, going, going.next, objectOf));
  }
  const group = going.next;
  // Not `new Promise`: V8 inlines that, and then the promise does not carry its request.
  const { promise, resolve, reject } = Promise.withResolvers();
  group.calls.push(call);
  group.told.push({ resolve, reject, untilMs });
  group.bytes += bytes;
  group.untilMs = Math.max(group.untilMs, untilMs);
  return promise;
}

/** Resolves when the group is complete. Clients whose answers left together send their next changes within some turns. */
async function come({ calls }) {
  for (let turns = 0, idle = 0; turns < TURNS_MAX && idle < IDLE_TURNS; turns += 1) {
    const before = calls.length;
    await new Promise((go) => setTimeout(go, 0));
    idle = calls.length === before ? idle + 1 : 0;
  }
}

/** The size of a call. NaN if the body was too large to be read. */
const bytesOf = ([, pathname, search, lines, body]) => pathname.length + search.length + lines.length + body?.byteLength;

/** Makes the call for a group, and settles the promise of each change. Never rejects. */
async function led(key, going, group, objectOf) {
  await come(group);
  // If the group was full, changes go into a newer one already.
  if (going.next === group) going.next = undefined;
  let tell;
  try {
    const [answers, objectMs] = await within(group.untilMs - Date.now(), objectOf().askAll(group.calls));
    tell = ({ resolve }, at) => resolve(answers[at] && [...answers[at], objectMs]);
  } catch (error) {
    tell = ({ reject }) => reject(error);
  }
  const nowMs = Date.now();
  // Promises whose request has ended by now are left alone: the runtime would log a warning for each.
  for (const [at, waits] of group.told.entries()) if (waits.untilMs > nowMs) tell(waits, at);
  left(key, going, group);
}

function left(key, going, call) {
  going.calls = going.calls.filter((each) => each !== call);
  if (going.calls.length === 0 && keys.get(key) === going) keys.delete(key);
}

/** Whether calls of a key are under way. Nothing reports the end of a call whose client has left, so calls past their instant are dropped here. */
function isUnderWay(going, nowMs) {
  if (!(going.calls[0]?.untilMs > nowMs)) going.calls = going.calls.filter(({ untilMs }) => untilMs > nowMs);
  return going.calls.length > 0;
}

/** Whether there is room for one more key. Drops keys of which nothing can be under way any more. */
function hasRoom(nowMs) {
  if (keys.size < KEYS_MAX) return true;
  for (const [key, going] of keys) if (!isUnderWay(going, nowMs)) keys.delete(key);
  return keys.size < KEYS_MAX;
}

/**
 * On the object's side: runs the changes of a call. Resolves to `[answers, ms]`; an answer is undefined if nothing was done of its change. `object` brings
 * `isSuspect` and `run`; `chores` and `turns` are the object's.
 */
export async function answers(calls, object, { chores, turns }) {
  const arrivedMs = Date.now();
  const attempts = calls.map(([method, pathname, search, lines, body]) => () => [method, pathname, search, lines, body, arrivedMs, Date.now()]);
  const bytes = calls.reduce((sum, call) => sum + bytesOf(call), 0);
  const all = () => {
    // A suspect must not share a commit. Nothing is done, so each change comes again alone.
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

/** The engine's answers to attempts that it runs in one transaction, in their order. Undefined: each must run by itself. Calls `wake()` if they ran. */
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
