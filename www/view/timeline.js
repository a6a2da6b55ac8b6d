// The timeline: a row for each click, with each attempt of both clients at its time, and with its fate.
//
// Invariants:
// - Every colour and sign has a text: a title for the mouse, and words for a screen reader.
// - New rows come at the end, and marks move by transforms, so that nothing on the page shifts.
// - A reader who has scrolled up stays there; one at the end follows.

import { COUNTED, laneOf } from "../lab/model.js";
import { $, glyph, make, say, seconds } from "./element.js";

const LANES = ["naive", "semel"];
const MARK_PX = 18;
const COUNT_PX = 22;
/** The axis of all rows, in seconds since the click: the shortest of these lengths that shows all. */
const AXIS_S = [2, 3, 5, 8, 12, 20, 30];

export class Timeline {
  #rows = new Map();
  #axisMs = AXIS_S[0] * 1000;
  #startMs;
  #trackPx = 0;
  #scroll = $("scroll");
  #body = $("rows");

  constructor() {
    $("wrong").addEventListener("change", ({ target }) => this.#body.classList.toggle("only-wrong", target.checked));
    new ResizeObserver(() => this.#measure()).observe(this.#scroll);
  }

  /** Draws the clicks of `dirty` anew. `attemptsOf` gives the attempts of a click, by lane. */
  show({ clicks, dirty, attemptsOf, logged, tab, nowMs }) {
    const follows = this.#scroll.scrollTop + this.#scroll.clientHeight >= this.#scroll.scrollHeight - 40;
    for (const n of [...dirty].sort((one, other) => one - other)) {
      const click = clicks.get(n);
      const row = this.#rows.get(n) ?? this.#begin(click, tab);
      const attempts = attemptsOf(n);
      for (const lane of LANES) row.lanes[lane].model = laneOf(click, lane, attempts[lane], logged, nowMs);
      row.isNew = true;
    }
    if (this.#trackPx === 0) this.#measure();
    if (this.#stretch()) for (const row of this.#rows.values()) row.isNew = true;
    for (const row of this.#rows.values()) if (row.isNew) this.#draw(row);
    if (follows && dirty.size > 0) this.#scroll.scrollTop = this.#scroll.scrollHeight;
  }

  /** Shows an event of a page or of the server, in a row of its own. */
  tell({ at, atMs, text }) {
    this.#insert(make("tr", { class: "event", "data-at": at, "data-ms": atMs }, make("td", { colspan: 3 }, text)), atMs);
  }

  #begin(click, tab) {
    $("empty").hidden = true;
    this.#startMs ??= click.atMs;
    const where = click.tab === tab ? "" : `, tab ${click.tab}`;
    const head = make("th", { scope: "row" }, `${click.n} `, make("small", {}, `${seconds(Math.max(0, click.atMs - this.#startMs))}${where}`));
    const lanes = {};
    for (const lane of LANES) {
      const track = make("ol", { class: "track" });
      const result = make("span", { class: "result" });
      lanes[lane] = { track, result, cell: make("td", { class: "lane", "data-lane": lane }, make("div", {}, track, result)) };
    }
    const element = make("tr", { "data-click": click.n, "data-ms": click.atMs }, head, lanes.naive.cell, lanes.semel.cell);
    this.#insert(element, click.atMs);
    const row = { element, click, lanes };
    this.#rows.set(click.n, row);
    return row;
  }

  /** Inserts a row in the order of time; usually at the end. */
  #insert(element, atMs) {
    let after = this.#body.lastElementChild;
    while (after && Number(after.dataset.ms) > atMs) after = after.previousElementSibling;
    if (after) after.after(element);
    else this.#body.prepend(element);
  }

  #draw(row) {
    row.isNew = false;
    let isWrong = false;
    for (const lane of LANES) {
      const { track, result, cell, model } = row.lanes[lane];
      track.replaceChildren(...this.#track(this.#place(model.marks, row.click.atMs)));
      say(result, model.result.text);
      cell.dataset.kind = model.result.kind;
      cell.dataset.executed = model.executed;
      isWrong ||= model.result.kind === "wrong";
    }
    row.element.classList.toggle("fine", !isWrong);
  }

  /** Places each mark at its time, or as near as its neighbours leave room. Marks that find no room at all become one mark with a count. */
  #place(marks, clickMs) {
    const perMs = (this.#trackPx - MARK_PX) / this.#axisMs;
    const widthOf = ({ count }) => MARK_PX + (count > 1 ? COUNT_PX : 0);
    const shown = [...marks];
    const over = [];
    const room = () => shown.reduce((sum, mark) => sum + widthOf(mark), over.length > 0 ? COUNT_PX : 0) <= this.#trackPx;
    while (shown.length > 1 && !room()) over.unshift(shown.pop());
    const timeOf = ({ startMs, endMs }) => Math.max(0, (endMs ?? startMs) - clickMs);
    const placed = shown.map((mark) => ({ ...mark, x: timeOf(mark) * perMs, at: seconds(timeOf(mark)) }));
    placed.sort((one, other) => one.x - other.x);
    let free = 0;
    for (const mark of placed) {
      mark.x = Math.max(mark.x, free);
      free = mark.x + widthOf(mark);
    }
    let end = this.#trackPx - (over.length > 0 ? COUNT_PX : 0);
    for (const mark of placed.toReversed()) {
      mark.x = Math.min(mark.x, end - widthOf(mark));
      end = mark.x;
    }
    // The line before a mark shows how long it was under way, as far as no other mark is there.
    free = 0;
    for (const mark of placed) {
      mark.fromPx = Math.min(mark.x, Math.max(free, (mark.startMs - clickMs) * perMs));
      free = mark.x + widthOf(mark);
    }
    return { placed, over };
  }

  #track({ placed, over }) {
    const items = placed.map((mark) => this.#mark(mark));
    if (over.length > 0) {
      const words = `then ${over.map(({ text }) => text).join("; ")}`;
      const more = make("li", { class: "more", "data-attempts": attemptsOf(over), title: words }, make("span", { "aria-hidden": "true" }, `+${over.reduce((sum, { count }) => sum + count, 0)}`), make("span", { class: "unseen" }, `${words}. `));
      more.style.transform = `translateX(${this.#trackPx - COUNT_PX}px)`;
      items.push(more);
    }
    return items;
  }

  #mark({ fate, isUnheard, isCopy, ids, text, count, x, fromPx, at }) {
    const words = `${at}: ${text}`;
    const mark = make("li", { class: isUnheard && !isCopy ? "unheard" : "", "data-attempts": attemptsOf([{ fate, ids }]), title: words }, glyph(fate), make("span", { class: "unseen" }, `${words}. `));
    if (count > 1) mark.append(make("span", { class: "times", "aria-hidden": "true" }, `×${count}`));
    mark.style.transform = `translateX(${x}px)`;
    mark.style.setProperty("--way", `${x - fromPx}px`);
    return mark;
  }

  #measure() {
    const track = this.#body.querySelector(".track");
    const width = track?.clientWidth ?? 0;
    if (width === 0 || width === this.#trackPx) return;
    this.#trackPx = width;
    for (const row of this.#rows.values()) this.#draw(row);
  }

  /** Makes the axis as long as the longest row. Returns whether that changed it. */
  #stretch() {
    let longestMs = 0;
    for (const { click, lanes } of this.#rows.values()) {
      for (const lane of LANES) for (const { endMs, startMs } of lanes[lane].model.marks) longestMs = Math.max(longestMs, (endMs ?? startMs) - click.atMs);
    }
    const seconds = AXIS_S.find((seconds) => seconds * 1000 >= longestMs) ?? AXIS_S.at(-1);
    if (seconds * 1000 === this.#axisMs) return false;
    this.#axisMs = seconds * 1000;
    return true;
  }
}

/** The attempts that a mark stands for, each with its fate. */
const attemptsOf = (marks) => marks.flatMap(({ fate, ids }) => ids.map((id) => `${id}=${fate}`)).join(" ");

/** Shows how many of the attempts that reached the server the page has drawn, and how many the server has logged. */
export function showCounts(counts, { accounts, asOfMs, isDown }, nowMs) {
  const sources = LANES.flatMap((lane) => [
    { ...counts[lane].drawn, entries: "" },
    { ...counts[lane].logged, entries: accounts[lane]?.entries ?? 0 },
  ]);
  for (const [at, name] of [...COUNTED, "entries"].entries()) {
    const [, ...cells] = $("counts").children[at].children;
    for (const [column, cell] of cells.entries()) say(cell, String(sources[column][name]));
  }
  say($("as-of"), isDown && asOfMs > 0 ? `, ${Math.round((nowMs - asOfMs) / 1000)} s ago` : "");
}
