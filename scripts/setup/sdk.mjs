// Builds the SDK: the crate in `sdk/` and the JavaScript around it, into the folder of the npm package.
//
// Invariants:
// - Every build adds up what a browser loads, each file as it would be sent. A test checks the limit, not the build: another compiler may make some
//   bytes more, and the build must not fail for that.
// - These files of the package are generated: the modules, the JavaScript that all entries share, the entries of browsers with their sessions and
//   service workers, the forms of module and JavaScript for `require` and `semel/inline`, the other entries for `require`, and the licenses.
//   `GENERATED` names them all, and none is in git. `cli.mjs` generates the command line, which no entry loads. `packed-worker.mjs` fills `worker/`
//   and `upstream/`, and `packed-inspector.mjs` fills `inspector/`.

import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { copyFile, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { brotliCompressSync, constants } from "node:zlib";
import { CLI_GENERATED, buildCli } from "./cli.mjs";
import { compileCrate, optimised } from "./compile.mjs";
import { BUILD, ROOT, bin } from "./paths.mjs";
import { rustForWasm } from "./rust-wasm.mjs";
import { hashOf, onceFor } from "./stamp.mjs";
import { run, step } from "./step.mjs";
import { withoutPanics } from "./without-panics.mjs";

const PACKAGE_BROTLI_BYTES_MAX = 28_000;
/**
 * What sessions pay bytes for: a call that costs the same however many wait; calls that cross into the module together, rows in memory that don't
 * cross, and two frames under way (a call takes three fifths of the CPU in Node, and the server is not idle in between); batches, which an outbox
 * loads from here, too; a module that is compiled for speed before size (an eighth less CPU for each call); and requests that only a batch refuses.
 */
const SESSION_BROTLI_BYTES_MAX = 32_600;
/** What a browser loads of the package. Other entries differ by a few lines. */
export const LOADED = ["semel.wasm", "semel.js", "index.js", "service-worker.js"];
/** What a browser loads in addition at the first session; and all of it but the module if an outbox sends batches. */
export const LOADED_FOR_SESSIONS = ["session.wasm", "session.js", "session-browser.js"];
const CRATE = "semel-sdk";
/** The name by which a module calls the function that takes all calls, before `namedByContent` replaces it. */
const CALL = "_call";
/**
 * Names of properties that only the SDK's own code uses. The build shortens them, the same way in all scripts. No type of the package has one of
 * them, nor does anything that the SDK uses of a runtime.
 */
export const OWN_NAMES =
  /^(tell|integer|isEmpty|takeOver|overview|transmit|deliver|gaveUp|pause|lose|count|isDrawn|numbers|wasOpen|hasAnswered|underWay|isAuto|opened|againMs|alone|byte|end|forgets|host|later|left|show|ticket|doubt)$/;
/**
 * The passes of wasm-opt, in an order found by trying some hundred. (Compared by means over a dozen names of `_call`: one name or another makes a
 * difference of 20 bytes.) `--flatten` shows what is computed twice; `--rereloop` lays branches out anew; short functions are inlined, and those that
 * differ in a constant become one. Low memory is unused, because the end of the stack is there; the module's own memory starts as zeros. The stripped
 * sections are only for tools.
 */
export const OPTIMISE = [
  ...["--low-memory-unused", "--zero-filled-memory", "--merge-similar-functions", "--always-inline-max-function-size=3"],
  ...["--flatten", "--rereloop", "--merge-blocks", "--simplify-locals-nostructure", "--simplify-locals-notee-nostructure", "-Oz"],
  ...["--flatten", "--simplify-locals-nostructure", "--precompute-propagate", "--code-folding", "-Oz"],
  ...["--coalesce-locals-learning", "--simplify-locals", "-Oz", "--reorder-functions", "--coalesce-locals-learning"],
  ...["--strip-debug", "--strip-producers", "--strip-target-features"],
];
/**
 * Line breaks in a script that may throw, for some 15 bytes: for an uncaught error, Node shows the line that threw, which would be the whole script.
 */
const LINES = { semicolons: false, max_line_len: 800 };
/** The module before it is optimised, while its functions still have names. */
export const NAMED_MODULE = join(BUILD, "sdk.wasm");
const NAMED_SESSION = join(BUILD, "session.wasm");
const LICENSES = ["LICENSE-APACHE", "LICENSE-MIT"];
/** Entries that have one source, from which the form for `require` is generated. */
const REQUIRED = ["file", "conformance"];
/** The same for a file without types, which is no entry. */
const REQUIRED_INSIDE = ["late"];
const REQUIRED_FILES = ["index.d.cts", "semel.cjs", "session.cjs", ...REQUIRED_INSIDE.map((name) => `${name}.cjs`), ...REQUIRED.flatMap((name) => [`${name}.cjs`, `${name}.d.cts`])].map((name) => `cjs/${name}`);
const INLINED = { wasm: "semel.wasm", "session-wasm": "session.wasm" };
const INLINED_FILES = Object.keys(INLINED).flatMap((name) => [`inline/${name}.js`, `inline/${name}.cjs`]);
const GENERATED = ["semel.js", "semel.wasm", "session.js", "session-browser.js", "session.wasm", "index.js", "service-worker.js", ...REQUIRED_FILES, ...INLINED_FILES, ...LICENSES];
/** Folders of the package that other scripts fill. */
const PACKED = ["inspector", "upstream", "worker"];
const SOURCES = ["Cargo.toml", "Cargo.lock", "core/Cargo.toml", "core/src", "sdk/Cargo.toml", "sdk/src", "sdk/js", "scripts/setup", "scripts/tools", "package-lock.json"];

/** The npm package: its entry points and types are written by hand, the rest is built. */
export const SDK_PACKAGE = join(ROOT, "sdk/npm");

/** Builds the SDK unless its sources are unchanged. Prints one line for each step. */
export async function buildSdk() {
  const stamp = join(BUILD, "sdk.stamp");
  // The output is among the sources, where a clean-up may remove it without the stamp.
  if (GENERATED.some((name) => !existsSync(join(SDK_PACKAGE, name)))) await rm(stamp, { force: true });
  const byHand = (await filesOf(SDK_PACKAGE)).filter((name) => ![...GENERATED, ...CLI_GENERATED].includes(name)).map((name) => `sdk/npm/${name}`);
  const unchanged = await onceFor(stamp, await hashOf([...SOURCES, ...byHand]), async () => {
    let rust;
    await step("Rust for wasm", async () => {
      rust = await rustForWasm();
      return rust.note;
    });
    await step("SDK", () => build(rust));
    await step("size of the SDK", async () => (await sizeOf(SDK_PACKAGE)).note);
    await step("size of sessions", async () => (await sizeOfSessions(SDK_PACKAGE)).note);
  });
  if (unchanged) await step("SDK", async () => "unchanged");
  await buildCli();
}

async function build(rust) {
  await mkdir(BUILD, { recursive: true });
  // Both come from one crate, so cargo writes the same file: each is used before the next is compiled.
  for (const [name, named, profile, features] of [["semel.wasm", NAMED_MODULE, "sdk", []], ["session.wasm", NAMED_SESSION, "sdk-session", ["session"]]]) {
    await withoutPanics(await compileCrate({ crate: CRATE, profile, rust, features }), named);
    await optimised(named, OPTIMISE, join(SDK_PACKAGE, name));
  }
  const short = {};
  for (const [source, name] of [["package.js", "semel"], ["session.js", "session"]]) {
    const call = await namedByContent(join(SDK_PACKAGE, `${name}.wasm`));
    for (const [file, format] of [[`${name}.js`, "esm"], [`cjs/${name}.cjs`, "cjs"]]) {
      await bundleOwn(join(ROOT, "sdk/js", source), file, format, short);
      await shrink(join(SDK_PACKAGE, file), format === "esm", LINES);
      await writeFile(join(SDK_PACKAGE, file), (await readFile(join(SDK_PACKAGE, file), "utf8")).replaceAll(CALL, call));
    }
  }
  await bundle(join(ROOT, "sdk/js/browser.js"), "index.js", ["--format=esm", "--minify", "--external:./semel.js", "--external:./session-browser.js"]);
  await bundle(join(ROOT, "sdk/js/service-worker.js"), "service-worker.js", ["--format=esm", "--minify", "--alias:semel=./index.js", "--external:./index.js"]);
  await bundle(join(ROOT, "sdk/js/session-browser.js"), "session-browser.js", ["--format=esm", "--minify", "--external:./session.js"]);
  for (const file of ["index.js", "service-worker.js", "session-browser.js"]) await shrink(join(SDK_PACKAGE, file), true);
  // These import the package by its name, so that they use the same classes as the application.
  for (const name of [...REQUIRED, ...REQUIRED_INSIDE]) await bundle(join(SDK_PACKAGE, `${name}.js`), `cjs/${name}.cjs`, ["--format=cjs", "--platform=node", "--external:semel"]);
  await writeCopies();
}

/**
 * Renames the module's function that takes all calls, by a hash of the whole module, and returns the name. So JavaScript that was built for another
 * module does not find the function. The name is as long as the old one, so nothing else in the module moves.
 */
async function namedByContent(path) {
  const module = await readFile(path);
  const name = `_${createHash("sha256").update(module).digest("hex").slice(0, 4)}`;
  module.write(name, module.indexOf(CALL));
  await writeFile(path, module);
  return name;
}

async function bundle(source, name, options) {
  await run(bin("esbuild"), [source, "--bundle", ...options, "--target=es2022", "--log-level=warning", `--outfile=${join(SDK_PACKAGE, name)}`]);
}

/** Bundles with short names for the SDK's own properties. `short` maps them; new ones are added to it. */
async function bundleOwn(source, name, format, short) {
  // Loaded only now, like `terser`.
  const { build: bundled } = await import("esbuild");
  const options = { bundle: true, minify: true, target: "es2022", mangleProps: OWN_NAMES, mangleCache: short };
  const { mangleCache } = await bundled({ entryPoints: [source], outfile: join(SDK_PACKAGE, name), format, ...options });
  Object.assign(short, mangleCache);
}

/** Makes a script smaller than esbuild can. */
async function shrink(path, isModule, format = {}) {
  // Loaded only now, because most starts need no build.
  const { minify } = await import("terser");
  // `unsafe_arrows` would break a function that is called with `new`, of which there is none.
  const compress = { passes: 3, hoist_funs: true, unsafe_arrows: true };
  const { code } = await minify(await readFile(path, "utf8"), { module: isModule, toplevel: true, ecma: 2020, compress, format });
  await writeFile(path, code);
}

/** Writes the files that the package has twice, under another name or in another form. */
async function writeCopies() {
  for (const name of LICENSES) await copyFile(join(ROOT, name), join(SDK_PACKAGE, name));
  // TypeScript would take the types for those of an ES module, unless the file is named so.
  for (const name of ["index", ...REQUIRED]) await copyFile(join(SDK_PACKAGE, `${name}.d.ts`), join(SDK_PACKAGE, `cjs/${name}.d.cts`));
  for (const [name, module] of Object.entries(INLINED)) {
    const base64 = JSON.stringify(await readFile(join(SDK_PACKAGE, module), "base64"));
    await writeFile(join(SDK_PACKAGE, `inline/${name}.js`), `export default ${base64};\n`);
    await writeFile(join(SDK_PACKAGE, `inline/${name}.cjs`), `module.exports = ${base64};\n`);
  }
}

/** Resolves to the sorted paths of all files below a folder, except the packed folders, which another build may be writing. */
async function filesOf(folder) {
  const files = [];
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    if (PACKED.includes(entry.name)) continue;
    if (!entry.isDirectory()) files.push(entry.name);
    else files.push(...(await filesOf(join(folder, entry.name))).map((name) => `${entry.name}/${name}`));
  }
  return files.sort();
}

/** Adds up what a browser loads of the package in `folder`, each file compressed with brotli: `{ note, isWithin }`. */
export const sizeOf = (folder) => sum(folder, LOADED, PACKAGE_BROTLI_BYTES_MAX);

/** The same for what it loads in addition for sessions. */
export const sizeOfSessions = (folder) => sum(folder, LOADED_FOR_SESSIONS, SESSION_BROTLI_BYTES_MAX);

async function sum(folder, names, bytesMax) {
  const [wasm, ...scripts] = await Promise.all(names.map((name) => brotliBytes(join(folder, name))));
  const js = scripts.reduce((sum, bytes) => sum + bytes);
  const note = `${count(wasm + js)} of ${count(bytesMax)} bytes brotli (wasm ${count(wasm)}, JS ${count(js)})`;
  return { note, isWithin: wasm + js <= bytesMax };
}

/** Resolves to the size of a file as it would be sent, in bytes. */
export async function brotliBytes(path) {
  return brotliCompressSync(await readFile(path), { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }).length;
}

const count = (bytes) => bytes.toLocaleString("en-US");
