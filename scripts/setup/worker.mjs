// Builds a worker: a Rust crate with a handler, its host and its entry, into one folder that workerd runs.
//
// Invariant: the bundle stays below its limit, or the build fails.

import { copyFile, mkdir, readFile, readdir, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { BUILD, ROOT, bin } from "./paths.mjs";
import { hashOf, onceFor } from "./stamp.mjs";
import { StepError, run, step } from "./step.mjs";
import { rustForWasm } from "./rust-wasm.mjs";
import { wasmBindgen } from "./tools.mjs";

const BUNDLE_GZIP_BYTES_MAX = 300_000;
const COMMON = ["Cargo.toml", "Cargo.lock", "core/Cargo.toml", "core/src", "worker/Cargo.toml", "worker/src", "worker/host.js", "scripts/setup", "scripts/tools", "package-lock.json"];

/** The workers that can be built: the deployed one, and the tests' own. */
export const WORKERS = {
  ledger: { folder: "worker/ledger", crate: "semel-ledger" },
  probe: { folder: "tests/probe", crate: "semel-probe" },
};

export const workerFolder = (name) => join(BUILD, name);

/** Builds a worker unless its sources are unchanged, a line a step. */
export async function buildWorker(name) {
  const { folder, crate } = WORKERS[name];
  const output = workerFolder(name);
  const hash = await hashOf([...COMMON, folder]);
  const unchanged = await onceFor(join(BUILD, `${name}.stamp`), hash, async () => {
    let rust;
    await step("Rust for wasm", async () => {
      rust = await rustForWasm();
      return rust.note;
    });
    await step("wasm-bindgen", wasmBindgen.build);
    await step(`worker ${name}`, () => compile(crate, folder, output, rust));
    await step(`size of ${name}`, () => checkSize(output));
  });
  if (unchanged) await step(`worker ${name}`, async () => "unchanged");
}

async function compile(crate, folder, output, { env, target }) {
  const cargoHome = process.env.CARGO_HOME ?? join(homedir(), ".cargo");
  // No path of this machine goes into what is published.
  const flags = `--remap-path-prefix=${cargoHome}=/cargo --remap-path-prefix=${ROOT}=/semel`;
  const args = ["build", "--release", "--locked", "--target", "wasm32-unknown-unknown", "-p", crate];
  await run("cargo", args, { cwd: ROOT, env: { ...env, CARGO_TARGET_DIR: target, RUSTFLAGS: flags } });
  await rm(output, { recursive: true, force: true });
  await mkdir(output, { recursive: true });
  const wasm = join(target, "wasm32-unknown-unknown/release", `${crate.replaceAll("-", "_")}.wasm`);
  await run(wasmBindgen.path, [
    ...["--target", "web", "--no-typescript", "--omit-default-module-path", "--experimental-reset-state-function"],
    ...["--out-name", "semel", "--out-dir", output, wasm],
  ]);
  const module = join(output, "semel_bg.wasm");
  await run(bin("wasm-opt"), ["-O3", "--enable-bulk-memory", "--enable-nontrapping-float-to-int", "--enable-sign-ext", "--enable-mutable-globals", "--enable-reference-types", "--enable-multivalue", module, "-o", module]);
  await copyFile(join(ROOT, "worker/host.js"), join(output, "host.js"));
  await copyFile(join(ROOT, folder, "index.js"), join(output, "index.js"));
}

/** Adds up the bundle, each file in gzip. */
export async function checkSize(output) {
  let bytes = 0;
  for (const name of await readdir(output)) bytes += gzipSync(await readFile(join(output, name)), { level: 9 }).length;
  if (bytes > BUNDLE_GZIP_BYTES_MAX) {
    throw new StepError(`The bundle has ${bytes} bytes gzip; the limit is ${BUNDLE_GZIP_BYTES_MAX}.`, "Find what grew: a new dependency, as a rule.");
  }
  return `${bytes} of ${BUNDLE_GZIP_BYTES_MAX} bytes gzip`;
}
