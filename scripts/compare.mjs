// `npm run bench:compare`: compares other clients with the SDK under the same scripted faults, in Chromium. Writes docs/compare.json, and its table
// into README.md.
//
// Invariant: nothing is written unless the control shows that the faults happened and do harm.

import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { findBrowser } from "./setup/browser.mjs";
import { COMPARE, installPackages } from "./setup/packages.mjs";
import { ROOT } from "./setup/paths.mjs";
import { StepError, main, step } from "./setup/step.mjs";

await main(async () => {
  await step("npm packages", installPackages);
  await step("npm packages of what is compared", () => installPackages(COMPARE));
  const { buildWorker } = await import("./setup/worker.mjs");
  const { buildSdk } = await import("./setup/sdk.mjs");
  const { compare } = await import("../tests/bench/compare/compare.mjs");
  const { withTable } = await import("../tests/bench/compare/table.mjs");
  await buildWorker("ledger");
  await buildSdk();
  let chromium;
  await step("browser", async () => (chromium = (await findBrowser()).note.split(",")[0]));
  const { record, wrong } = await compare({ chromium, each: step });
  if (wrong.length > 0) throw new StepError(`The comparison has not measured what it says:\n${wrong.join("\n")}`);
  await writeFile(join(ROOT, "docs/compare.json"), `${JSON.stringify(record, undefined, 2)}\n`);
  const readme = join(ROOT, "README.md");
  await writeFile(readme, withTable(await readFile(readme, "utf8"), record));
  console.log("docs/compare.json and README.md are written");
});
