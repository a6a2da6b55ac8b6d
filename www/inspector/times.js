// When a key's records and tombstones last changed: over time, as a plot and as a table.
//
// Invariants:
// - Everything that the plot shows is also there in words and in the table. The plot has the colours of the page.
// - Only the range that was asked for last is drawn, in whatever order the answers come.

import "../view/language.js";
import uPlot from "uplot";
import { colourOf, counted, make, say } from "../view/element.js";
import { troubleOf } from "./trouble.js";
import { duration, instant, number } from "../../sdk/admin/words.js";

const HEIGHT_PX = 220;
const STEPS = 96;
/** The lengths that a step may have, in seconds, so that steps begin at round times. */
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 31_536_000];
const PRESETS = [["Last hour", 3_600_000], ["24 hours", 86_400_000], ["7 days", 604_800_000]];
const SHORTEST_MS = 10_000;

/** The section for a key. `stats`: what the key says about itself. */
export function showTimes({ key, now, oldest }, { admin, signal, onerror }) {
  const all = [Math.min(oldest ?? now, now - SHORTEST_MS), now];
  const plot = new Plot((from, to) => load([from, to]), signal);
  const told = make("p", { class: "plot-text", role: "status" });
  const trouble = make("div", {});
  const table = make("tbody", {});
  const more = make("details", {}, make("summary", {}, "As a table"), make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Records and tombstones over time" }, make("table", {}, make("thead", {}, make("tr", {}, ...["From", "Records", "Tombstones"].map((name) => make("th", { scope: "col" }, name)))), table)));
  const buttons = make("div", { class: "ranges", role: "group", "aria-label": "Range" });
  let [range, asked] = [all, 0];

  const choices = [["All", () => all], ...PRESETS.map(([name, ms]) => [name, () => [now - ms, now]])].map(([name, rangeOf]) => add(name, () => load(rangeOf()), rangeOf));
  const middle = () => (range[0] + range[1]) / 2;
  const scaled = (factor) => [middle() - ((range[1] - range[0]) * factor) / 2, middle() + ((range[1] - range[0]) * factor) / 2];
  const moved = (share) => range.map((at) => at + (range[1] - range[0]) * share);
  add("Earlier", () => load(moved(-0.5)));
  add("Later", () => load(moved(0.5)));
  add("Zoom in", () => load(scaled(0.5)));
  add("Zoom out", () => load(scaled(2)));
  buttons.append(make("span", { class: "hint" }, "or drag over the plot"));

  function add(text, onclick, rangeOf) {
    const button = make("button", { type: "button", class: rangeOf ? "choice" : "quiet" }, text);
    button.addEventListener("click", onclick);
    buttons.append(button);
    return { button, rangeOf };
  }

  async function load([from, to]) {
    const mine = (asked += 1);
    range = within(from, to, now);
    for (const { button, rangeOf } of choices) button.setAttribute("aria-pressed", String(String(within(...rangeOf(), now)) === String(range)));
    const step = 1000 * (STEPS_S.find((seconds) => (range[1] - range[0]) / (seconds * 1000) <= STEPS) ?? STEPS_S.at(-1));
    const first = Math.floor(range[0] / step) * step;
    const count = Math.min(500, Math.floor((range[1] - first) / step) + 1);
    try {
      const times = await admin.times(key, { from: first, step, count }, signal);
      if (mine !== asked) return;
      trouble.replaceChildren();
      plot.show(times);
      describe(times);
    } catch (error) {
      if (signal.aborted || mine !== asked || onerror(error)) return;
      say(told, "");
      trouble.replaceChildren(troubleOf(error, { again: () => load(range) }));
    }
  }

  function describe({ from, step, records, tombstones, truncated }) {
    const sum = (counts, noun) => counted(counts.reduce((total, count) => total + count, 0), noun);
    const span = `${instant(from)} to ${instant(Math.min(now, from + step * records.length))}, in steps of ${duration(step / 1000)}`;
    const part = truncated ? " There are more: only a part of the rows was read. So the shape is right, but the numbers are too small." : "";
    told.replaceChildren(make("span", { class: "key records" }), `${sum(records, "record")} `, make("span", { class: "key tombstones" }), `${sum(tombstones, "tombstone")} `, make("span", { class: "hint" }, `${span}.${part}`));
    table.replaceChildren(...records.flatMap((count, at) => (count + tombstones[at] === 0 ? [] : [make("tr", {}, make("th", { scope: "row" }, instant(from + at * step)), make("td", {}, number(count)), make("td", {}, number(tombstones[at])))])));
  }

  load(all);
  return make("section", { class: "part times", "aria-labelledby": "times" }, make("h2", { id: "times" }, "When they changed last"), buttons, told, trouble, plot.element, more);
}

/** The range, but no shorter than `SHORTEST_MS`, and not ending after now. */
function within(from, to, now) {
  const length = Math.max(to - from, SHORTEST_MS);
  const end = Math.min(to, now);
  return [Math.round(Math.max(0, end - length)), Math.round(end)];
}

class Plot {
  element = make("div", { class: "canvas", role: "img", "aria-label": "Records and tombstones by the time of their last change. The table below has the numbers. Drag to choose a range." });
  #plot;
  #times;
  #onrange;

  constructor(onrange, signal) {
    this.#onrange = onrange;
    const resized = new ResizeObserver(() => {
      if (this.#plot) this.#plot.setSize({ width: this.element.clientWidth, height: HEIGHT_PX });
      else if (this.#times) this.#make();
    });
    resized.observe(this.element);
    signal.addEventListener("abort", () => resized.disconnect());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#times && this.#make(), { signal });
  }

  show(times) {
    this.#times = times;
    if (this.element.clientWidth > 0) this.#make();
  }

  /** Makes the plot anew, because its scale may be another, and a canvas keeps the colours that it was drawn with. */
  #make() {
    this.#plot?.destroy();
    const { from, step, records, tombstones } = this.#times;
    const colour = (name) => colourOf(this.element, name);
    const axis = { stroke: colour("--text-2"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const paths = uPlot.paths.stepped({ align: 1 });
    const series = (label, name, dash) => ({ label, stroke: colour(name), fill: colour(`${name}-area`), width: 1.5, dash, paths, points: { show: false } });
    // The last step has a width, too: it is drawn to its end.
    const ends = (counts) => [...counts, counts.at(-1)];
    const options = {
      width: this.element.clientWidth,
      height: HEIGHT_PX,
      // Half of the last label lies beyond the plot.
      padding: [null, 32, null, null],
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
      scales: { y: { range: (_, __, max) => [0, Math.max(4, max * 1.1)] } },
      axes: [{ ...axis, space: 80, values: (_, ticks) => labelsOf(ticks) }, { ...axis, size: 56, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6], values: (_, ticks) => ticks.map(number) }],
      series: [{}, series("tombstones", "--tombstones", [6, 4]), series("records", "--records")],
      hooks: { setSelect: [(plot) => plot.select.width > 4 && this.#onrange(1000 * plot.posToVal(plot.select.left, "x"), 1000 * plot.posToVal(plot.select.left + plot.select.width, "x"))] },
    };
    const x = Array.from({ length: records.length + 1 }, (_, at) => (from + at * step) / 1000);
    this.#plot = new uPlot(options, [x, ends(tombstones), ends(records)], this.element);
  }
}

/** Times for the axis, in the page's usual form. The day is added to the first label, and where a new day begins. */
function labelsOf(ticks) {
  const days = ticks.length > 1 && ticks[1] - ticks[0] >= 86_400;
  return ticks.map((tick, at) => {
    const [day, time] = instant(tick * 1000).split(" ");
    if (days) return day;
    const clock = ticks[1] - ticks[0] < 60 ? time : time.slice(0, 5);
    return at === 0 || time === "00:00:00" ? `${clock}\n${day}` : clock;
  });
}
