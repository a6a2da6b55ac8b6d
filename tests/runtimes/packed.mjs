// Packs the SDK, and installs it with npm in an app outside of the checkout, as a user does.
//
// Invariant: of the checkout, the app can reach only what was packed, and nothing outlives the test file.

import { cp, mkdtemp, readFile, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { SDK_PACKAGE } from "../../scripts/setup/sdk.mjs";
import { run } from "../../scripts/setup/step.mjs";

const APP = fileURLToPath(new URL("app", import.meta.url));

/** What every entry must export: the classes in its types. */
export const EXPORTS = [...(await readFile(join(SDK_PACKAGE, "index.d.ts"), "utf8")).matchAll(/^export class (\w+)/gm)].map(([, name]) => name).sort();

/** Packs the SDK, and resolves to the tarball in a folder of its own. `after` is the one of node:test. */
export async function pack(after) {
  // Bundlers report real paths. If the system's temporary folder is a link, other paths would differ from theirs.
  const scratch = await mkdtemp(join(await realpath(tmpdir()), "semel-app-"));
  after(() => rm(scratch, { recursive: true, force: true, maxRetries: 10 }));
  // The package is built already, so packing must not build everything again.
  const name = await run("npm", ["pack", SDK_PACKAGE, "--ignore-scripts", "--silent", "--pack-destination", scratch], { cwd: scratch });
  return join(scratch, name.trim());
}

/** Resolves to the folder of an app that has the package, and to the tarball. */
export async function installApp(after) {
  const tarball = await pack(after);
  const folder = join(dirname(tarball), "app");
  await cp(APP, folder, { recursive: true });
  await run("npm", ["install", tarball, "--offline", "--no-audit", "--no-fund"], { cwd: folder });
  return { folder, tarball };
}
