// The dedup set of the Semel account over time: kept outcomes, and tombstones.
//
// Invariant: the numbers are also beside the plot as text. The plot has the colours of the page.

import "./language.js";
import uPlot from "uplot";
import { $, colourOf, counted, say } from "./element.js";

const HEIGHT_PX = 180;

export class Plot {
  #plot;
  #element = $("plot");
  #samples = [];

  constructor() {
    new ResizeObserver(() => this.#plot?.setSize({ width: this.#element.clientWidth, height: HEIGHT_PX })).observe(this.#element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#make());
    this.#make();
  }

  /** Draws the samples `{ atMs, records, tombstones }`, and says in words what the server reports now. */
  show(samples, { records, tombstones } = { records: 0, tombstones: 0 }, nowMs) {
    this.#samples = samples;
    say($("plot-records"), `${counted(records, "outcome")} kept`);
    say($("plot-tombstones"), counted(tombstones, "tombstone"));
    this.#plot.setData(this.#data(nowMs));
  }

  #data(nowMs) {
    const last = this.#samples.at(-1);
    const all = last ? [...this.#samples, { ...last, atMs: Math.max(nowMs, last.atMs + 1) }] : [];
    const start = all[0]?.atMs ?? 0;
    return [all.map(({ atMs }) => (atMs - start) / 1000), all.map(({ records }) => records), all.map(({ tombstones }) => tombstones)];
  }

  /** Makes the plot anew, because a canvas keeps the colours that it was drawn with. */
  #make() {
    this.#plot?.destroy();
    const colour = (name) => colourOf(this.#element, name);
    const [text, grid] = [colour("--text-2"), colour("--line")];
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const steps = uPlot.paths.stepped({ align: 1 });
    const series = (label, stroke, dash) => ({ label, stroke: colour(stroke), width: 2, dash, paths: steps, points: { show: false } });
    const options = {
      width: this.#element.clientWidth,
      height: HEIGHT_PX,
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: false, range: (_, __, max) => [0, Math.max(5, max)] }, y: { range: (_, __, max) => [0, Math.max(5, max * 1.1)] } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map((tick) => `${tick} s`) },
        { ...axis, size: 44, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] },
      ],
      series: [{}, series("outcomes", "--records"), series("tombstones", "--tombstones", [6, 4])],
    };
    this.#plot = new uPlot(options, this.#data(Date.now()), this.#element);
  }
}
