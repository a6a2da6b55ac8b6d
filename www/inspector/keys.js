// The list of keys: newest, heaviest or by name, all or those with a prefix.

import { make } from "../view/element.js";
import { endless } from "./list.js";
import { fragmentOf } from "./route.js";
import { age, bytes, instant, number } from "../../sdk/admin/words.js";

const ORDERS = { newest: "Newest", heaviest: "Heaviest", name: "By name" };
const PAGE = 200;
const TYPING_MS = 250;
const COLUMNS = [
  ["Key", "wide"],
  ["Records", "number"],
  ["Tombstones", "number"],
  ["Size", "number"],
  ["Created", "time"],
  ["Last report", "time"],
];

/** Shows them, as `route` says. */
export function showKeys(route, context) {
  const { admin, signal, go } = context;
  let nowMs;
  const load = async (after) => {
    const { keys, next, total } = await admin.keys({ order: route.order, prefix: route.prefix, after, limit: PAGE }, signal);
    nowMs = await admin.now(signal);
    return { items: keys, next, total };
  };
  const when = (ms) => make("time", { datetime: new Date(ms).toISOString(), title: instant(ms) }, age(ms, nowMs));
  const cells = ({ key, records, tombstones, bytes: size, created, seen }) => [
    make("a", { href: fragmentOf({ view: "key", key }) }, key),
    number(records),
    number(tombstones),
    bytes(size),
    when(created),
    when(seen),
  ];
  const nothing = route.prefix ? `No key begins with “${route.prefix}”.` : "There are no keys yet. A key is listed once it has made its first change and reported it, which takes up to a minute.";
  const list = endless({ name: "keys", label: "Keys", columns: COLUMNS, load, cells, noun: "key", nothing, signal, onerror: context.onerror });
  const element = make("section", { "aria-labelledby": "title" }, make("h1", { id: "title", tabindex: "-1" }, "Keys"), toolbar(route, go, signal), list);
  return { title: "Keys", element };
}

function toolbar(route, go, signal) {
  const orders = Object.entries(ORDERS).map(([order, text]) => {
    const link = make("a", { href: fragmentOf({ ...route, order }), "aria-current": route.order === order ? "true" : undefined }, text);
    return make("li", {}, link);
  });
  const input = make("input", { id: "prefix", type: "search", autocomplete: "off", spellcheck: "false", autocapitalize: "off", placeholder: "accounts/" });
  input.value = route.prefix;
  let timer;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    // What is typed is one place, not many: the back button leaves it.
    timer = setTimeout(() => !signal.aborted && go({ ...route, prefix: input.value }, { isSame: true }), TYPING_MS);
  });
  signal.addEventListener("abort", () => clearTimeout(timer));
  return make("div", { class: "toolbar" }, make("ul", { class: "orders", "aria-label": "Order" }, ...orders), make("label", { class: "field inline", for: "prefix" }, "Begins with"), input);
}
