// `npm run bench:bytes`: builds the SDK, measures what its bytes are spent on, and writes the table into sdk/npm/README.md.

import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { installPackages } from "./setup/packages.mjs";
import { main, step } from "./setup/step.mjs";

await main(async () => {
  await step("npm packages", installPackages);
  const { SDK_PACKAGE, buildSdk } = await import("./setup/sdk.mjs");
  const { measure, withTable } = await import("../tests/bench/bytes.mjs");
  await buildSdk();
  const readme = join(SDK_PACKAGE, "README.md");
  await writeFile(readme, withTable(await readFile(readme, "utf8"), await measure()));
  console.log("sdk/npm/README.md is written");
});
