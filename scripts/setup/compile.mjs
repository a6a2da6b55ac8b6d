// From a Rust crate to a wasm module: cargo, wasm-bindgen for its JS where it has any, wasm-opt.
//
// Invariant: no path of this machine goes into what is published.

import { homedir } from "node:os";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { ROOT, bin } from "./paths.mjs";
import { rustFlags } from "./rust-wasm.mjs";
import { run } from "./step.mjs";
import { wasmBindgen } from "./tools.mjs";

/** What rustc lets a module use. wasm-opt would refuse it unnamed. */
const FEATURES = ["bulk-memory", "nontrapping-float-to-int", "sign-ext", "mutable-globals", "reference-types", "multivalue", "simd"];

/**
 * Compiles `crate`, and resolves to the module as rustc made it. `profile`: cargo's; `rust`: of `rustForWasm()`; `cwd`: where cargo finds
 * the crate; `isLocked`: whether it must have its lock file, as what is here has; `hasSimd`: whether it may use vectors, which all runtimes of
 * Workers have, and not all browsers.
 */
export async function compileCrate({ crate, profile, features = [], rust: { env, target }, cwd = ROOT, isLocked = true, hasSimd = false }) {
  const cargoHome = process.env.CARGO_HOME ?? join(homedir(), ".cargo");
  const flags = [`--remap-path-prefix=${cargoHome}=/cargo`, `--remap-path-prefix=${ROOT}=/semel`, ...(hasSimd ? ["-Ctarget-feature=+simd128"] : [])];
  const args = ["build", "--profile", profile, ...(isLocked ? ["--locked"] : []), "--target", "wasm32-unknown-unknown", "-p", crate, "--features", features.join()];
  await run("cargo", args, { cwd, env: { ...env, CARGO_TARGET_DIR: target, ...rustFlags(flags) } });
  return join(target, "wasm32-unknown-unknown", profile, `${crate.replaceAll("-", "_")}.wasm`);
}

/**
 * Compiles `crate` into `semel.js` and `semel_bg.wasm` in the folder `output`, which is emptied first.
 * `bindgen`: more of wasm-bindgen's options; `optimise`: wasm-opt's passes; the rest as above.
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

/** Puts a module through wasm-opt. */
export async function optimised(module, passes, output) {
  await run(bin("wasm-opt"), [...passes, ...FEATURES.map((name) => `--enable-${name}`), module, "-o", output]);
}
