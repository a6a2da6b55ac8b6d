// The command line tools that come as source. Built once a version, below `target/`.
//
// Invariant: the build's tools and the tests' are crates of their own, so that what ships never waits for test tools.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { ROOT, TARGET } from "./paths.mjs";
import { hashOf, onceFor } from "./stamp.mjs";
import { StepError, run } from "./step.mjs";

/** One target folder: most of what the two crates compile is the same. */
const target = join(TARGET, "tools");

/** Where all of them lie, side by side: wasm-pack looks for the test runner next to wasm-bindgen. */
export const toolsFolder = join(target, "release");

export const wasmBindgen = {
  path: join(toolsFolder, "wasm-bindgen"),
  build: () => build("scripts/tools", "stamp"),
};

/** wasm-pack, and the runner that it hands tests to. */
export const testTools = {
  wasmPack: join(toolsFolder, "wasm-pack"),
  build: () => build("scripts/test-tools", "test-stamp"),
};

async function build(folder, stamp) {
  await checkVersion(folder);
  return onceFor(join(target, stamp), await hashOf([folder]), async () => {
    await run("cargo", ["build", "--release", "--locked"], {
      cwd: join(ROOT, folder),
      env: { CARGO_TARGET_DIR: target },
      advice: "Check that the crates registry can be reached, then try again.",
    });
    return "built";
  });
}

/** wasm-bindgen's tools must be of the very version of the library that the workspace is locked to. */
async function checkVersion(folder) {
  const lock = await readFile(join(ROOT, "Cargo.lock"), "utf8");
  const library = /name = "wasm-bindgen"\nversion = "([^"]+)"/.exec(lock)?.[1];
  const manifest = await readFile(join(ROOT, folder, "Cargo.toml"), "utf8");
  const tool = /wasm-bindgen-cli = \{ version = "=([^"]+)"/.exec(manifest)?.[1];
  if (library !== tool) throw new StepError(`Cargo.lock has wasm-bindgen ${library}, ${folder} has ${tool}.`, `Set both to one version.`);
}
