// What a key has sent to others that has not arrived yet: what waits, what was refused for good, and what can be done about either.
//
// Invariants:
// - For a key whose handler has never sent anything, nothing of this is shown.
// - The page shows one look at the key. Mending one request changes exactly that request, or nothing. After it, or when somebody asks, the key is
//   looked at again.

import { make, say } from "../view/element.js";
import { confirmChange } from "./confirm.js";
import { fragmentOf } from "./route.js";
import { troubleOf } from "./trouble.js";
import { age, bytes, instant, lanesShown, number } from "../../sdk/admin/words.js";

const PAGE = 50;

/** The section for a key. */
export function effectsOf(key, context) {
  const { admin, signal } = context;
  const heading = make("h2", { id: "effects", tabindex: "-1" }, "Sent to others");
  const again = make("button", { type: "button" }, "Look again");
  const told = make("p", { class: "count", role: "status" });
  const lanes = make("ul", { class: "effects", "aria-label": "What waits" });
  const parked = make("ul", { class: "effects", "aria-label": "Refused for good" });
  const more = make("button", { type: "button", hidden: "" }, "Show more");
  const trouble = make("div", {});
  const element = make("section", { class: "part", "aria-labelledby": "effects", hidden: "" }, make("div", { class: "toolbar" }, heading, again), trouble, told, lanes, parked, more);
  let [next, asked] = [undefined, 0];

  /** Asks for the first page, or for the page after `after`. */
  async function load(after) {
    const mine = (asked += 1);
    try {
      const [page, nowMs] = await Promise.all([admin.effects(key, { after, limit: PAGE }, signal), admin.now(signal)]);
      if (mine === asked) fill(page, nowMs, after);
    } catch (error) {
      // Not found: the key's handler has sent nothing, which is no news to somebody who looks at a key.
      if (signal.aborted || mine !== asked || error.code === "not-found" || context.onerror(error)) return;
      element.hidden = false;
      trouble.replaceChildren(troubleOf(error, { again: () => load(after) }));
    }
  }

  function fill(page, nowMs, after) {
    const refused = page.parked ?? [];
    trouble.replaceChildren();
    if (after === undefined) {
      element.hidden = page.lanes === undefined;
      lanes.replaceChildren(...(page.lanes ?? []).map((lane) => laneOf(lane, nowMs, mend)));
      parked.replaceChildren();
      say(told, words(page));
    }
    parked.append(...refused.map((one) => parkedOf(one, nowMs, mend)));
    lanes.hidden = lanes.childElementCount === 0;
    parked.hidden = parked.childElementCount === 0;
    next = page.next ?? undefined;
    more.hidden = next === undefined;
  }

  /** Asks, mends, and looks again, because the list may have changed. */
  async function mend(mending, id, question) {
    const run = (change) =>
      admin.mendEffect(key, mending, id, change).catch((error) => {
        if (error.code === "not-seen") error.code = "effect-gone";
        throw error;
      });
    if (!(await confirmChange(context, { ...question, run, told: ({ state }) => MENDED[state] }))) return;
    await load();
    heading.focus();
  }

  again.addEventListener("click", () => load());
  more.addEventListener("click", () => load(next));
  load();
  return element;
}

function words({ count, max, lanes = [] }) {
  if (count === 0) return "Nothing waits, and nothing is parked.";
  return `${number(count)} of at most ${number(max)}: what waits, and what was refused for good.${lanesShown(lanes)}`;
}

const MENDED = {
  waiting: "It is sent again, as a new one, behind all that waits.",
  dropped: "It is dropped.",
  closing: "It is given up, once the other key has said that it never runs there.",
  parked: "It is given up, and parked.",
};

/** The card for one key or origin: its first waiting request, and how many wait. */
function laneOf({ to, waiting, attempts, next, closing, reason, at, ...request }, nowMs, mend) {
  const tried = attempts === 0 ? "not tried since the object started" : `tried ${attempts === 1 ? "once" : `${number(attempts)} times`}${next === null ? ", under way" : `, again ${age(next, nowMs)}`}`;
  const park = () =>
    mend("park", request.id, {
      title: "Give up the first?",
      says: [
        isKey(to)
          ? "Its place is closed at the other key first, so that it can't run there later. If it has run there already, that is its outcome."
          : "A call that is under way can't be taken back: it may have had its effect, or may still have it.",
        "Then it is parked, from where it can be sent again, and those behind it go on.",
      ],
      verb: "Give it up",
    });
  const facts = [`${number(waiting)} waiting`, timeOf("the first stored", at, nowMs), tried];
  const why = closing ? `Being given up: ${closing}` : reason;
  return cardOf("waiting", { to, facts, request, why, buttons: closing ? [] : [button("Give up the first…", park, "danger")] });
}

function parkedOf({ to, parked, executed, reason, ...request }, nowMs, mend) {
  const again = () => mend("retry", request.id, { title: "Send it again?", says: ["It goes as a new request, behind all that waits for the same.", AGAIN[isKey(to) ? executed : "call"]], verb: "Send it again" });
  const drop = () => mend("drop", request.id, { title: "Drop it?", says: ["The request is thrown away, and can't be had back: nobody sends it any more.", "What came of it so far stays as it is."], verb: "Drop it" });
  const facts = [timeOf("refused", parked, nowMs), RAN[executed] ?? RAN.unknown];
  return cardOf("parked", { to, facts, request, why: reason, buttons: [button("Send it again…", again), button("Drop it…", drop, "danger")] });
}

/** Whether the refused request ran, in words. */
const RAN = { yes: "it ran, and was answered so", no: "it has not run", unknown: "it may have run" };

/** What sending it again means, by what is known about it. */
const AGAIN = {
  no: "It has not run, so it then runs once.",
  yes: "The handler there ran, and refused it. It is asked once more.",
  unknown: "It may have run. If it has, it then runs a second time.",
  call: "It has the same Idempotency-Key as before. Whether it counts once is for the other side.",
};

function cardOf(kind, { to, facts, request: { method, url, bytes: size, id }, why, buttons }) {
  const target = isKey(to) ? make("a", { href: fragmentOf({ view: "key", key: nameOf(to) }) }, nameOf(to)) : nameOf(to);
  const card = make("li", { class: kind }, make("h3", {}, target), make("p", { class: "hint" }, ...facts.flatMap((fact, at) => (at === 0 ? [fact] : [" · ", fact]))));
  card.append(make("p", { class: "asked" }, make("code", {}, `${method} ${url}`), make("span", { class: "hint" }, ` ${size === 0 ? "no body" : bytes(size)}, id ${id}`)));
  if (why) card.append(make("p", { class: "why" }, why));
  if (buttons.length > 0) card.append(make("div", { class: "changes" }, ...buttons));
  return card;
}

const isKey = (to) => to.startsWith("key ");
/** The name without the word that says what it is. */
const nameOf = (to) => to.replace(/^(key|url) /, "");

function timeOf(what, ms, nowMs) {
  return make("time", { datetime: new Date(ms).toISOString(), title: instant(ms) }, `${what} ${age(ms, nowMs)}`);
}

function button(text, onclick, kind) {
  const element = make("button", { type: "button", class: kind }, text);
  element.addEventListener("click", onclick);
  return element;
}
