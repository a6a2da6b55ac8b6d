// The checks of everything that comes from elsewhere: crates by cargo-deny, npm packages by npm and by their lock files.
//
// Invariants:
// - A check that can't reach its source says so. That neither passes nor fails: `npm test` goes on without it, and `npm run audit` fails.
// - The checks cover exactly what the lock files name: nothing is resolved anew.

import { readFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { CHARTS, COMPARE, DEPLOY, RUNTIMES } from "../setup/packages.mjs";
import { ROOT } from "../setup/paths.mjs";
import { StepError, run } from "../setup/step.mjs";

/** The manifests of all lock files of crates: the workspace, the build's tool, the fuzz targets. */
const CRATES = ["Cargo.toml", "scripts/tools/Cargo.toml", "tests/fuzz/Cargo.toml"];
const PACKAGES = [ROOT, RUNTIMES, CHARTS, COMPARE, DEPLOY];
const REGISTRY = "https://registry.npmjs.org/";
const TIMEOUT_MS = 60_000;
/** Packages that may have no checksum: the registry of whoever made the lock file did not have them, because they are for other systems. */
const WITHOUT_SUM = /^node_modules\/(@cloudflare\/workerd-|@deno\/|node-\d+(\.\d+)?-)/;

/** All checks: `name`, and `run`, which resolves to undefined if all is well, or to `{ failed }` or `{ unasked }`. */
export function checksWith(cargoDeny, execute = run) {
  const deny = (manifest, ...which) => execute(cargoDeny, ["--locked", "--manifest-path", join(ROOT, manifest), "--config", join(ROOT, "deny.toml"), "check", "--hide-inclusion-graph", ...which], { cwd: ROOT, timeoutMs: TIMEOUT_MS });
  const here = (folder) => relative(ROOT, folder) || "the workspace";
  return [
    ...CRATES.map((manifest) => ({ name: `licences, bans and sources of ${manifest}`, run: () => verdict(deny(manifest, "licenses", "bans", "sources")) })),
    ...PACKAGES.map((folder) => ({ name: `sums and sources of the packages of ${here(folder)}`, run: async () => sumsOf(await readFile(join(folder, "package-lock.json"), "utf8")) })),
    ...CRATES.map((manifest) => ({ name: `advisories for ${manifest}`, run: () => verdict(deny(manifest, "advisories"), /failed to fetch advisory database/) })),
    ...PACKAGES.map((folder) => ({ name: `advisories for the packages of ${here(folder)}`, run: () => verdict(npmAudit(folder, execute), /audit endpoint returned an error|network request to|ENOTFOUND|ETIMEDOUT/) })),
  ];
}

const npmAudit = (folder, execute) => execute("npm", ["audit", "--audit-level=high", "--package-lock-only", "--fetch-retries=0"], { cwd: folder, timeoutMs: TIMEOUT_MS });

/** The result of a command. `unasked`: a pattern of its output that says that it could not reach its source. */
async function verdict(ended, unasked) {
  try {
    await ended;
    return undefined;
  } catch (error) {
    if (!(error instanceof StepError)) throw error;
    if (unasked?.test(error.message)) return { unasked: error.message.split("\n").find((line) => unasked.test(line)).trim() };
    return { failed: error.message };
  }
}

/** Checks that every package of a lock file has a checksum, and comes from the registry. */
export function sumsOf(lock) {
  const wrong = [];
  for (const [path, { integrity, resolved, optional, link }] of Object.entries(JSON.parse(lock).packages)) {
    if (path === "") continue;
    if (link || (resolved !== undefined && !resolved.startsWith(REGISTRY))) wrong.push(`${path} comes from ${link ? "a folder" : resolved}`);
    else if (integrity === undefined ? !(optional && WITHOUT_SUM.test(path)) : !integrity.startsWith("sha512-")) wrong.push(`${path} has no sum of sha512`);
  }
  return wrong.length === 0 ? undefined : { failed: wrong.join("\n") };
}
