// `npm run worker -- FOLDER`: builds the Worker of a crate with a handler of its own, in this checkout or elsewhere.

import { realpath } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { checkMachine } from "./setup/machine.mjs";
import { installPackages } from "./setup/packages.mjs";
import { StepError, main, step } from "./setup/step.mjs";
import { buildWorkerOf } from "./setup/worker.mjs";

await main(async () => {
  const { positionals, values } = parseArgs({ allowPositionals: true, options: { outdir: { type: "string" } } });
  if (positionals.length !== 1) throw new StepError("Which crate?", "npm run worker -- FOLDER [--outdir FOLDER]");
  const folder = await realpath(positionals[0]).catch(() => {
    throw new StepError(`There is no folder ${positionals[0]}.`);
  });
  await step("this machine", checkMachine);
  await step("npm packages", installPackages);
  await buildWorkerOf(folder, values.outdir ?? join(folder, "build"));
});
