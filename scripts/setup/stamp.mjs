// Whether something was built from the sources as they are now.

import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { alone } from "./alone.mjs";
import { ROOT } from "./paths.mjs";

/** A hash over the names and bytes of files and folders, given from the top of the checkout. */
export async function hashOf(sources) {
  const hash = createHash("sha256");
  for (const source of sources) await addTo(hash, source);
  return hash.digest("hex");
}

async function addTo(hash, path) {
  const full = join(ROOT, path);
  const entries = await readdir(full, { withFileTypes: true }).catch((error) => {
    if (error.code === "ENOTDIR") return undefined;
    throw error;
  });
  if (!entries) {
    hash.update(`${path}\0`).update(await readFile(full)).update("\0");
    return;
  }
  const names = entries.map((entry) => entry.name).filter((name) => name !== "target").sort();
  for (const name of names) await addTo(hash, `${path}/${name}`);
}

/** Runs `build`, alone, unless `stamp` says that it ran with this hash. The stamp is gone while it runs. */
export async function onceFor(stamp, hash, build) {
  const isBuilt = async () => (await readFile(stamp, "utf8").catch(() => undefined)) === hash;
  if (await isBuilt()) return "unchanged";
  return alone(async () => {
    // Whoever was waited for may have built the same.
    if (await isBuilt()) return "unchanged";
    await rm(stamp, { force: true });
    const note = await build();
    await mkdir(dirname(stamp), { recursive: true });
    await writeFile(stamp, hash);
    return note;
  });
}
