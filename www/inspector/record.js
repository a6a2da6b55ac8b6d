// One record: its whole life, and its outcome.

import { make } from "../view/element.js";
import { changesOfRecord } from "./changes.js";
import { factsOf, lifeOf } from "../../sdk/admin/life.js";
import { formsOf } from "../../sdk/admin/outcome.js";
import { fragmentOf } from "./route.js";
import { troubleOf } from "./trouble.js";
import { STATES, age, bytes, duration, instant, number, safe } from "../../sdk/admin/words.js";

/** Shows the record of one id. */
export function showRecord({ key, id }, context) {
  const { admin, signal } = context;
  const way = make("p", { class: "way" }, make("a", { href: context.keysFragment }, "Keys"), " › ", make("a", { href: fragmentOf({ view: "key", key }) }, key));
  const title = make("h1", { id: "title", tabindex: "-1" }, make("span", { class: "of" }, "Request "), make("code", {}, id));
  const body = make("div", { class: "body" }, make("p", { class: "loading", role: "status" }, "Loading…"));
  const load = () =>
    Promise.all([admin.record(key, id, signal), admin.key(key, signal)]).then(
      ([record, { now, retentionSeconds }]) => fill(body, record, { now, retentionSeconds, key }, context),
      (error) => {
        if (signal.aborted || context.onerror(error)) return;
        body.replaceChildren(troubleOf(error, { again: load }));
        if (error.code === "not-seen") body.append(changesOfRecord(key, id, undefined, context));
      },
    );
  load();
  return { title: id, element: make("section", { "aria-labelledby": "title" }, way, title, body) };
}

function fill(body, record, { now, retentionSeconds, key }, context) {
  const [word, what] = STATES[record.state] ?? [record.state, ""];
  const facts = factsOf(record).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", { class: name === "Fingerprint" ? "print" : undefined }, value)));
  body.replaceChildren(
    make("p", { class: "stands" }, make("span", { class: `state ${record.state}` }, word), make("span", {}, what)),
    changesOfRecord(key, record.id, record, context),
    make("div", { class: "two" }, lifeSection(record, now, retentionSeconds), make("section", { class: "part" }, make("h2", {}, "Facts"), make("dl", { class: "facts" }, ...facts))),
    outcomeSection(record),
  );
}

function lifeSection(record, nowMs, retentionSeconds) {
  const items = [];
  let [last, isNowShown] = [undefined, false];
  for (const { atMs, title, detail, isAhead } of lifeOf(record, nowMs, retentionSeconds)) {
    if (isAhead && !isNowShown) {
      items.push(make("li", { class: "now" }, make("b", {}, "Now")));
      isNowShown = true;
    }
    // The time between this event and the one before.
    const gap = last === undefined || atMs - last < 1000 ? [] : [make("span", { class: "gap" }, `${duration((atMs - last) / 1000)} later`)];
    const time = make("time", { datetime: new Date(atMs).toISOString() }, `${instant(atMs)}, ${age(atMs, nowMs)}`);
    items.push(make("li", { class: isAhead ? "ahead" : "" }, make("b", {}, title, ...gap), make("span", { class: "when" }, time), make("span", { class: "hint" }, detail)));
    last = atMs;
  }
  return make("section", { class: "part", "aria-labelledby": "life" }, make("h2", { id: "life" }, "Life"), make("ol", { class: "life" }, ...items));
}

function outcomeSection({ outcome, state }) {
  const section = make("section", { class: "part outcome", "aria-labelledby": "outcome" }, make("h2", { id: "outcome" }, "Outcome"));
  if (outcome === null) {
    section.append(make("p", { class: "hint" }, state === "acknowledged" || state === "expired" ? "It is no longer kept." : "There is none."));
    return section;
  }
  const { bytes: size, cutTo, forms } = formsOf(outcome);
  const headers = Object.entries(outcome.headers);
  const list = headers.length === 0 ? make("p", { class: "hint" }, "No headers.") : make("dl", { class: "headers" }, ...headers.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  section.append(make("p", { class: "status" }, make("b", {}, `Status ${outcome.status}`), ` with ${size === 0 ? "an empty body" : `a body of ${bytes(size)}`}`), list);
  if (size > 0) section.append(bodyOf(forms));
  if (cutTo !== undefined) section.append(make("p", { class: "hint" }, `Only the first ${number(cutTo)} of ${number(size)} bytes are shown.`));
  return section;
}

/** The body in one of its forms, with a choice between them. */
function bodyOf(forms) {
  const shown = make("pre", { tabindex: "0", "aria-label": "Body" });
  const choose = (name) => {
    shown.textContent = safe(forms[name]);
    shown.dataset.form = name;
  };
  const choices = Object.keys(forms).map((name, at) => {
    const input = make("input", { type: "radio", name: "form", value: name, checked: at === 0 ? "" : undefined });
    input.addEventListener("change", () => choose(name));
    return make("label", {}, input, make("span", {}, name));
  });
  choose(Object.keys(forms)[0]);
  return make("div", { class: "content" }, make("fieldset", { class: "forms" }, make("legend", { class: "unseen" }, "Shown as"), ...choices), shown);
}
