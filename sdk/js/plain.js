// What `fetch` would send of a call that is plain to see through, without a `Request`: its body is a stream, which takes some runtimes longer
// than all else that a call takes.
//
// Invariant: it is what `normalised` and `storable` make of the same; whatever might not be is theirs.

import { CHANGES } from "./requests.js";

/** Characters: whatever they are, a body has fewer bytes than may be stored. */
const BODY_MAX = 1 << 18;

/** Method, target, header lines, and the body as text; undefined for a call that is not plain. */
export function plain(ownOrigin, input, { method, headers = {}, body, ...more }) {
  if (![input, body].every((each) => typeof each === "string") || !CHANGES.has(method) || headers?.constructor !== Object || Object.keys(more).length) return undefined;
  const { origin, username, password, pathname, search } = new URL(input, ownOrigin);
  const [[name, type] = ["content-type", "text/plain;charset=UTF-8"], ...others] = Object.entries(headers);
  const isType = !others.length && /^content-type$/i.test(name) && /^[!-~]([ -~]*[!-~])?$/.test(type);
  return isType && body.length <= BODY_MAX && origin === ownOrigin && !(username || password) ? [method, pathname + search, `content-type:${type}\n`, body] : undefined;
}
