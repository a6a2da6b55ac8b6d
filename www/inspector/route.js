// Where the inspector is, as the fragment of its address: so that the back button and links work.
//
// Invariant: a fragment never reaches the server, and the token is never in it.

import { CHOICES, STATES } from "../../sdk/admin/words.js";

/** The route that a fragment means. One that means nothing is the list of keys. */
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

/** The fragment of a route, the shortest. */
export function fragmentOf({ view, key, id, state, order = "newest", prefix = "" }) {
  const values = {
    record: { key, id },
    key: { key, ...(Object.hasOwn(STATES, state ?? "") && { state }) },
    forget: { forget: id ?? "" },
    keys: { ...(order !== "newest" && { order }), ...(prefix !== "" && { prefix }), ...(state && { state }) },
  }[view];
  return `#${new URLSearchParams(values)}`;
}
