// Reads bodies, with a limit for each and a limit for all requests of a principal together.
//
// Invariants:
// - A body past its limit is read to its end and thrown away, up to a bound, because a client that is still sending would not see its answer.
// - The requests of one principal take at most a share of the isolate's memory, from when their bodies are read until they are answered. Small requests
//   are not counted: as many as a rate allows need less than that share.
// - A request whose client has left ends without notice. Its memory counts as free once the time for its answer is over.

import { valueIn } from "./lines.js";

/** The largest request body that is read. The engine has the same number, and answers 413 beyond it. */
const BODY_BYTES_MAX = 1 << 20;
const DRAINED_BYTES_MAX = 16 << 20;
/** A request of at most this size, with its head, is small. */
const SMALL_BYTES_MAX = 4 << 10;
/** The share of one principal. An isolate has 128 MB. */
const PRINCIPAL_BYTES_MAX = 32 << 20;
/** Beyond this number, principals of which nothing is under way are forgotten. */
const PRINCIPALS_MAX = 1_000;
/** The principal of all messages of queues. The consumer limits how many are under way, and their bodies are in memory already. */
const QUEUES = '"semel:queue"';

/** For each principal, its requests under way: `{ bytes, untilMs }`. */
const underWay = new Map();

const lengthOf = ({ headers }) => headers.get("content-length");

const asBytes = (buffer) => new Uint8Array(buffer);

/** Resolves to the bytes of a body; to undefined if it is too large. */
export function bodyOf(request) {
  const length = lengthOf(request);
  // Touching `request.body` makes a stream, which costs several times as much.
  return length !== null && Number(length) <= BODY_BYTES_MAX ? request.arrayBuffer().then(asBytes) : streamed(request, length);
}

/** The same for a response. The runtime may decode its body, so `Content-Length` does not tell the size. */
export const decodedBodyOf = (response) => streamed(response, null);

/**
 * Takes room for a request whose header lines name its principal. Returns a function that gives the room back, undefined if the request is small, or null if
 * its principal has no room left. After `untilMs` (Unix ms) nobody waits for the answer any more.
 */
export function roomFor(request, lines, untilMs) {
  const length = lengthOf(request) ?? (request.body === null ? 0 : BODY_BYTES_MAX);
  const bytes = Math.min(length, BODY_BYTES_MAX) + lines.length;
  if (bytes <= SMALL_BYTES_MAX) return undefined;
  const principal = valueIn(lines, "semel-principal");
  if (principal === QUEUES) return undefined;
  const nowMs = Date.now();
  // Not each time: it looks at all of them.
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

/** A principal's requests under way. Forgets those that are over, and a principal without any. */
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
  // Nearly all bodies are one chunk, and need no copy.
  if (chunks.length === 1) return chunks[0];
  const body = new Uint8Array(bytes);
  let at = 0;
  for (const chunk of chunks) {
    body.set(chunk, at);
    at += chunk.byteLength;
  }
  return body;
}
