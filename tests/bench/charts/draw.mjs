// Draws the plots of docs/performance.md as SVG, without a browser.
//
// Invariant: the plots are read on light and on dark grounds, so each colour has a version for both.

import * as echarts from "echarts";

const SIZE = { width: 760, height: 400 };
const FONT = "system-ui, sans-serif";
/** Each colour on a light ground, and on a dark one. */
const COLOURS = { ink: ["#24292f", "#e6edf3"], faint: ["#d0d7de", "#3d444d"], semel: ["#0969da", "#58a6ff"], floor: ["#bc4c00", "#f0883e"] };
const [INK, FAINT, SEMEL, FLOOR] = Object.values(COLOURS).map(([light]) => light);
const OF = {
  connections: { x: "connections", y: "deposits a second", names: { semel: "Semel", floor: "floor, which protects nothing" } },
  frames: { x: "requests a frame, by one socket", y: "deposits a second", names: { semel: "Semel", floor: "floor, by 64 connections of HTTP" } },
  records: { x: "records at the key", y: "deposits a second", names: { semel: "Semel, 16 connections" } },
};

/** Returns the plot of a curve: `[{ at, semel, floor }]`. */
export function draw(name, curve) {
  const { x, y, names } = OF[name];
  const chart = echarts.init(null, null, { renderer: "svg", ssr: true, ...SIZE });
  const text = { color: INK, fontFamily: FONT, fontSize: 13 };
  const line = { lineStyle: { color: INK } };
  chart.setOption({
    animation: false,
    textStyle: text,
    legend: { top: 8, left: 72, textStyle: text, icon: "roundRect", itemHeight: 4 },
    grid: { left: 76, right: 28, top: 52, bottom: 60 },
    // A category axis: each point has the same distance to the next, although the numbers double.
    xAxis: { type: "category", name: x, nameLocation: "middle", nameGap: 34, nameTextStyle: text, axisLabel: { ...text, interval: 0 }, axisLine: line, axisTick: { ...line, alignWithLabel: true }, data: curve.map(({ at }) => at.toLocaleString("en-US")) },
    yAxis: { type: "value", min: 0, name: y, nameLocation: "middle", nameGap: 56, nameTextStyle: text, axisLabel: { ...text, formatter: (value) => value.toLocaleString("en-US") }, splitLine: { lineStyle: { color: FAINT } } },
    series: Object.entries(names).map(([side, label]) => {
      const color = side === "semel" ? SEMEL : FLOOR;
      return { name: label, type: "line", data: curve.map((point) => Math.round(point[side])), symbol: side === "semel" ? "circle" : "rect", symbolSize: 8, itemStyle: { color }, lineStyle: { color, width: 2.5, type: side === "semel" ? "solid" : "dashed" } };
    }),
  });
  const svg = chart.renderToSVGString();
  chart.dispose();
  const dark = Object.values(COLOURS).map(([light, other]) => `[fill="${light}"]{fill:${other}}[stroke="${light}"]{stroke:${other}}`);
  return svg.replace(/>/, `>\n<style>@media (prefers-color-scheme:dark){${dark.join("")}}</style>`);
}
