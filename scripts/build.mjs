// `npm run build`: builds everything that ships.

import { installPackages } from "./setup/packages.mjs";
import { buildSdk } from "./setup/sdk.mjs";
import { main, step } from "./setup/step.mjs";
import { buildWorker } from "./setup/worker.mjs";

await main(async () => {
  await step("npm packages", installPackages);
  await buildWorker("ledger");
  await buildSdk();
});
