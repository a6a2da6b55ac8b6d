// Installs the npm packages that the build and the server need, exactly as the lock file has them.

import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { alone } from "./alone.mjs";
import { ROOT } from "./paths.mjs";
import { run } from "./step.mjs";

/** Packages that only the tests in runtimes and of examples need. Their own lock file keeps them from changing what everything is built with. */
export const RUNTIMES = join(ROOT, "tests/runtimes");
/** Packages that only `npm run bench:compare` needs; as above. */
export const COMPARE = join(ROOT, "tests/bench/compare");
/** Packages that only `npm run bench` needs, to draw plots; as above. */
export const CHARTS = join(ROOT, "tests/bench/charts");
/** Packages that only `npm run deploy` needs: wrangler, and a Node that it runs on; as above. */
export const DEPLOY = join(ROOT, "scripts/deploy");

/** Runs `npm ci` in a folder, with `alone`, unless everything is installed already. */
export async function installPackages(folder = ROOT) {
  const mark = join(folder, "node_modules/.semel-lock");
  const lock = createHash("sha256").update(await readFile(join(folder, "package-lock.json"))).digest("hex");
  const isThere = async () => (await readFile(mark, "utf8").catch(() => undefined)) === lock;
  if (await isThere()) return "there already";
  return alone(async () => {
    // Another process may have installed it while this one waited.
    if (await isThere()) return "there already";
    await run("npm", ["ci", "--no-audit", "--no-fund"], {
      cwd: folder,
      advice: "Check that the npm registry can be reached, then try again.",
    });
    await writeFile(mark, lock);
    return "installed";
  });
}
