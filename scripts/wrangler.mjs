// `npm run wrangler -- …`: runs the version of wrangler that deploys, for what a person does by hand: log in, set a secret,
// roll back, follow the log.

import { wrangler } from "./deploy/wrangler.mjs";
import { DEPLOY, installPackages } from "./setup/packages.mjs";
import { main } from "./setup/step.mjs";

await main(async () => {
  await installPackages(DEPLOY);
  await wrangler(process.argv.slice(2), { stdio: "inherit", env: {} });
});
