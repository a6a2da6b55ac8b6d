// From a Rust crate to a wasm module and its JS: cargo, wasm-bindgen, wasm-opt.
//
// Invariant: no path of this machine goes into what is published.

import { homedir } from "node:os";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { ROOT, bin } from "./paths.mjs";
import { run } from "./step.mjs";
import { wasmBindgen } from "./tools.mjs";

/** What rustc lets the module use. wasm-opt would refuse it unnamed. */
const FEATURES = ["bulk-memory", "nontrapping-float-to-int", "sign-ext", "mutable-globals", "reference-types", "multivalue"];

/**
 * Compiles `crate` into `semel.js` and `semel_bg.wasm` in the folder `output`, which is emptied first.
 * `profile`: cargo's; `bindgen`: more of wasm-bindgen's options; `optimise`: wasm-opt's passes; `rust`: of `rustForWasm()`.
 */
export async function compileToWasm({ crate, profile, bindgen = [], optimise, output, rust: { env, target } }) {
  const cargoHome = process.env.CARGO_HOME ?? join(homedir(), ".cargo");
  const flags = `--remap-path-prefix=${cargoHome}=/cargo --remap-path-prefix=${ROOT}=/semel`;
  const args = ["build", "--profile", profile, "--locked", "--target", "wasm32-unknown-unknown", "-p", crate];
  await run("cargo", args, { cwd: ROOT, env: { ...env, CARGO_TARGET_DIR: target, RUSTFLAGS: flags } });
  await rm(output, { recursive: true, force: true });
  await mkdir(output, { recursive: true });
  const wasm = join(target, "wasm32-unknown-unknown", profile, `${crate.replaceAll("-", "_")}.wasm`);
  await run(wasmBindgen.path, [
    ...["--target", "web", "--no-typescript", "--omit-default-module-path", ...bindgen],
    ...["--out-name", "semel", "--out-dir", output, wasm],
  ]);
  const module = join(output, "semel_bg.wasm");
  await run(bin("wasm-opt"), [...optimise, ...FEATURES.map((name) => `--enable-${name}`), module, "-o", module]);
}
