// The table of the benchmark: what each row must reach, what it aims at, and how a figure compares to both.

const MORE = "more";
const LESS = "less";
const ROW = (id, work, must, goal, better = MORE, unit = "times") => ({ id, work, must, goal, better, unit });

/** Each value is a ratio to the floor, unless it has another unit. */
export const ROWS = [
  ROW("connections-1", "1 connection, one after another", 0.85, 1),
  ROW("connections-16", "16 connections", 1.2, 1.6),
  ROW("connections-64", "64 connections", 1.5, 2),
  ROW("keys-64", "64 connections on 64 keys", 0.85, 1),
  ROW("replay", "replay of recorded outcomes, 64 connections", 2.2, 4),
  ROW("socket-64", "socket, 64 a frame", 15, 18),
  ROW("socket-256", "socket, 256 a frame", 20, 25),
  ROW("node-sdk", "Node SDK, `session.fetch` in a loop", 8, 12),
  ROW("rows-plain", "rows written per request, acknowledged, the handler's own apart: plain", 3, 2.1, LESS, "rows"),
  ROW("rows-session", "the same in a session", 2, 1.1, LESS, "rows"),
  ROW("records", "with 1,000,000 records at the key, against 1,000", 0.9, 1),
  ROW("p99", "p99 at half the peak load, of the floor's", 1.3, 1, LESS),
  ROW("cpu", "server CPU per request at 16 connections, of the floor's", 1.2, 0.9, LESS),
  ROW("browser-sdk", "SDK in Chromium: time in `semel.fetch` beyond `fetch` and the store's own write", 0.3, 0.1, LESS, "ms"),
];

/** Values are rounded to the precision of the bounds. */
const DIGITS = { times: 2, rows: 1, ms: 2 };

/** Judges what was measured for a row. `value`: the result; `floor` and `ours`: texts that say what it was computed from. */
export function judged(id, { value: exact, ...figures }) {
  const row = ROWS.find((each) => each.id === id);
  const value = Number(exact.toFixed(DIGITS[row.unit]));
  const reaches = (bound) => (row.better === MORE ? value >= bound : value <= bound);
  return { ...row, value, result: reaches(row.goal) ? "goal" : reaches(row.must) ? "met" : "missed", ...figures };
}

/** Returns the table as lines of Markdown. */
export function markdownOf(rows) {
  const lines = rows.map(({ work, must, goal, value, unit, result, floor, ours }) => {
    const shown = (number) => (unit === "ms" ? `${number} ms` : String(number));
    const measured = `${value.toFixed(DIGITS[unit])}${unit === "ms" ? " ms" : ""}`;
    return `| ${work} | ${shown(must)} | ${shown(goal)} | **${measured}** | ${result} | ${floor ?? ""} | ${ours ?? ""} |`;
  });
  return ["| work, on one key unless said | must | goal | measured | result | floor | Semel |", "|---|---:|---:|---:|---|---:|---:|", ...lines];
}
