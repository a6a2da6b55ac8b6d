// The npm packages that the build and the server need, exactly as the lock file has them.

import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { alone } from "./alone.mjs";
import { ROOT } from "./paths.mjs";
import { run } from "./step.mjs";

/** What only the tests in the runtimes and of the examples need, with a lock file of its own: a bundler more is no change to what everything is built with. */
export const RUNTIMES = join(ROOT, "tests/runtimes");
/** What only `npm run bench:compare` needs, likewise. */
export const COMPARE = join(ROOT, "tests/bench/compare");
/** What only `npm run bench` needs, to draw, likewise. */
export const CHARTS = join(ROOT, "tests/bench/charts");
/** What only `npm run deploy` needs, likewise: wrangler, and a Node that it runs on. */
export const DEPLOY = join(ROOT, "scripts/deploy");

/** Runs `npm ci` in a folder, alone, unless what it would install is there. */
export async function installPackages(folder = ROOT) {
  const mark = join(folder, "node_modules/.semel-lock");
  const lock = createHash("sha256").update(await readFile(join(folder, "package-lock.json"))).digest("hex");
  const isThere = async () => (await readFile(mark, "utf8").catch(() => undefined)) === lock;
  if (await isThere()) return "there already";
  return alone(async () => {
    // Whoever was waited for may have installed the same.
    if (await isThere()) return "there already";
    await run("npm", ["ci", "--no-audit", "--no-fund"], {
      cwd: folder,
      advice: "Check that the npm registry can be reached, then try again.",
    });
    await writeFile(mark, lock);
    return "installed";
  });
}
