// The npm packages that the build and the server need, exactly as the lock file has them.

import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ROOT } from "./paths.mjs";
import { run } from "./step.mjs";

const MARK = join(ROOT, "node_modules/.semel-lock");

/** Runs `npm ci` unless what it would install is there. */
export async function installPackages() {
  const lock = createHash("sha256").update(await readFile(join(ROOT, "package-lock.json"))).digest("hex");
  if (existsSync(MARK) && (await readFile(MARK, "utf8")) === lock) return "there already";
  await run("npm", ["ci", "--no-audit", "--no-fund"], {
    cwd: ROOT,
    advice: "Check that the npm registry can be reached, then try again.",
  });
  await writeFile(MARK, lock);
  return "installed";
}
