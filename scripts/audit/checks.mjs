// What is checked of everything that comes from elsewhere: crates by cargo-deny, npm packages by npm and by their lock files.
//
// Invariants:
// - A check that can't ask whom it must ask says so. That is no pass, and no failure either: `npm test` goes on without it, and
//   `npm run audit` fails.
// - What the lock files name is what is checked: nothing is resolved anew.

import { readFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { CHARTS, COMPARE, DEPLOY, RUNTIMES } from "../setup/packages.mjs";
import { ROOT } from "../setup/paths.mjs";
import { StepError, run } from "../setup/step.mjs";

/** All lock files of crates: the workspace, the build's tool, the fuzz targets. */
const CRATES = ["Cargo.toml", "scripts/tools/Cargo.toml", "tests/fuzz/Cargo.toml"];
const PACKAGES = [ROOT, RUNTIMES, CHARTS, COMPARE, DEPLOY];
const REGISTRY = "https://registry.npmjs.org/";
const TIMEOUT_MS = 60_000;
/** A package that the registry of whoever locked it lacked has no sum: only these, and only for systems that were not theirs. */
const WITHOUT_SUM = /^node_modules\/(@cloudflare\/workerd-|@deno\/|node-\d+(\.\d+)?-)/;

/** Each check: its name, and `run`, which resolves to undefined where all is well, to `{ failed }` or to `{ unasked }`. */
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

/** What came of a command. `unasked` tells from its output that it could not ask. */
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

/** Every package of a lock file has a sum, and comes from the registry. */
export function sumsOf(lock) {
  const wrong = [];
  for (const [path, { integrity, resolved, optional, link }] of Object.entries(JSON.parse(lock).packages)) {
    if (path === "") continue;
    if (link || (resolved !== undefined && !resolved.startsWith(REGISTRY))) wrong.push(`${path} comes from ${link ? "a folder" : resolved}`);
    else if (integrity === undefined ? !(optional && WITHOUT_SUM.test(path)) : !integrity.startsWith("sha512-")) wrong.push(`${path} has no sum of sha512`);
  }
  return wrong.length === 0 ? undefined : { failed: wrong.join("\n") };
}
