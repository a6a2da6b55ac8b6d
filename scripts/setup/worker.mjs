// Builds a worker: compiles a Rust crate with a handler, and puts it with the host's JavaScript and the crate's own into one folder that workerd runs.
//
// Invariant: if the bundle is larger than its limit, the build fails.

import { readFile, readdir, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { gzipSync } from "node:zlib";
import { alone } from "./alone.mjs";
import { compileWithGlue } from "./compile.mjs";
import { BUILD, ROOT, bin } from "./paths.mjs";
import { hashOf, onceFor } from "./stamp.mjs";
import { StepError, run, step } from "./step.mjs";
import { rustForWasm } from "./rust-wasm.mjs";
import { wasmBindgen } from "./tools.mjs";

/** The limit of a Worker's bundle. Whoever adds to it must find something to leave out. */
const BUNDLE_GZIP_BYTES_MAX = 332_000;
/** The limit of a Worker whose handlers may emit requests: only that one has the code for it. */
const EMITTING_GZIP_BYTES_MAX = 364_000;
/** The limit of a crate outside this checkout: Cloudflare's limit for everybody. */
export const OWN_GZIP_BYTES_MAX = 3_000_000;
const COMMON = ["Cargo.toml", "Cargo.lock", "core/Cargo.toml", "core/src", "worker/Cargo.toml", "worker/src", "worker/index.js", "worker/host.js", "worker/router.js", "worker/lines.js", "worker/bodies.js", "worker/storage.js", "worker/module.js", "worker/objects.js", "worker/batches.js", "worker/turns.js", "worker/garbage.js", "worker/gathering.js", "worker/signatures.js", "worker/sockets.js", "worker/chores.js", "worker/effects.js", "worker/registry.js", "worker/queue.js", "worker/json.js", "scripts/setup", "scripts/tools", "package-lock.json"];

/** The workers of the checkout: the deployed one, the tests', the ones that are packed into the npm package, and an example. */
export const WORKERS = {
  ledger: { folder: "worker/ledger", crate: "semel-ledger" },
  probe: { folder: "tests/probe", crate: "semel-probe" },
  script: { folder: "worker/script", crate: "semel-script", bytesMax: EMITTING_GZIP_BYTES_MAX },
  "orders-rust": { folder: "examples/orders-rust", crate: "semel-orders" },
  upstream: { folder: "worker/upstream", crate: "semel-upstream" },
};

/**
 * The passes of wasm-opt. The second `-Os` finds what the first has left over, and the third still some. Low memory is unused, because the end of the
 * stack is there, so a constant that is added to an address can become part of the access. Nobody at an edge needs to know which compiler made it, or for
 * which features: the runtime looks at the code.
 */
const OPTIMISE = ["--low-memory-unused", "-Os", "-Os", "-Os", "--strip-producers", "--strip-target-features"];

export const workerFolder = (name) => join(BUILD, name);

/** Builds a worker unless its sources are unchanged. Prints one line for each step. */
export async function buildWorker(name) {
  const { folder, crate, bytesMax } = WORKERS[name];
  const output = workerFolder(name);
  const hash = await hashOf([...COMMON, folder]);
  const unchanged = await onceFor(join(BUILD, `${name}.stamp`), hash, () => build(name, { crate, bytesMax, folder: join(ROOT, folder), output }));
  if (unchanged) await step(`worker ${name}`, async () => "unchanged");
}

/** Builds the worker of the crate in `folder`, anywhere, into `output`. Cargo keeps what it has compiled before. */
export async function buildWorkerOf(folder, output) {
  const { packages } = JSON.parse(await run("cargo", ["metadata", "--no-deps", "--format-version=1"], { cwd: folder }));
  const own = packages.find(({ manifest_path: path }) => path === join(folder, "Cargo.toml"));
  if (!own) throw new StepError(`${folder} has no Cargo.toml of a crate.`);
  await alone(() => build(own.name, { crate: own.name, bytesMax: OWN_GZIP_BYTES_MAX, folder, output, isLocked: false }));
}

async function build(name, { folder, output, bytesMax = BUNDLE_GZIP_BYTES_MAX, ...crate }) {
  let rust;
  await step("Rust for wasm", async () => {
    rust = await rustForWasm();
    return rust.note;
  });
  await step("wasm-bindgen", wasmBindgen.build);
  await step(`worker ${name}`, () => compile({ ...crate, cwd: folder, rust }, output));
  await step(`size of ${name}`, () => checkSize(output, bytesMax));
}

async function compile(crate, output) {
  // SIMD: without vectors, SHA-256 alone takes 11 kB more.
  await compileWithGlue({ ...crate, profile: "release", hasSimd: true, bindgen: ["--experimental-reset-state-function"], optimise: OPTIMISE, output });
  const modules = new Map([["semel.js", join(output, "semel.js")]]);
  // A module of the crate replaces the host's module of the same name.
  for (const from of [join(ROOT, "worker"), crate.cwd]) {
    for (const name of await readdir(from)) if (name.endsWith(".js")) modules.set(name, join(from, name));
  }
  await withoutSpace(await imported(modules), output);
}

/** Resolves to the modules that the Worker imports, starting at `index.js`. So what only some handlers need costs the others nothing. */
export async function imported(modules) {
  const reached = new Set(["index.js"]);
  for (const name of reached) {
    const source = await readFile(modules.get(name), "utf8");
    for (const [, other] of source.matchAll(/(?:\bfrom|\bimport)\s*["']\.\/([^"']+\.js)["']/g)) {
      if (!modules.has(other)) throw new StepError(`${name} imports ./${other}, which is neither beside the crate's Cargo.toml nor in worker/.`);
      reached.add(other);
    }
  }
  return [...reached].map((name) => modules.get(name));
}

/**
 * Writes modules without comments, spaces and unused code, and with short local names. Functions keep their names and are not inlined, so that a stack
 * trace still says which one threw. In the generated glue, names are shortened, too.
 */
async function withoutSpace(modules, output) {
  const options = ["--minify-whitespace", "--minify-syntax", "--tree-shaking=true", "--format=esm", "--target=es2022", "--log-level=warning", "--entry-names=[name]", "--allow-overwrite", `--outdir=${output}`];
  await run(bin("esbuild"), [...modules, ...options]);
  // Loaded only now, because most starts need no build.
  const { minify } = await import("terser");
  for (const path of modules.map((module) => join(output, basename(module)))) {
    const hasNames = !path.endsWith("/semel.js");
    const { code } = await minify(await readFile(path, "utf8"), { module: true, ecma: 2020, compress: { inline: false, reduce_funcs: false }, keep_fnames: hasNames, keep_classnames: hasNames });
    await writeFile(path, code);
  }
}

/** Adds up the bundle, each file compressed with gzip. Throws if that is over the limit. */
export async function checkSize(output, bytesMax = BUNDLE_GZIP_BYTES_MAX) {
  let bytes = 0;
  for (const name of await readdir(output)) bytes += gzipSync(await readFile(join(output, name)), { level: 9 }).length;
  if (bytes > bytesMax) {
    throw new StepError(`The bundle has ${bytes} bytes gzip; the limit is ${bytesMax}.`, "Find what grew: a new dependency, as a rule; in a crate elsewhere, one without [profile.release] of this checkout's Cargo.toml.");
  }
  return `${bytes} of ${bytesMax} bytes gzip`;
}
