// Request ids that are not random: the application's own, and hashes.
//
// Invariants:
// - Different requests have different hashes: parts are written with their lengths before they are hashed.
// - No id looks like that of a cancellation, which begins with `cancel-`.

import { laid } from "./bytes.js";

/** Throws if an id that the application has given is not valid. */
export function checkId(id) {
  if (typeof id !== "string" || !/^(?!cancel-)[ -~]{1,200}$/.test(id)) throw new TypeError("semel: an id has 1 to 200 characters of printable ASCII, no cancel- first");
}

/** The first 16 bytes of SHA-256 over the parts of a request: equal requests have equal ids. */
export const hashOf = async (parts) => new Uint8Array(await crypto.subtle.digest("SHA-256", laid(parts)), 0, 16);
