// Shows what was measured: as tables, and as the measured part of docs/performance.md with its plots.
//
// Invariant: of the document, only what is between the marks is written. People write the text about it.

import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { markdownOf } from "./table.mjs";

const DOCUMENT = join(ROOT, "docs/performance.md");
const RECORD = join(ROOT, "docs/performance.json");
const MEASURED = /<!-- measured -->\n[\s\S]*<!-- \/measured -->/;

/** The plots by curve, and the text of each for readers who can't see it. */
export const PLOTS = {
  connections: "Deposits a second over connections, 1 to 256, of Semel and of the floor.",
  frames: "Deposits a second by one socket over requests a frame, 1 to 256, and those of the floor by 64 connections.",
  records: "Deposits a second by 16 connections over records at the key.",
};
export const plotOf = (name) => `docs/images/performance-${name}.svg`;

/** Returns all tables of a record. */
export function tables({ rows, inMemory, bound, handlers }) {
  const parts = [];
  if (rows.length > 0) parts.push(markdownOf(rows).join("\n"));
  if (inMemory) parts.push(`The same with the disk in memory (tmpfs):\n\n${markdownOf(inMemory).join("\n")}`);
  if (bound) parts.push(`[The bound](#the-bound) and Semel in the same rounds, as ratios to the floor:\n\n${boundsOf(bound).join("\n")}`);
  if (handlers) parts.push(`Orders by the examples' handlers, as ratios to the TypeScript one in a plain Durable Object:\n\n${ordersOf(handlers).join("\n")}`);
  return parts.join("\n\n");
}

function boundsOf(found) {
  const lines = found.map(({ work, bound, unread, semel, ofBound }) => `| ${work} | ${[bound, unread, semel, ofBound].map((value) => value.toFixed(2)).join(" | ")} |`);
  return ["| work | bound | bound, unread | Semel | Semel to the bound |", "|---|---:|---:|---:|---:|", ...lines];
}

function ordersOf(handlers) {
  const lines = handlers.map(
    ({ connections, typescript, rust, bound, unread, plain }) => `| ${connections} | ${[typescript, rust, bound, unread].map((value) => value.toFixed(2)).join(" | ")} | ${Math.round(plain).toLocaleString("en-US")}/s |`,
  );
  return ["| connections | TypeScript | Rust | bound | bound, unread | plain |", "|---:|---:|---:|---:|---:|---:|", ...lines];
}

/** Returns what is between the marks of the document. */
export function measuredOf(record) {
  const { date, machine, versions, settings, disk } = record;
  const on = `${machine.cores} cores (${machine.cpu}), ${machine.memoryGiB} GiB, ${machine.system}. workerd ${versions.workerd}, Node ${versions.node}, rustc ${versions.rustc}`;
  const where = `The disk has ${disk.fileSystem}; to make a page of 4 KiB durable there takes ${disk.durableMs} ms.`;
  const how = `${settings.rounds} rounds of ${settings.seconds} s of each side in turn; ${settings.sdkRequests.toLocaleString("en-US")} calls of the SDK in Node in all.`;
  const plots = Object.entries(PLOTS).map(([name, text]) => `![${text}](images/performance-${name}.svg)`);
  return [`Measured on ${date}: ${on}. ${where} ${how}`, tables(record), ...plots].join("\n\n");
}

/** Writes the document's part, the record and the plots. */
export async function writeDocument(record) {
  const { draw } = await import("./charts/draw.mjs");
  for (const name of Object.keys(PLOTS)) await writeFile(join(ROOT, plotOf(name)), draw(name, record.curves[name]));
  const document = await readFile(DOCUMENT, "utf8");
  await writeFile(DOCUMENT, document.replace(MEASURED, () => `<!-- measured -->\n${measuredOf(record)}\n<!-- /measured -->`));
  await writeFile(RECORD, `${JSON.stringify(record, undefined, 2)}\n`);
}
