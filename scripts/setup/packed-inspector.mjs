// Puts the inspector into the npm package: a folder of static assets that any Worker can serve.
//
// Invariant: the application's own paths stay free. Everything that the page loads is below `/inspector`.

import { existsSync } from "node:fs";
import { copyFile, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { BUILD } from "./paths.mjs";
import { SDK_PACKAGE } from "./sdk.mjs";
import { hashOf, onceFor } from "./stamp.mjs";
import { step } from "./step.mjs";
import { WWW_FOLDER } from "./www.mjs";

const FOLDER = join(SDK_PACKAGE, "inspector");
const PAGE = "inspector.html";
/** As in the deployed ledger: no frames, because a framed page could be clicked unseen; and a file with a hash in its name never changes. */
const HEADERS = `/inspector
  Content-Security-Policy: frame-ancestors 'none'
  X-Content-Type-Options: nosniff

/inspector/inspector-*
  Cache-Control: public, max-age=31536000, immutable
  X-Content-Type-Options: nosniff
`;

/** Copies it from the built pages, unless it is up to date. */
export async function packInspector() {
  const stamp = join(BUILD, "packed-inspector.stamp");
  if (!existsSync(join(FOLDER, PAGE))) await rm(stamp, { force: true });
  await step("semel/inspector", async () => onceFor(stamp, await hashOf(["build/www", "scripts/setup"]), pack));
}

async function pack() {
  await rm(FOLDER, { recursive: true, force: true });
  await mkdir(join(FOLDER, "inspector"), { recursive: true });
  const assets = join(WWW_FOLDER, "assets");
  const names = (await readdir(assets)).filter((name) => name.startsWith("inspector-"));
  for (const name of [...names, "icon.svg"]) await copyFile(join(assets, name), join(FOLDER, "inspector", name));
  const page = await readFile(join(WWW_FOLDER, PAGE), "utf8");
  await writeFile(join(FOLDER, PAGE), page.replaceAll('"/assets/', '"/inspector/'));
  await writeFile(join(FOLDER, "_headers"), HEADERS);
}
