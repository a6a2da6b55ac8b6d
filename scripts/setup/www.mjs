// Builds the pages into one folder of static assets: the chaos lab with the SDK, the inspector, and the documents.
//
// Invariants:
// - If the lab and all that it loads are larger than their limit, compressed with brotli, the build fails.
// - The documents contain what is in the repository's Markdown: no text exists twice.

import { copyFile, cp, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { existsSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { brotliBytes, buildSdk, SDK_PACKAGE } from "./sdk.mjs";
import { DOCUMENTS, IMAGES, renderDocuments } from "./documents.mjs";
import { BUILD, ROOT } from "./paths.mjs";
import { hashOf, onceFor } from "./stamp.mjs";
import { StepError, step } from "./step.mjs";

const PAGE_BROTLI_BYTES_MAX = 150_000;
const SOURCE = join(ROOT, "www");
/** The entries to bundle, and the name by which the pages refer to each. */
const ENTRIES = { "www/lab/main.js": "lab", "www/style.css": "page", "www/inspector/main.js": "inspector", "www/inspector.css": "inspector-page" };

/** The files of the SDK that are bundled, or copied beside the bundle. */
const SDK = ["semel.js", "semel.wasm", "index.js", "session.js", "session-browser.js"].map((name) => join("sdk/npm", name));

/** The folder that the worker serves. */
export const WWW_FOLDER = join(BUILD, "www");

/** Builds the SDK and the pages unless their sources are unchanged. Prints one line for each step. */
export async function buildWww() {
  await buildSdk();
  const images = existsSync(join(ROOT, IMAGES)) ? [IMAGES] : [];
  const sources = ["www", ...images, ...DOCUMENTS.map(({ file }) => file), ...SDK, "sdk/admin", "scripts/setup", "package-lock.json"];
  const unchanged = await onceFor(join(BUILD, "www.stamp"), await hashOf(sources), async () => {
    await step("page", () => build(sources));
    await step("size of the page", () => checkPageSize(WWW_FOLDER));
  });
  if (unchanged) await step("page", async () => "unchanged");
}

/** Throws if a bundled file is neither among the sources nor in a package: a change to it would not cause a new build. */
export function checkInputs(inputs, sources) {
  const isKnown = (input) => input.startsWith("node_modules/") || sources.some((source) => input === source || input.startsWith(`${source}/`));
  const unknown = inputs.filter((input) => !isKnown(input));
  if (unknown.length > 0) throw new StepError(`The page has in it what its stamp is not made of: ${unknown.join(", ")}.`, "Name it in scripts/setup/www.mjs.");
}

async function build(sources) {
  await rm(WWW_FOLDER, { recursive: true, force: true });
  await mkdir(join(WWW_FOLDER, "assets"), { recursive: true });
  const { build: bundle } = await import("esbuild");
  const { metafile } = await bundle({
    absWorkingDir: ROOT,
    entryPoints: Object.entries(ENTRIES).map(([path, name]) => ({ in: path, out: name })),
    entryNames: "[name]-[hash]",
    outdir: join(WWW_FOLDER, "assets"),
    alias: { semel: join(SDK_PACKAGE, "index.js") },
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    logLevel: "warning",
    metafile: true,
  });
  checkInputs(Object.keys(metafile.inputs), sources);
  // The SDK looks for its module beside itself.
  await copyFile(join(SDK_PACKAGE, "semel.wasm"), join(WWW_FOLDER, "assets/semel.wasm"));
  await copyFile(join(SOURCE, "icon.svg"), join(WWW_FOLDER, "assets/icon.svg"));
  const assets = {};
  for (const [output, { entryPoint }] of Object.entries(metafile.outputs)) assets[ENTRIES[entryPoint]] = `/${relative(WWW_FOLDER, join(ROOT, output))}`;
  const index = await readFile(join(SOURCE, "index.html"), "utf8");
  await writeFile(join(WWW_FOLDER, "index.html"), fill(index, { ...assets, ...(await listsOf()) }));
  await writeFile(join(WWW_FOLDER, "inspector.html"), fill(await readFile(join(SOURCE, "inspector.html"), "utf8"), assets));
  const frame = await readFile(join(SOURCE, "document.html"), "utf8");
  for (const { name, ...values } of await renderDocuments()) {
    const path = join(WWW_FOLDER, "docs", `${name}.html`);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, fill(frame, { ...assets, ...values }));
  }
  if (existsSync(join(ROOT, IMAGES))) await cp(join(ROOT, IMAGES), join(WWW_FOLDER, IMAGES), { recursive: true });
}

/** Lists whose texts are in the page's modules. They are put into the HTML, so that they are there at the first paint, and nothing moves. */
async function listsOf() {
  const { COUNTED, FATES } = await import("../../www/lab/model.js");
  const { PRESETS, fragmentOf } = await import("../../www/lab/scenario.js");
  const item = (title, detail, sign) => `<li title="${detail}">${sign}${title}</li>`;
  const glyph = (fate) => `<svg class="glyph ${fate}" aria-hidden="true"><use href="#glyph-${fate}"/></svg>`;
  const fates = Object.entries(FATES).map(([fate, { title, detail }]) => item(title, detail, glyph(fate)));
  const unheard = item("answer lost", "the server answered, and nobody heard it", '<span class="unheard-key" aria-hidden="true"></span>');
  const link = ({ id, title, scenario }) => `<li><a href="${fragmentOf(scenario).replaceAll("&", "&amp;")}" data-preset="${id}">${title}</a></li>`;
  const cells = '<td>0</td>'.repeat(4);
  const counts = [...COUNTED, "entries"].map((name) => `<tr><th scope="row">${name}</th>${cells}</tr>`);
  return { counts: counts.join(""), legend: [...fates, unheard].join(""), presets: PRESETS.map(link).join("") };
}

/** Replaces `{{name}}` by values. Throws if one is missing. */
export function fill(template, values) {
  return template.replace(/\{\{([\w-]+)\}\}/g, (_, name) => {
    if (values[name] === undefined) throw new StepError(`The template of a page asks for ${name}, which nobody gives.`);
    return values[name];
  });
}

/** Adds up the lab's page in `folder` and all that it loads, each file compressed with brotli. Throws if that is over the limit. */
export async function checkPageSize(folder) {
  const loaded = (await readdir(join(folder, "assets"))).filter((name) => !name.startsWith("inspector-"));
  const files = ["index.html", ...loaded.map((name) => `assets/${name}`)];
  let bytes = 0;
  for (const file of files) bytes += await brotliBytes(join(folder, file));
  const sizes = `${bytes.toLocaleString("en-US")} of ${PAGE_BROTLI_BYTES_MAX.toLocaleString("en-US")} bytes brotli`;
  if (bytes > PAGE_BROTLI_BYTES_MAX) throw new StepError(`The page is too large: ${sizes}.`, "Find what grew: a new dependency, as a rule.");
  return sizes;
}
