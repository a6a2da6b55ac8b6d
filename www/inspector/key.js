// One key: what it stores, how full it is, when its records changed, what it has sent, and its records in pages.

import { make } from "../view/element.js";
import { changesOfKey } from "./changes.js";
import { effectsOf } from "./effects.js";
import { endless } from "./list.js";
import { fragmentOf } from "./route.js";
import { showTimes } from "./times.js";
import { troubleOf } from "./trouble.js";
import { STATES, age, bytes, duration, fullness, instant, number } from "../../sdk/admin/words.js";

const PAGE = 100;
/** Above this share of a limit, the value is marked. */
const NEARLY = 0.8;
const COLUMNS = [
  ["Id", "wide"],
  ["State"],
  ["Changed", "time"],
  ["Principal", "who"],
  ["Status", "number"],
  ["Size", "number"],
];

/** Shows one key. */
export function showKey({ key, state }, context) {
  const { admin, signal } = context;
  const title = make("h1", { id: "title", tabindex: "-1" }, make("span", { class: "of" }, "Key "), make("code", {}, key));
  const body = make("div", { class: "body" }, make("p", { class: "loading", role: "status" }, "Loading…"));
  const element = make("section", { "aria-labelledby": "title" }, make("p", { class: "way" }, make("a", { href: context.keysFragment }, "Keys")), title, body);
  const load = () =>
    admin.key(key, signal).then(
      (stats) => fill(body, stats, state, context),
      (error) => signal.aborted || context.onerror(error) || body.replaceChildren(troubleOf(error, { again: load })),
    );
  load();
  return { title: key, element };
}

function fill(body, stats, state, context) {
  body.replaceChildren(
    tiles(stats),
    showTimes(stats, context),
    facts(stats),
    changesOfKey(stats.key, context),
    effectsOf(stats.key, context),
    recordsOf(stats, state, context),
  );
}

/** The records, or those in one state. The state is in the address, so that coming back from a record shows the same list. */
function recordsOf({ key, now }, first, context) {
  const heading = make("h2", { id: "records" }, "Records");
  const section = make("section", { class: "part", "aria-labelledby": "records" }, heading);
  let [last, shown] = [undefined, make("div", {})];
  const show = (state) => {
    last?.abort();
    last = new AbortController();
    const signal = AbortSignal.any([context.signal, last.signal]);
    const load = async (after) => {
      const { records, next } = await context.admin.records(key, { state, after, limit: PAGE }, signal);
      return { items: records, next };
    };
    const nothing = state ? "There are none." : "There are no records here.";
    const list = endless({ name: "records", label: "Records", columns: COLUMNS, load, cells: (record) => cellsOf(record, key, now), noun: "record", nothing, signal, onerror: context.onerror });
    // The list alone: a field that is taken out and put back loses the focus of the keyboard.
    shown.replaceWith(list);
    shown = list;
  };
  const choose = (state) => {
    context.rename({ view: "key", key, state });
    show(state);
  };
  const tools = make("div", { class: "tools" }, finder(key, context), chooser(first, choose));
  section.append(tools, shown);
  show(first);
  return section;
}

function chooser(first, choose) {
  const option = (value, text) => make("option", { value, selected: value === (first ?? "") ? "" : undefined }, text);
  const select = make("select", { id: "state" }, option("", "all"), ...Object.entries(STATES).map(([state, [word]]) => option(state, word)));
  select.addEventListener("change", () => choose(select.value || undefined));
  return make("div", { class: "toolbar" }, make("label", { class: "field inline", for: "state" }, "State"), select);
}

function tiles({ records, recordsMax, tombstones, tombstonesMax, bytes: size, bytesMax }) {
  const tile = (name, value, shown, max, most, note) => {
    const share = max > 0 ? value / max : 1;
    const bar = make("div", { class: "meter", role: "meter", "aria-label": `${name}: how full`, "aria-valuemin": "0", "aria-valuemax": String(max), "aria-valuenow": String(value), "aria-valuetext": fullness(value, max) }, make("span", {}));
    bar.firstChild.style.width = `${Math.min(100, 100 * share)}%`;
    const kind = share >= 1 ? "full" : share >= NEARLY ? "nearly" : "";
    const state = { full: ": new work is refused", nearly: ": nearly full", "": "" }[kind];
    return make("div", { class: `tile ${kind}` }, make("dt", {}, name), make("dd", { class: "big" }, shown), make("dd", { class: "note" }, bar, `${fullness(value, max)} of ${most}${state}`), make("dd", { class: "hint" }, note));
  };
  return make(
    "dl",
    { class: "tiles" },
    tile("Records", records, number(records), recordsMax, number(recordsMax), "with an outcome or in doubt, not acknowledged"),
    tile("Tombstones", tombstones, number(tombstones), tombstonesMax, number(tombstonesMax), "ids that must not run again"),
    tile("Size", size, bytes(size), bytesMax, bytes(bytesMax), "of the database, the handler's tables too"),
  );
}

function facts({ now, oldest, retentionSeconds, fence, forgottenBefore, sessions, sessionsMax, inDoubt, counters }) {
  const at = (ms) => make("time", { datetime: new Date(ms).toISOString(), title: age(ms, now) }, `${instant(ms)}, ${age(ms, now)}`);
  const rows = [
    ["Oldest record", oldest === null ? "none" : at(oldest)],
    ["Retention", retentionSeconds === null ? "for ever" : duration(retentionSeconds)],
    ["Fence", fence > 0 ? at(fence * 1000) : "not moved yet", "What was first sent before it and has no record is refused"],
    ["Forgotten before", forgottenBefore > 0 ? at(forgottenBefore * 1000) : "never"],
    ["Clock of the key", instant(now)],
  ];
  if (sessions > 0) rows.push(["Sessions", sessionsMax === undefined ? number(sessions) : `${number(sessions)}, ${fullness(sessions, sessionsMax)} of ${number(sessionsMax)}`]);
  if (inDoubt > 0) rows.push(["In doubt", number(inDoubt)]);
  const list = make("dl", { class: "facts" }, ...rows.map(([name, value, hint]) => make("div", {}, make("dt", {}, name), make("dd", {}, value, ...(hint ? [make("span", { class: "hint" }, hint)] : [])))));
  const counted = Object.entries(counters).sort(([, one], [, other]) => other - one);
  const counts = counted.length === 0 ? make("p", { class: "hint" }, "Nothing was asked since the object started.") : make("ul", { class: "counters" }, ...counted.map(([code, count]) => make("li", {}, make("span", {}, code), make("b", {}, number(count)))));
  const answers = make("div", { class: "answers" }, make("h2", {}, "Answers since the object started"), counts);
  return make("div", { class: "about" }, list, answers);
}

function cellsOf({ id, state, at, principal, status, bytes: size }, key, nowMs) {
  const time = make("time", { datetime: new Date(at).toISOString(), title: instant(at, { hasMs: true }) }, age(at, nowMs));
  const [word, what] = STATES[state] ?? [state, ""];
  return [make("a", { href: fragmentOf({ view: "record", key, id }) }, id), make("span", { class: `state ${state}`, title: what }, word), time, principal || "–", status === null ? "–" : String(status), size === null ? "–" : bytes(size)];
}

function finder(key, { go }) {
  const input = make("input", { id: "find", type: "search", autocomplete: "off", spellcheck: "false", autocapitalize: "off", placeholder: "the Idempotency-Key" });
  const form = make("form", { class: "toolbar", role: "search" }, make("label", { class: "field inline", for: "find" }, "Find an id"), input, make("button", { type: "submit" }, "Find"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    // The id may be typed as it is on the wire, in quotes, or without them.
    const [, quoted] = /^ *"(.*)" *$/.exec(input.value) ?? [];
    const id = quoted?.replace(/\\(.)/g, "$1") ?? input.value.trim();
    if (id !== "") go({ view: "record", key, id });
  });
  return form;
}
