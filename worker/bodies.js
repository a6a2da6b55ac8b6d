// Bodies as they are read: each up to its limit, and all requests of one principal's up to another.
//
// Invariants:
// - What is past its limit is read and thrown away, up to a bound: a client that is still sending would not see its answer.
// - Of the memory that an isolate has for all, one principal's requests take a share at most, from where their bodies are read until they are answered. Small
//   ones do not count: as many as a rate lets in by itself are less than that share.
// - A request whose client leaves ends without a word: what it took is taken for free once it would have been answered.

import { valueIn } from "./lines.js";

/** The largest request body that is read. The engine has the same number, and answers 413 beyond it. */
const BODY_BYTES_MAX = 1 << 20;
const DRAINED_BYTES_MAX = 16 << 20;
/** Of a request with its head. */
const SMALL_BYTES_MAX = 4 << 10;
/** An isolate has 128 MB. */
const PRINCIPAL_BYTES_MAX = 32 << 20;
/** Past so many principals those are forgotten of which nothing is under way any more. */
const PRINCIPALS_MAX = 1_000;
/** The messages of all queues are one principal's. What is under way of them is bounded by who delivers them, and has come by then. */
const QUEUES = '"semel:queue"';

/** By principal, what of it is under way: `{ bytes, untilMs }` of each. */
const underWay = new Map();

const lengthOf = ({ headers }) => headers.get("content-length");

const asBytes = (buffer) => new Uint8Array(buffer);

/** Resolves to the bytes of a body; to undefined where it has more than allowed. */
export function bodyOf(request) {
  const length = lengthOf(request);
  // A stream costs several times as much, were it only looked at.
  return length !== null && Number(length) <= BODY_BYTES_MAX ? request.arrayBuffer().then(asBytes) : streamed(request, length);
}

/** The same of what the runtime may decode on the way, whose length then says nothing of how much it becomes. */
export const decodedBodyOf = (response) => streamed(response, null);

/**
 * Takes room for a request, whose head lines name its principal: what gives it back, or undefined where it is small. Null: its principal has none left. Nobody
 * waits for its answer past an instant in Unix ms.
 */
export function roomFor(request, lines, untilMs) {
  const length = lengthOf(request) ?? (request.body === null ? 0 : BODY_BYTES_MAX);
  const bytes = Math.min(length, BODY_BYTES_MAX) + lines.length;
  if (bytes <= SMALL_BYTES_MAX) return undefined;
  const principal = valueIn(lines, "semel-principal");
  if (principal === QUEUES) return undefined;
  const nowMs = Date.now();
  if (underWay.size > PRINCIPALS_MAX) for (const each of [...underWay.keys()]) its(each, nowMs);
  const others = its(principal, nowMs);
  if (others.reduce((sum, other) => sum + other.bytes, bytes) > PRINCIPAL_BYTES_MAX) return null;
  const taken = { bytes, untilMs };
  underWay.set(principal, [...others, taken]);
  return () => {
    taken.untilMs = 0;
    its(principal, 1);
  };
}

/** What is under way of a principal's; of one without any, nothing is kept. */
function its(principal, nowMs) {
  const left = (underWay.get(principal) ?? []).filter(({ untilMs }) => untilMs > nowMs);
  if (left.length > 0) underWay.set(principal, left);
  else underWay.delete(principal);
  return left;
}

/** Reads a body and throws it away. */
export const drained = (request) => streamed(request, lengthOf(request), 0);

async function streamed(request, length, most = BODY_BYTES_MAX) {
  if (Number(length) > DRAINED_BYTES_MAX) return undefined;
  if (request.body === null) return new Uint8Array();
  const chunks = [];
  let bytes = 0;
  for await (const chunk of request.body) {
    bytes += chunk.byteLength;
    if (bytes > DRAINED_BYTES_MAX) return undefined;
    if (bytes <= most) chunks.push(chunk);
    else chunks.length = 0;
  }
  if (bytes > most) return undefined;
  if (chunks.length === 1) return chunks[0];
  const body = new Uint8Array(bytes);
  let at = 0;
  for (const chunk of chunks) {
    body.set(chunk, at);
    at += chunk.byteLength;
  }
  return body;
}
