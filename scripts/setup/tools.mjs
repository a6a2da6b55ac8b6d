// Builds wasm-bindgen, the command line tool that comes as source: once for each version, below `target/`.
//
// Invariant: its version is exactly that of the library in the workspace's lock file.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { ROOT, TARGET } from "./paths.mjs";
import { hashOf, onceFor } from "./stamp.mjs";
import { StepError, run } from "./step.mjs";

const FOLDER = "scripts/tools";
const target = join(TARGET, "tools");

export const wasmBindgen = { path: join(target, "release/wasm-bindgen"), build };

async function build() {
  await checkVersion();
  return onceFor(join(target, "stamp"), await hashOf([FOLDER]), async () => {
    await run("cargo", ["build", "--release", "--locked"], {
      cwd: join(ROOT, FOLDER),
      env: { CARGO_TARGET_DIR: target },
      advice: "Check that the crates registry can be reached, then try again.",
    });
    return "built";
  });
}

async function checkVersion() {
  const lock = await readFile(join(ROOT, "Cargo.lock"), "utf8");
  const library = /name = "wasm-bindgen"\nversion = "([^"]+)"/.exec(lock)?.[1];
  const manifest = await readFile(join(ROOT, FOLDER, "Cargo.toml"), "utf8");
  const tool = /wasm-bindgen-cli = \{ version = "=([^"]+)"/.exec(manifest)?.[1];
  if (library !== tool) throw new StepError(`Cargo.lock has wasm-bindgen ${library}, ${FOLDER} has ${tool}.`, "Set both to one version.");
}
