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
  return length !== null && Number(length) <= BODY_BYTES_MAX ? request.arrayBuffer().then(asBytes) : streamed(request, BODY_BYTES_MAX);
}

/** The same for a response. The runtime may decode its body, so `Content-Length` does not tell the size. */
export const decodedBodyOf = ({ body }) => whole(body, BODY_BYTES_MAX);

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
export const drained = (request) => streamed(request, 0);

async function streamed(request, most) {
  return Number(lengthOf(request)) > DRAINED_BYTES_MAX ? undefined : whole(request.body, most, DRAINED_BYTES_MAX);
}

/**
 * Resolves to the bytes of a stream; to undefined if they are more than `most`, of which it reads no more than `readMost`. Only what is in the bytes is kept:
 * a chunk of one byte is a view of kilobytes, so that a few thousand of them would take tens of megabytes.
 */
export async function whole(stream, most, readMost = most) {
  let all = new Uint8Array();
  let bytes = 0;
  for await (const chunk of stream ?? []) {
    const at = bytes;
    bytes += chunk.byteLength;
    if (bytes > readMost) return undefined;
    // Nearly all bodies are one chunk, and need no copy.
    if (at === 0) all = chunk;
    else if (bytes > most) all = undefined;
    else {
      if (bytes > all.byteLength) {
        const larger = new Uint8Array(2 * bytes);
        larger.set(all.subarray(0, at));
        all = larger;
      }
      all.set(chunk, at);
    }
  }
  if (bytes > most) return undefined;
  return all.byteLength === bytes ? all : all.slice(0, bytes);
}
