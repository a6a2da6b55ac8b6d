// Converts what `fetch` takes to what is stored, and recorded answers to Responses.
//
// Invariant: a request is sent exactly as it is stored, byte for byte. So nothing that contains credentials is stored.

import { linesOf, toLines } from "./lines.js";

export const CHANGES = new Set(["POST", "PUT", "PATCH", "DELETE"]);
/** Statuses of outcomes for which a Response must have no body. */
const WITHOUT_BODY = [204, 205];
/** The largest body that a key takes. A larger one would be refused for good, and hold up all later requests. */
const BODY_BYTES_MAX = 1 << 20;

/** Keeps what has a signal for as long as there is the signal: Node aborts the signal of a Request that others abort only while there is the Request. */
export const holders = new WeakMap();

/** The members of `init`, also those that it inherits: it may be a Request, which has no members of its own. */
export function membersIn(init) {
  const members = {};
  for (const name in init) members[name] = init[name];
  return members;
}

/** Method, headers and body as `fetch` would read them. A stream is kept apart, because some browsers can't put one into a Request. */
export function normalised(ownOrigin, input, init) {
  // Through a Response, which throws if part of the stream was read already.
  const stream = init.body instanceof ReadableStream ? new Response(init.body).body : undefined;
  const isRequest = input instanceof Request;
  const url = new URL(isRequest ? input.url : input, ownOrigin);
  const made = (more) => new Request(isRequest ? input : url, { ...init, ...more });
  const request = made(stream && { body: new Uint8Array() });
  const { origin, pathname, search } = url;
  // `fetch` writes the other methods in capitals, but not "patch": sent like that, it would not be protected.
  if (/^patch$/i.test(request.method) && !CHANGES.has(request.method)) throw new TypeError("semel: write PATCH");
  if (origin !== ownOrigin) throw new TypeError(`semel: ${origin} is not ${ownOrigin}`);
  return { made, request, stream, pathname, search };
}

/** Headers of the connection. Browsers don't let pages set them, and Node fails each time if one is wrong. */
export const isOfConnection = (name) => /^(connection|content-length|expect|keep-alive|transfer-encoding|upgrade)$/.test(name);

/** The header lines to store. Removes headers of the connection; throws for credentials, and for headers that the SDK sets. */
export function storable(headers) {
  for (const [name] of [...headers]) {
    if (isOfConnection(name)) headers.delete(name);
    if (/^(authorization|cookie)$/.test(name)) throw new TypeError(`semel: ${name} is for the option headers`);
    if (/^(idempotency-key$|semel-)/.test(name)) throw new TypeError(`semel: ${name} is for the option id or key`);
  }
  return toLines(headers);
}

/** Reads the body, up to the limit: a stream may be endless. */
export async function bodyOf(request, signal, stream = request.body) {
  const parts = [];
  let size = 0;
  const take = (part) => {
    if (part?.BYTES_PER_ELEMENT !== 1) throw new TypeError("semel: a stream is of Uint8Arrays");
    parts.push(part);
    size += part.length;
    if (size > BODY_BYTES_MAX) throw new RangeError(`semel: a body has at most ${BODY_BYTES_MAX} bytes`);
  };
  const source = stream?.getReader();
  const stop = () => source?.cancel().catch(() => {});
  signal?.addEventListener("abort", stop);
  try {
    // Firefox has no `Request.body`.
    if (!source) take(new Uint8Array(await request.arrayBuffer()));
    else for (let read; !(read = await source.read()).done; ) take(read.value);
  } finally {
    stop();
    signal?.removeEventListener("abort", stop);
  }
  // Joined by hand: a Blob lives in another process, and takes longer than storing the request.
  const body = new Uint8Array(size);
  for (const part of parts.reverse()) body.set(part, (size -= part.length));
  return body;
}

/** Makes the Response of an outcome. `Made`: its class. */
export function responseOf(url, [status, lines, body], Made = Response) {
  const response = new Made(WITHOUT_BODY.includes(status) ? null : body, { status, headers: linesOf(lines) });
  // Set as `fetch` does; a Response that a script makes has an empty one.
  Object.defineProperty(response, "url", { value: url });
  return response;
}
