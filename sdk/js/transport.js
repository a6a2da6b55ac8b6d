// Makes one attempt with `fetch`.
//
// Invariants:
// - Redirects are never followed. An answer counts only when it was read to its end. If a connection breaks within the head of an answer, browsers take the
//   part that came for the whole head and see no body (over plain HTTP): such an answer does not count either.
// - The application's own headers are computed for this attempt and stored nowhere. They can change neither the protocol's headers nor the body's type.

import { textOf } from "./bytes.js";
import { linesOf, toLines } from "./lines.js";
import { isOfConnection } from "./requests.js";

/** Headers that the option `headers` must not set. */
const isReserved = (name) => isOfConnection(name) || /^(content-(type|encoding)$|idempotency-key$|semel-)/.test(name);

/** Sends a request. Resolves to `[status, header lines, body, member lines]`. `leaves` is called with the arguments of `fetch`. */
export async function send({ origin, headers, fetch }, [method, target, lines, body], signal, leaves) {
  const all = new Headers(await given(headers));
  // The attempt may have been aborted meanwhile.
  signal.throwIfAborted();
  for (const [name] of [...all]) if (isReserved(name)) all.delete(name);
  // The request's own headers override the option's.
  for (const [name, value] of linesOf(lines)) all.set(name, value);
  const init = { method, headers: all, redirect: "manual", signal };
  // The only GET is the health request, which tells the server's clock. No cache, such as a service worker's, may answer it with an old instant.
  if (method === "GET") target += "?" + Math.random();
  else init.body = body;
  leaves([origin + target, init]);
  const response = await fetch(origin + target, init);
  const answer = new Uint8Array(await response.arrayBuffer());
  const said = (name) => response.headers.get(name);
  // Somebody else's answer does not count. It is reported as lost; otherwise a wrong address would look like a slow server. The length finds bodies that are
  // missing; an empty body that is encoded has some bytes, 20 with gzip.
  if (!said("semel-status") || (!answer.length && said("content-length") > (said("content-encoding") ? 20 : 0))) throw new TypeError("no answer of Semel's");
  return [response.status, toLines(response.headers), answer, membersOf(target, said("content-type"), answer)];
}

/** The value of an option that may be a function, which is called for each attempt or call. */
export const given = (option) => (typeof option === "function" ? option() : option);

/** The members that are strings or numbers, as lines, of a problem or of the answer to a control request. */
export function membersOf(target, type, body) {
  if (!type?.startsWith("application/problem+json") && !target.startsWith("/semel/")) return "";
  try {
    const members = Object.entries(JSON.parse(textOf(body)));
    return toLines(members.filter(([, value]) => typeof value !== "object").map(([name, value]) => [name, `${value}`.replace(/\s+/g, " ")]));
  } catch {
    return "";
  }
}
