// What the bytes of the SDK in a browser are spent on: the share of each part in what is sent compressed with brotli, and the table of it.
//
// Invariants:
// - Every function of the module and every file of the bundle belongs to one part. One that belongs to none is an error.
// - The compressed size of a file is divided in proportion to the uncompressed sizes of its parts. What a part alone would cost can't be told.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { build } from "esbuild";
import { optimised } from "../../scripts/setup/compile.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { LOADED, NAMED_MODULE, OPTIMISE, SDK_PACKAGE, brotliBytes } from "../../scripts/setup/sdk.mjs";
import { sizesOf } from "./wasm-sizes.mjs";

const [MODULE, BUNDLE, ENTRY, SERVICE_WORKER] = LOADED;
const BEGIN = "<!-- bytes -->";
const END = "<!-- /bytes -->";
/**
 * The parts of the module, by the files of `core/src` and `core/src/client`. `host` is the module's own crate, `std` the standard library and the
 * allocator.
 */
const OF_MODULE = {
  "what is sent, when, and to whom its answer goes": ["machine", "sending", "storing", "in_hand", "numbered", "request", "action", "mod", "path", "waking", "showing"],
  "rows, and what changes do to them": ["row", "codec", "bytes"],
  "what answers say: headers, problems, the server's clock": ["verdict", "failure", "header", "structured", "message", "problem", "text", "clock", "id"],
  acknowledgements: ["acknowledgements"],
  "the boundary": ["host"],
  "Rust's standard library, and the allocator": ["std", "memory"],
  "tables and texts": ["constants"],
};
/** The parts of the bundle, by the files of `sdk/js`. */
const OF_BUNDLE = {
  "calls, promises, answers": ["semel.js", "requests.js"],
  "driving the module": ["machine.js", "bytes.js", "lines.js"],
  "stores: IndexedDB, memory": ["indexeddb.js", "stores.js"],
  errors: ["errors.js"],
  "options and ids": ["options.js", "ids.js"],
  "`fetch`": ["transport.js"],
  "events and snapshot, pages, tabs": ["view.js", "page.js", "tabs.js"],
};

/** Measures what is built. Resolves to `[file, part, bytes]` for each part, the largest of each file first. */
export async function measure() {
  const [module, bundle, entry, serviceWorker] = await Promise.all(LOADED.map((name) => brotliBytes(join(SDK_PACKAGE, name))));
  const ofPackage = ["package.js", "module.js"];
  return [
    ...shared(MODULE, module, await sizesOfModule(), OF_MODULE),
    ...shared(BUNDLE, bundle, await sizesOfBundle(), { ...OF_BUNDLE, "what entries share": ofPackage }),
    [ENTRY, "the entry", entry],
    [SERVICE_WORKER, "sending in the background", serviceWorker],
  ];
}

/** Divides `total` among the parts, in proportion to the sizes of their files. */
function shared(file, total, sizes, parts) {
  const known = new Set(Object.values(parts).flat());
  const others = [...sizes.keys()].filter((name) => !known.has(name));
  if (others.length > 0) throw new Error(`${others.join(", ")} of ${file} is in no part: see tests/bench/bytes.mjs`);
  const sum = (names) => names.reduce((all, name) => all + (sizes.get(name) ?? 0), 0);
  const all = sum([...known]);
  // Rounded so that the parts add up to the total.
  let [upTo, before] = [0, 0];
  const rows = Object.entries(parts).map(([part, names]) => {
    upTo += sum(names);
    const rounded = Math.round((total * upTo) / all);
    const bytes = rounded - before;
    before = rounded;
    return [file, part, bytes];
  });
  return rows.sort(([, , one], [, , other]) => other - one);
}

/** Resolves to the bytes of each file in the bundle. */
async function sizesOfBundle() {
  const { metafile } = await build({ entryPoints: [join(ROOT, "sdk/js/package.js")], absWorkingDir: ROOT, bundle: true, minify: true, format: "esm", target: "es2022", metafile: true, write: false });
  const [{ inputs }] = Object.values(metafile.outputs);
  return new Map(Object.entries(inputs).map(([path, { bytesInOutput }]) => [basename(path), bytesInOutput]));
}

/**
 * Resolves to the bytes of the functions of each source file. The module is built as usual, but with names, and without inlining functions that have
 * one caller: otherwise their bytes would count for the function that takes all calls.
 */
async function sizesOfModule() {
  const scratch = await mkdtemp(join(tmpdir(), "semel-bytes-"));
  try {
    const named = join(scratch, "named.wasm");
    await optimised(NAMED_MODULE, ["-g", "--one-caller-inline-max-function-size=30", ...OPTIMISE.filter((pass) => !pass.startsWith("--strip"))], named);
    const { functions, others } = sizesOf(await readFile(named));
    const sizes = new Map([["constants", others]]);
    for (const [name, bytes] of functions) sizes.set(sourceOf(name), (sizes.get(sourceOf(name)) ?? 0) + bytes);
    return sizes;
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** The source file of a function, from its mangled name: a path whose steps each follow their length, or are between dots in generic code. */
export function sourceOf(name = "") {
  const [, length, rest] = /semel_core(?:6client)?(\d+)(\w*)/.exec(name) ?? [];
  if (rest) return rest.slice(0, Number(length));
  const [, dotted] = /semel_core(?:\.\.client)?\.\.(\w+)/.exec(name) ?? [];
  return dotted ?? (name.includes("semel_sdk") ? "host" : "std");
}

/** Returns the package's README with the table of these rows. */
export function withTable(readme, rows) {
  const [before, rest] = readme.split(BEGIN);
  const after = rest?.split(END)[1];
  if (after === undefined) throw new Error(`the README has no ${BEGIN} … ${END}`);
  return `${before}${BEGIN}\n${tableOf(rows)}\n${END}${after}`;
}

function tableOf(rows) {
  const lines = rows.map(([file, part, bytes]) => [`\`${file}\``, part, count(bytes)]);
  const all = ["", "all", count(rows.reduce((sum, [, , bytes]) => sum + bytes, 0))];
  return [["file", "part", "bytes"], ["---", "---", "---:"], ...lines, all].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

/** Reads the table of a README: the parts, and their sum. */
export function readTable(readme) {
  const table = readme.split(BEGIN)[1].split(END)[0];
  const rows = [...table.matchAll(/^\| (?:`([^`]+)`)? *\| (.+?) \| ([\d,]+) \|$/gm)].map(([, file, part, bytes]) => [file, part, Number(bytes.replaceAll(",", ""))]);
  const [, , all] = rows.pop();
  return { rows, all };
}

const count = (bytes) => bytes.toLocaleString("en-US");
