// `fetch`, for the attempts of the machine.
//
// Invariants:
// - A redirect is never followed. An answer counts only once it is read to its end. One that broke off within its head has no
//   end: over plain HTTP, browsers take what came of the head for all of it, and the answer for one without a body.
// - The application's own headers are computed for this attempt and stored nowhere. They change nothing of what makes the
//   request: neither the protocol's headers nor the body's type.

import { textOf } from "./bytes.js";
import { linesOf, toLines } from "./lines.js";
import { isOfConnection } from "./requests.js";

/** What the headers option must not set. */
const isReserved = (name) => isOfConnection(name) || /^(content-(type|encoding)$|idempotency-key$|semel-)/.test(name);

/** Sends, and resolves to `[status, header lines, body, member lines]`. `leaves` is told what is given to `fetch`. */
export async function send({ origin, headers, fetch }, [method, target, lines, body], signal, leaves) {
  const all = new Headers(await given(headers));
  // The attempt may be over by now.
  signal.throwIfAborted();
  for (const [name] of [...all]) if (isReserved(name)) all.delete(name);
  // The request's own win over the option's.
  for (const [name, value] of linesOf(lines)) all.set(name, value);
  const init = { method, headers: all, redirect: "manual", signal };
  // Health alone is read: what a cache of whatever kind has kept, a service worker's say, would tell the clock of another day.
  if (method === "GET") target += "?" + Math.random();
  else init.body = body;
  leaves([origin + target, init]);
  const response = await fetch(origin + target, init);
  const answer = new Uint8Array(await response.arrayBuffer());
  const said = (name) => response.headers.get(name);
  // An answer of somebody else's counts as none. It is told as one that was lost: else a wrong address would look like a slow server.
  // An empty body that is encoded has some bytes: gzip makes 20 of it.
  if (!said("semel-status") || (!answer.length && said("content-length") > (said("content-encoding") ? 20 : 0))) throw new TypeError("no answer of Semel's");
  return [response.status, toLines(response.headers), answer, membersOf(target, said("content-type"), answer)];
}

/** The headers option: a value, or a function that is asked for each attempt. */
export const given = async (headers) => (typeof headers === "function" ? headers() : headers);

/** Of a problem, or an answer to a control request: the members of the JSON object that are strings or numbers. */
export function membersOf(target, type, body) {
  if (!type?.startsWith("application/problem+json") && !target.startsWith("/semel/")) return "";
  try {
    const members = Object.entries(JSON.parse(textOf(body)));
    return toLines(members.filter(([, value]) => typeof value !== "object").map(([name, value]) => [name, `${value}`.replace(/\s+/g, " ")]));
  } catch {
    return "";
  }
}
