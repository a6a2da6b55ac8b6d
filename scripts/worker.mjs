// `npm run worker -- FOLDER`: builds the Worker of a crate with its own handler, in this checkout or elsewhere.
//
// Invariant: the output folder is emptied, so it must contain nothing but an earlier build.

import { readdir, realpath } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { checkMachine } from "./setup/machine.mjs";
import { installPackages } from "./setup/packages.mjs";
import { StepError, main, step } from "./setup/step.mjs";
import { buildWorkerOf } from "./setup/worker.mjs";

const USAGE = "npm run worker -- FOLDER [--outdir FOLDER]";

await main(async () => {
  const { positionals, values } = parsed();
  if (positionals.length !== 1) throw new StepError("Which crate?", USAGE);
  const folder = await realpath(positionals[0]).catch(() => {
    throw new StepError(`There is no folder ${positionals[0]}.`);
  });
  const output = resolve(values.outdir ?? join(folder, "build"));
  await checkOutput(output);
  await step("this machine", checkMachine);
  await step("npm packages", installPackages);
  await buildWorkerOf(folder, output);
});

async function checkOutput(output) {
  const names = await readdir(output).catch((error) => {
    if (error.code === "ENOENT") return [];
    throw new StepError(`${output} can't be written into: ${error.message}.`, USAGE);
  });
  if (names.length === 0 || names.includes("semel_bg.wasm")) return;
  throw new StepError(`${output} has something else in it than a built Worker, and would be emptied.`, "Choose a folder of its own with --outdir FOLDER.");
}

function parsed() {
  try {
    return parseArgs({ allowPositionals: true, options: { outdir: { type: "string" } } });
  } catch (error) {
    throw new StepError(error.message, USAGE);
  }
}
