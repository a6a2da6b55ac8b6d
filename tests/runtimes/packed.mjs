// The SDK as a user gets it: packed, and installed by npm in an app outside of the checkout.
//
// Invariant: nothing of the checkout is in reach of the app but what was packed, and nothing outlives the test file.

import { cp, mkdtemp, readFile, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { SDK_PACKAGE } from "../../scripts/setup/sdk.mjs";
import { run } from "../../scripts/setup/step.mjs";

const APP = fileURLToPath(new URL("app", import.meta.url));

/** What every entry exports: what its types say. */
export const EXPORTS = [...(await readFile(join(SDK_PACKAGE, "index.d.ts"), "utf8")).matchAll(/^export class (\w+)/gm)].map(([, name]) => name).sort();

/** Packs it, and resolves to the tarball in a folder of its own. `after` is node:test's. */
export async function pack(after) {
  // Bundlers tell real paths: where the system's temporary folder is a link, paths would differ.
  const scratch = await mkdtemp(join(await realpath(tmpdir()), "semel-app-"));
  after(() => rm(scratch, { recursive: true, force: true, maxRetries: 10 }));
  // Built it is already: to pack is no reason to build everything.
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
