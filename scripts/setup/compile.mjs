// Compiles a Rust crate to a wasm module: with cargo, wasm-bindgen (if the module needs JavaScript glue) and wasm-opt.
//
// Invariant: no path of this machine gets into what is published.

import { homedir } from "node:os";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { ROOT, bin } from "./paths.mjs";
import { rustFlags } from "./rust-wasm.mjs";
import { run } from "./step.mjs";
import { wasmBindgen } from "./tools.mjs";

/** The wasm features that rustc may use. wasm-opt refuses those that are not named to it. */
const FEATURES = ["bulk-memory", "nontrapping-float-to-int", "sign-ext", "mutable-globals", "reference-types", "multivalue", "simd"];

/**
 * Compiles `crate`. Resolves to the path of the module as rustc made it. `profile`: cargo's. `rust`: the result of `rustForWasm()`. `cwd`: the folder
 * in which cargo finds the crate. `isLocked`: whether the lock file must be up to date, as in this checkout. `hasSimd`: whether the module may use
 * vectors, which all runtimes of Workers have, but not all browsers.
 */
export async function compileCrate({ crate, profile, features = [], rust: { env, target }, cwd = ROOT, isLocked = true, hasSimd = false }) {
  const cargoHome = process.env.CARGO_HOME ?? join(homedir(), ".cargo");
  const flags = [`--remap-path-prefix=${cargoHome}=/cargo`, `--remap-path-prefix=${ROOT}=/semel`, ...(hasSimd ? ["-Ctarget-feature=+simd128"] : [])];
  const args = ["build", "--profile", profile, ...(isLocked ? ["--locked"] : []), "--target", "wasm32-unknown-unknown", "-p", crate, "--features", features.join()];
  await run("cargo", args, { cwd, env: { ...env, CARGO_TARGET_DIR: target, ...rustFlags(flags) } });
  return join(target, "wasm32-unknown-unknown", profile, `${crate.replaceAll("-", "_")}.wasm`);
}

/**
 * Compiles `crate` into `semel.js` and `semel_bg.wasm` in the folder `output`, which is emptied first. `bindgen`: further options of wasm-bindgen.
 * `optimise`: the passes of wasm-opt. The rest is as for `compileCrate`.
 */
export async function compileWithGlue({ bindgen = [], optimise, output, ...crate }) {
  const wasm = await compileCrate(crate);
  await rm(output, { recursive: true, force: true });
  await mkdir(output, { recursive: true });
  await run(wasmBindgen.path, [
    ...["--target", "web", "--no-typescript", "--omit-default-module-path", ...bindgen],
    ...["--out-name", "semel", "--out-dir", output, wasm],
  ]);
  const module = join(output, "semel_bg.wasm");
  await optimised(module, optimise, module);
}

/** Optimises a module with wasm-opt. */
export async function optimised(module, passes, output) {
  await run(bin("wasm-opt"), [...passes, ...FEATURES.map((name) => `--enable-${name}`), module, "-o", output]);
}
