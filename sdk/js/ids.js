// The id of a request, where it is not a random one.
//
// Invariants:
// - One id is of one request: its parts are laid out with their lengths before they are hashed.
// - No id looks like that of a cancellation, which has an id of its own.

import { laid } from "./bytes.js";

/** An id of the application's own. */
export function ownId(id) {
  if (typeof id !== "string" || !/^(?!cancel-)[ -~]{1,200}$/.test(id)) throw new TypeError("semel: an id has 1 to 200 characters of printable ASCII, no cancel- first");
  return id;
}

/** What the same request has again: the first 16 bytes of SHA-256 over its parts. */
export const hashOf = async (parts) => new Uint8Array(await crypto.subtle.digest("SHA-256", laid(parts)), 0, 16);
