// `npm run build`: builds everything that ships. Arguments name further workers of the checkout to build, which only tests need.

import { checkMachine } from "./setup/machine.mjs";
import { installPackages } from "./setup/packages.mjs";
import { main, step } from "./setup/step.mjs";
import { packInspector } from "./setup/packed-inspector.mjs";
import { buildPackedWorkers } from "./setup/packed-worker.mjs";
import { buildWorker } from "./setup/worker.mjs";
import { buildWww } from "./setup/www.mjs";

await main(async () => {
  await step("this machine", checkMachine);
  await step("npm packages", installPackages);
  for (const worker of ["ledger", ...process.argv.slice(2)]) await buildWorker(worker);
  await buildPackedWorkers();
  await buildWww();
  await packInspector();
});
