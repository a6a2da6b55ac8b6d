// Builds the command line: bundles `sdk/cli` with its libraries into one file of the npm package.
//
// Invariant: a file beside the bundle names each bundled package with its license.

import { chmod, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { BUILD, ROOT } from "./paths.mjs";
import { hashOf, onceFor } from "./stamp.mjs";
import { step } from "./step.mjs";

const FOLDER = join(ROOT, "sdk/npm/bin");
/** The generated files, as paths in the package. */
export const CLI_GENERATED = ["bin/semel.cjs", "bin/LICENSES.txt"];
const MANIFEST = "sdk/npm/package.json";

/** Builds it unless its sources are unchanged. Prints one line for each step. */
export async function buildCli() {
  const stamp = join(BUILD, "cli.stamp");
  if (CLI_GENERATED.some((name) => !existsSync(join(ROOT, "sdk/npm", name)))) await rm(stamp, { force: true });
  const sources = ["sdk/cli", "sdk/admin", MANIFEST, "scripts/setup/cli.mjs", "package-lock.json"];
  const unchanged = await onceFor(stamp, await hashOf(sources), () => step("command line", build));
  if (unchanged) await step("command line", async () => unchanged);
}

async function build() {
  await mkdir(FOLDER, { recursive: true });
  const { version } = JSON.parse(await readFile(join(ROOT, MANIFEST), "utf8"));
  const { build: bundle } = await import("esbuild");
  const outfile = join(FOLDER, "semel.cjs");
  const { metafile } = await bundle({
    absWorkingDir: ROOT,
    entryPoints: ["sdk/cli/bin.js"],
    outfile,
    bundle: true,
    minify: true,
    // CommonJS, because a library of that form calls `require` for Node's modules, which an ES module does not have.
    format: "cjs",
    platform: "node",
    target: "node20",
    banner: { js: "#!/usr/bin/env node" },
    define: { SEMEL_VERSION: JSON.stringify(version) },
    logLevel: "warning",
    metafile: true,
  });
  await chmod(outfile, 0o755);
  await writeFile(join(FOLDER, "LICENSES.txt"), await licensesOf(Object.keys(metafile.inputs)));
}

/** The licenses of the packages that the files belong to, as one text. */
async function licensesOf(files) {
  const packages = new Set(files.filter((file) => file.startsWith("node_modules/")).map((file) => /^node_modules\/((@[^/]+\/)?[^/]+)/.exec(file)[1]));
  const texts = [];
  for (const name of [...packages].sort()) {
    const manifest = join(ROOT, "node_modules", name, "package.json");
    const { version, license } = JSON.parse(await readFile(manifest, "utf8"));
    texts.push(`${name} ${version} (${license})\n\n${(await readFile(join(dirname(manifest), "LICENSE"), "utf8")).trim()}\n`);
  }
  return `semel.cjs has these packages in it.\n\n${texts.join(`\n${"-".repeat(80)}\n\n`)}`;
}
