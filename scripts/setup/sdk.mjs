// Builds the browser SDK: the crate in `sdk/` and the JavaScript round it, into the npm package's folder.
//
// Invariants:
// - What a browser loads is added up with every build, each file as it would be sent. A test holds it to its limit: a build must not
//   fail where another compiler makes some bytes more.
// - Of the package, these are generated: the module, the JavaScript that all entries share, the entries of browsers, their sessions and service workers, module and JavaScript once more in the forms that
//   `require` and `semel/inline` take, the other entries once more for `require`, and the licenses. `GENERATED` names them all, and git
//   has none of them. The command line is generated too, by `cli.mjs`: no entry loads it. `worker/` and `upstream/` are what
//   `packed-worker.mjs` puts there, and `inspector/` what `packed-inspector.mjs` does.

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
 * Half a thousand more than it was before a call cost the same however many wait: lists of what is asked of all, and calls without a `Request`. And 1,300 for
 * calls that cross to the module many at once, rows in memory that don't, and two frames under way: a call takes Node three fifths of the CPU, and the server is not idle meanwhile.
 * And a thousand for what an outbox sends together: it needs what is in a batch as sessions do, and so comes with them. And two thousand for a module that is
 * compiled to be fast before it is small: an eighth less of the CPU for each call. And 400 for what only a batch refuses or can't answer, which goes by itself.
 * And 100 to say where there is no `WebSocket`.
 */
const SESSION_BROTLI_BYTES_MAX = 32_600;
/** What a browser loads, of all there is. Other entries are a few lines more or less. */
export const LOADED = ["semel.wasm", "semel.js", "index.js", "service-worker.js"];
/** What it loads at the first session, besides; of these, all but the module where an outbox sends together. */
export const LOADED_FOR_SESSIONS = ["session.wasm", "session.js", "session-browser.js"];
const CRATE = "semel-sdk";
/** What a module calls the function that takes all calls, before it is named by what the module is. */
const CALL = "_call";
/** Properties that only the SDK's own code knows: in what is built their names are short, in all scripts the same. None is in a type of the package, nor is any of what it uses of a runtime's. */
export const OWN_NAMES =
  /^(tell|integer|isEmpty|takeOver|overview|transmit|deliver|gaveUp|pause|lose|count|isDrawn|numbers|wasOpen|hasAnswered|underWay|isAuto|opened|againMs|alone|byte|end|forgets|host|later|left|show|ticket)$/;
/**
 * In this order by trial, of some hundred. Flat code shows what is computed twice, and branches are laid out anew; short functions are written
 * where they are called. Low memory is the end of the stack, where nothing lies; the module's memory is its own, so it begins with zeros. The
 * sections are for tools that are done with it.
 */
export const OPTIMISE = [
  ...["--low-memory-unused", "--zero-filled-memory", "--always-inline-max-function-size=3"],
  ...["--flatten", "--rereloop", "--merge-blocks", "--simplify-locals-notee-nostructure", "-Oz"],
  ...["--flatten", "--simplify-locals-notee-nostructure", "--precompute-propagate", "--local-cse", "-Oz", "--simplify-locals", "-Oz"],
  ...["--reorder-functions", "--reorder-locals", "--strip-debug", "--strip-producers", "--strip-target-features"],
];
/** What throws has lines, for some 20 bytes: of an error that nobody catches Node shows the line that threw, which would be all of the script. */
const LINES = { semicolons: false, max_line_len: 500 };
/** The module before it is optimised: its functions have names. */
export const NAMED_MODULE = join(BUILD, "sdk.wasm");
const NAMED_SESSION = join(BUILD, "session.wasm");
const LICENSES = ["LICENSE-APACHE", "LICENSE-MIT"];
/** What has one source, and is generated in the form that `require` takes. */
const REQUIRED = ["file", "conformance"];
/** The same of what has no types: no entry. */
const REQUIRED_INSIDE = ["late"];
const REQUIRED_FILES = ["index.d.cts", "semel.cjs", "session.cjs", ...REQUIRED_INSIDE.map((name) => `${name}.cjs`), ...REQUIRED.flatMap((name) => [`${name}.cjs`, `${name}.d.cts`])].map((name) => `cjs/${name}`);
const INLINED = { wasm: "semel.wasm", "session-wasm": "session.wasm" };
const INLINED_FILES = Object.keys(INLINED).flatMap((name) => [`inline/${name}.js`, `inline/${name}.cjs`]);
const GENERATED = ["semel.js", "semel.wasm", "session.js", "session-browser.js", "session.wasm", "index.js", "service-worker.js", ...REQUIRED_FILES, ...INLINED_FILES, ...LICENSES];
/** Folders of the package that others fill. */
const PACKED = ["inspector", "upstream", "worker"];
const SOURCES = ["Cargo.toml", "Cargo.lock", "core/Cargo.toml", "core/src", "sdk/Cargo.toml", "sdk/src", "sdk/js", "scripts/setup", "scripts/tools", "package-lock.json"];

/** The npm package: entry points and types by hand, and what is built. */
export const SDK_PACKAGE = join(ROOT, "sdk/npm");

/** Builds the SDK unless its sources are unchanged, a line a step. */
export async function buildSdk() {
  const stamp = join(BUILD, "sdk.stamp");
  // The output lies among sources, where a clean-up takes it and leaves the stamp.
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
  // One crate, and so one file of cargo's: each is taken before the next.
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
  // They ask for the package by its name, so that its classes are the ones that the application has.
  for (const name of [...REQUIRED, ...REQUIRED_INSIDE]) await bundle(join(SDK_PACKAGE, `${name}.js`), `cjs/${name}.cjs`, ["--format=cjs", "--platform=node", "--external:semel"]);
  await writeCopies();
}

/**
 * Gives a module's function that takes all calls a name that tells of the whole of it, and returns that: JavaScript that was built for another finds
 * none. As long as the name before, so nothing else of the module moves.
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

/** With the names of its own properties made short: as `short` has them, which is given those that it has not. */
async function bundleOwn(source, name, format, short) {
  // Loaded here, as `terser` is.
  const { build: bundled } = await import("esbuild");
  const options = { bundle: true, minify: true, target: "es2022", mangleProps: OWN_NAMES, mangleCache: short };
  const { mangleCache } = await bundled({ entryPoints: [source], outfile: join(SDK_PACKAGE, name), format, ...options });
  Object.assign(short, mangleCache);
}

/** Makes a script smaller that esbuild has made small. */
async function shrink(path, isModule, format = {}) {
  // Loaded here: most starts need no build.
  const { minify } = await import("terser");
  const { code } = await minify(await readFile(path, "utf8"), { module: isModule, toplevel: true, ecma: 2020, compress: { passes: 3, hoist_funs: true }, format });
  await writeFile(path, code);
}

/** What is in the package twice, since somebody wants it under another name or in another form. */
async function writeCopies() {
  for (const name of LICENSES) await copyFile(join(ROOT, name), join(SDK_PACKAGE, name));
  // TypeScript takes the types of what is required for those of an ES module, unless their name says otherwise.
  for (const name of ["index", ...REQUIRED]) await copyFile(join(SDK_PACKAGE, `${name}.d.ts`), join(SDK_PACKAGE, `cjs/${name}.d.cts`));
  for (const [name, module] of Object.entries(INLINED)) {
    const base64 = JSON.stringify(await readFile(join(SDK_PACKAGE, module), "base64"));
    await writeFile(join(SDK_PACKAGE, `inline/${name}.js`), `export default ${base64};\n`);
    await writeFile(join(SDK_PACKAGE, `inline/${name}.cjs`), `module.exports = ${base64};\n`);
  }
}

/** The paths of all files below a folder, in order, but of what is packed: another build may be at it. */
async function filesOf(folder) {
  const files = [];
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    if (PACKED.includes(entry.name)) continue;
    if (!entry.isDirectory()) files.push(entry.name);
    else files.push(...(await filesOf(join(folder, entry.name))).map((name) => `${entry.name}/${name}`));
  }
  return files.sort();
}

/** Adds up what a browser loads of the package in `folder`, each file in brotli: `{ note, isWithin }`. */
export const sizeOf = (folder) => sum(folder, LOADED, PACKAGE_BROTLI_BYTES_MAX);

/** The same of what it loads for sessions, besides. */
export const sizeOfSessions = (folder) => sum(folder, LOADED_FOR_SESSIONS, SESSION_BROTLI_BYTES_MAX);

async function sum(folder, names, bytesMax) {
  const [wasm, ...scripts] = await Promise.all(names.map((name) => brotliBytes(join(folder, name))));
  const js = scripts.reduce((sum, bytes) => sum + bytes);
  const note = `${count(wasm + js)} of ${count(bytesMax)} bytes brotli (wasm ${count(wasm)}, JS ${count(js)})`;
  return { note, isWithin: wasm + js <= bytesMax };
}

/** The size of a file as it would be sent. */
export async function brotliBytes(path) {
  return brotliCompressSync(await readFile(path), { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }).length;
}

const count = (bytes) => bytes.toLocaleString("en-US");
