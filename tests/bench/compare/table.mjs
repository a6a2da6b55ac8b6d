// The table of the README, made from the record of a run.
//
// Invariant: every figure comes from the record; nothing is said about what was not measured.

const BEGIN = "<!-- compare -->";
const END = "<!-- /compare -->";

/** Returns the README with the table of this record. */
export function withTable(readme, record) {
  const [before, rest] = readme.split(BEGIN);
  const after = rest?.split(END)[1];
  if (after === undefined) throw new Error(`README.md has no ${BEGIN} … ${END}`);
  return `${before}${BEGIN}\n${tableOf(record)}\n${END}${after}`;
}

/** Returns the table, as lines of Markdown. */
export function tableOf({ rows }) {
  const head = ["client", "bytes", "effects", "repeated", "lost", "told wrongly", "no answer", "in flight at a reload", "made offline, then closed"];
  const lines = [head, head.map((_, index) => (index === 0 ? "---" : "---:")), ...rows.map(cells)];
  return lines.map((line) => `| ${line.join(" | ")} |`).join("\n");
}

function cells({ name, versions, bytes, tally }) {
  const client = name.replaceAll(/\{(.+?)\}/g, (_, library) => versions[library]);
  const size = bytes.toLocaleString("en-US");
  if (!tally) return [client, size, "not measured", ...Array(6).fill("")];
  const { effects, repeated, lost, toldWrongly, neverTold, inFlight, offline } = tally;
  return [client, size, effects, repeated, lost, toldWrongly, neverTold, survivors(inFlight), survivors(offline)];
}

/** What became of the orders that had no answer when the page went. */
function survivors({ unfinished, made, answered }) {
  return unfinished === 0 ? "failed before" : `${made} of ${unfinished} made, ${answered} answered`;
}
