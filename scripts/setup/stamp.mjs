// Tells whether something was already built from the current sources.

import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { alone } from "./alone.mjs";
import { ROOT } from "./paths.mjs";

/** Resolves to a hash of the names and contents of files and folders, which are given relative to the checkout. */
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

/** Runs `build`, with `alone`, unless `stamp` says that it ran with this hash. The stamp is removed while it runs. */
export async function onceFor(stamp, hash, build) {
  const isBuilt = async () => (await readFile(stamp, "utf8").catch(() => undefined)) === hash;
  if (await isBuilt()) return "unchanged";
  return alone(async () => {
    // Another process may have built it while this one waited.
    if (await isBuilt()) return "unchanged";
    await rm(stamp, { force: true });
    const note = await build();
    await mkdir(dirname(stamp), { recursive: true });
    await writeFile(stamp, hash);
    return note;
  });
}
