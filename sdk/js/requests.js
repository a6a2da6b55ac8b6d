// Requests as `fetch` takes them, and its answers: what is stored of the one, and made of the other.
//
// Invariant: what is stored is what is sent, byte for byte; so nothing with credentials in it is stored.

import { linesOf, toLines } from "./lines.js";

export const CHANGES = new Set(["POST", "PUT", "PATCH", "DELETE"]);
/** Statuses of outcomes with which a Response takes no body. */
const WITHOUT_BODY = [204, 205];
/** What a key takes. More would be refused for good, and hold up all that comes after it. */
const BODY_BYTES_MAX = 1 << 20;

/** Method, headers and body as `fetch` has them, but that some browsers take no stream. */
export function normalised(ownOrigin, input, init) {
  // A Response refuses what something was read of already.
  const stream = init.body instanceof ReadableStream ? new Response(init.body).body : undefined;
  const isRequest = input instanceof Request;
  const url = new URL(isRequest ? input.url : input, ownOrigin);
  const made = (more) => new Request(isRequest ? input : url, { ...init, ...more });
  const request = made(stream && { body: new Uint8Array() });
  const { origin, pathname, search } = url;
  // `fetch` writes all others in capitals, and sends it as it is: it would be no change.
  if (/^patch$/i.test(request.method) && !CHANGES.has(request.method)) throw new TypeError("semel: write PATCH");
  if (origin !== ownOrigin) throw new TypeError(`semel: ${origin} is not ${ownOrigin}`);
  return { made, request, stream, pathname, search };
}

/** What the connection says, and no request: browsers let nobody set it, and Node sends nothing that has it wrong, however often. */
export const isOfConnection = (name) => /^(connection|content-length|expect|keep-alive|transfer-encoding|upgrade)$/.test(name);

/** What is stored must hold no credentials, and nothing that the module or the connection sets itself. */
export function storable(headers) {
  for (const [name] of [...headers]) {
    if (isOfConnection(name)) headers.delete(name);
    if (/^(authorization|cookie)$/.test(name)) throw new TypeError(`semel: ${name} is for the option headers`);
    if (/^(idempotency-key$|semel-)/.test(name)) throw new TypeError(`semel: ${name} is set here`);
  }
  return toLines(headers);
}

/** The body, up to the limit: a stream may have no end. */
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
    // A request of Firefox does not show its body.
    if (!source) take(new Uint8Array(await request.arrayBuffer()));
    else for (let read; !(read = await source.read()).done; ) take(read.value);
  } finally {
    stop();
    signal?.removeEventListener("abort", stop);
  }
  // By hand: a Blob is another process's, which takes longer than to store the request.
  const body = new Uint8Array(size);
  for (const part of parts.reverse()) body.set(part, (size -= part.length));
  return body;
}

/** `Made`: what it is of. */
export function responseOf(url, [status, lines, body], Made = Response) {
  const response = new Made(WITHOUT_BODY.includes(status) ? null : body, { status, headers: linesOf(lines) });
  // As `fetch` has it; a Response that was made by hand has none.
  Object.defineProperty(response, "url", { value: url });
  return response;
}
