// The list of keys: newest, heaviest or by name; all of them, those with a prefix, or those with something in doubt or parked.

import { make } from "../view/element.js";
import { endless } from "./list.js";
import { fragmentOf } from "./route.js";
import { CHOICES, age, bytes, instant, number } from "../../sdk/admin/words.js";

const ORDERS = { newest: "Newest", heaviest: "Heaviest", name: "By name" };
const ALL = { member: "tombstones", name: "Tombstones" };
const PAGE = 200;
const TYPING_MS = 250;
const columnsOf = (name) => [
  ["Key", "wide"],
  ["Records", "number"],
  [name, "number"],
  ["Size", "number"],
  ["Created", "time"],
  ["Last report", "time"],
];

/** Shows the keys that `route` asks for. */
export function showKeys(route, context) {
  const { admin, signal, go } = context;
  const { order, prefix, state } = route;
  const { member, name, none } = CHOICES[state] ?? ALL;
  let nowMs;
  const load = async (after) => {
    const { keys, next, total } = await admin.keys({ order, prefix, state, after, limit: PAGE }, signal);
    nowMs = await admin.now(signal);
    return { items: keys, next, total };
  };
  const when = (ms) => make("time", { datetime: new Date(ms).toISOString(), title: instant(ms) }, age(ms, nowMs));
  const cells = ({ key, records, bytes: size, created, seen, ...counts }) => [
    make("a", { href: fragmentOf({ view: "key", key, state }) }, key),
    number(records),
    number(counts[member]),
    bytes(size),
    when(created),
    when(seen),
  ];
  const nothing = state ? `${none} at ${prefix ? `a key that begins with “${prefix}”` : "any key"}, by the last report of each key.` : prefix ? `No key begins with “${prefix}”.` : "There are no keys yet. A key is listed once it has made its first change and reported it, which takes up to a minute.";
  const list = endless({ name: "keys", label: "Keys", columns: columnsOf(name), load, cells, noun: "key", nothing, signal, onerror: context.onerror });
  const element = make("section", { "aria-labelledby": "title" }, make("h1", { id: "title", tabindex: "-1" }, "Keys"), toolbar(route, go, signal), list);
  return { title: "Keys", element };
}

function toolbar(route, go, signal) {
  const link = (change, text, isCurrent) => make("li", {}, make("a", { href: fragmentOf({ ...route, ...change }), "aria-current": isCurrent ? "true" : undefined }, text));
  const orders = Object.entries(ORDERS).map(([order, text]) => link({ order }, text, route.order === order));
  const states = [[undefined, { name: "All" }], ...Object.entries(CHOICES)].map(([state, { name }]) => link({ state }, name, route.state === state));
  const input = make("input", { id: "prefix", type: "search", autocomplete: "off", spellcheck: "false", autocapitalize: "off", placeholder: "accounts/" });
  input.value = route.prefix;
  let timer;
  const typed = ({ isComposing }) => {
    clearTimeout(timer);
    // All that is typed is one entry of the history, so the back button leaves it at once. Text that an input method still composes is not used yet:
    // showing another view would break it off.
    if (!isComposing) timer = setTimeout(() => !signal.aborted && go({ ...route, prefix: input.value }, { isSame: true }), TYPING_MS);
  };
  input.addEventListener("input", typed);
  input.addEventListener("compositionstart", () => clearTimeout(timer));
  input.addEventListener("compositionend", typed);
  signal.addEventListener("abort", () => clearTimeout(timer));
  return make("div", { class: "toolbar" }, make("ul", { class: "orders", "aria-label": "Order" }, ...orders), make("ul", { class: "orders", "aria-label": "State" }, ...states), make("div", { class: "named" }, make("label", { class: "field inline", for: "prefix" }, "Begins with"), input));
}
