// Reads simple calls without making a `Request`, whose body is a stream: in some runtimes that takes longer than everything else of a call.
//
// Invariant: the result is the same as that of `normalised` and `storable`. Calls for which it might differ are left to those.

import { CHANGES } from "./requests.js";

/** In characters: whatever they are, such a body has fewer bytes than the limit for bodies. */
const BODY_MAX = 1 << 18;

/** `[method, target, header lines, body as text]`; undefined if the call is not simple. */
export function plain(ownOrigin, input, { method, headers = {}, body, ...more }) {
  if (![input, body].every((each) => typeof each === "string") || !CHANGES.has(method) || headers?.constructor !== Object || Object.keys(more).length) return undefined;
  const { origin, username, password, pathname, search } = new URL(input, ownOrigin);
  const [[name, type] = ["content-type", "text/plain;charset=UTF-8"], ...others] = Object.entries(headers);
  const isType = !others.length && /^content-type$/i.test(name) && /^[!-~]([ -~]*[!-~])?$/.test(type);
  return isType && body.length <= BODY_MAX && origin === ownOrigin && !(username || password) ? [method, pathname + search, `content-type:${type}\n`, body] : undefined;
}
