// Which view the inspector shows, as the fragment of its address, so that links and the back button work.
//
// Invariant: a fragment never reaches the server, and never contains the token.

import { CHOICES, STATES } from "../../sdk/admin/words.js";

/** The route that a fragment means. A fragment that means nothing is the list of keys. */
export function routeOf(fragment) {
  const values = new URLSearchParams(fragment.replace(/^#/, ""));
  const [key, id, forget, state] = ["key", "id", "forget", "state"].map((name) => values.get(name));
  if (key && id) return { view: "record", key, id };
  if (key) return { view: "key", key, ...(Object.hasOwn(STATES, state ?? "") && { state }) };
  if (forget !== null) return { view: "forget", id: forget };
  const order = ORDERS.includes(values.get("order")) ? values.get("order") : "newest";
  return { view: "keys", order, prefix: values.get("prefix") ?? "", ...(Object.hasOwn(CHOICES, state ?? "") && { state }) };
}

/** The orders of the list of keys. */
export const ORDERS = ["newest", "heaviest", "name"];

/** The shortest fragment of a route. */
export function fragmentOf({ view, key, id, state, order = "newest", prefix = "" }) {
  const values = {
    record: { key, id },
    key: { key, ...(Object.hasOwn(STATES, state ?? "") && { state }) },
    forget: { forget: id ?? "" },
    keys: { ...(order !== "newest" && { order }), ...(prefix !== "" && { prefix }), ...(state && { state }) },
  }[view];
  return `#${new URLSearchParams(values)}`;
}
