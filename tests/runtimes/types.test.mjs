// Tests the types of the packed SDK as TypeScript finds them (imported, required and bundled, by its last two compilers), and the package's metadata for npm.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { RUNTIMES } from "../../scripts/setup/packages.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { StepError, run } from "../../scripts/setup/step.mjs";
import { installApp } from "./packed.mjs";

const LIMIT = { timeout: 90_000 };
const STRICT = ["--strict", "--exactOptionalPropertyTypes", "--noEmit", "--target", "es2023", "--lib", "es2023,dom"];
/** How TypeScript may resolve the package: as Node does, or as bundlers do, which don't know `.cts`. */
const WAYS = {
  "as Node resolves": { flags: ["--module", "nodenext"], files: ["imported.mts", "required.cts"] },
  "as a bundler resolves": { flags: ["--module", "preserve", "--moduleResolution", "bundler"], files: ["imported.mts"] },
};

const { folder, tarball } = await installApp(after);

/** The script of a tool that is installed below a folder. */
function toolOf(root, name, bin) {
  const require = createRequire(join(root, "package.json"));
  const manifest = require.resolve(`${name}/package.json`);
  return join(dirname(manifest), require(manifest).bin[bin]);
}

/** The version of a compiler. */
const versionOf = (tsc) => `TypeScript ${createRequire(tsc)("../package.json").version}`;

/** The complaints of a tool; empty if it has none. */
const complaintOf = (promise) => promise.then(() => "", (error) => (error instanceof StepError ? error.message : Promise.reject(error)));

/** The native compiler, and the last one in JavaScript. */
const COMPILERS = [toolOf(ROOT, "typescript", "tsc"), toolOf(RUNTIMES, "typescript-5", "tsc")];

for (const [tsc, [way, { flags, files }]] of COMPILERS.flatMap((tsc) => Object.entries(WAYS).map((each) => [tsc, each]))) {
  test(`correct application code compiles under --strict, ${way}, and wrong code does not, by ${versionOf(tsc)}`, LIMIT, async () => {
    const args = [tsc, ...STRICT, ...flags, ...files.map((file) => join(folder, "types", file))];
    assert.equal(await complaintOf(run(process.execPath, args, { cwd: folder })), "");
  });
}

test("the types compile with Node's types instead of a browser's, and a wrong option still does not", LIMIT, async () => {
  const types = ["--types", "node", "--typeRoots", join(RUNTIMES, "node_modules/@types")];
  const args = [toolOf(ROOT, "typescript", "tsc"), "--strict", "--noEmit", "--target", "es2023", "--lib", "es2023", "--module", "nodenext", ...types, join(folder, "types/without-browsers.mts")];
  assert.equal(await complaintOf(run(process.execPath, args, { cwd: folder })), "");
});

test("attw finds no fault: each way to resolve leads to types of the right format", LIMIT, async () => {
  const args = [toolOf(RUNTIMES, "@arethetypeswrong/cli", "attw"), tarball, "--no-color", "--no-emoji"];
  // Service workers and workerd have no `require`.
  const modules = ["service-worker", "upstream", "upstream/queue", "worker"];
  for (const more of [["--exclude-entrypoints", ...modules], ["--entrypoints", ...modules, "--profile", "esm-only"]]) {
    assert.equal(await complaintOf(run(process.execPath, [...args, ...more], { cwd: folder })), "");
  }
});

test("every file that package.json names is packed, and is not empty", LIMIT, async () => {
  const root = join(folder, "node_modules/semel");
  const { main, types, exports } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  const paths = [main, types, ...leavesOf(exports)];
  assert.ok(paths.length > 10, "it has an entry for each runtime");
  for (const path of paths) assert.notEqual((await readFile(join(root, path))).length, 0, path);
});

const leavesOf = (value) => (typeof value === "string" ? [value] : Object.values(value).flatMap(leavesOf));

test("the packed package.json has its license, public access, provenance, no dependencies and no install script", LIMIT, async () => {
  const manifest = JSON.parse(await readFile(join(folder, "node_modules/semel/package.json"), "utf8"));
  const { license, publishConfig, sideEffects, scripts, dependencies } = manifest;
  assert.deepEqual({ license, publishConfig, sideEffects, dependencies }, {
    license: "(Apache-2.0 OR MIT)",
    publishConfig: { access: "public", provenance: true },
    sideEffects: false,
    dependencies: undefined,
  });
  assert.deepEqual(Object.keys(scripts), ["prepack"], "nothing runs where it is installed");
});
