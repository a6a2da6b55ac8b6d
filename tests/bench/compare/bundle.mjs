// What a browser loads for each library, and how large that is.
//
// Invariant: what is measured is what runs: the adapter with everything that it imports, minified for production, each file on its own.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { brotliCompressSync, constants } from "node:zlib";
import { build } from "esbuild";
import { COMPARE } from "../../../scripts/setup/packages.mjs";
import { LOADED, SDK_PACKAGE } from "../../../scripts/setup/sdk.mjs";

const SCRIPT = "text/javascript; charset=utf-8";
const PAGE = `<!doctype html>
<meta charset="utf-8" />
<title>Orders</title>
<link rel="icon" href="data:," />
<script type="importmap">{ "imports": { "semel": "/semel/index.js" } }</script>
<script type="module" src="/page.js"></script>
`;

/** Resolves to the files that a browser loads for a library, by path: `{ type, content }`. */
export async function filesOf({ id, adapter, worker }) {
  const files = { "/adapter.js": script(await bundled(adapter)) };
  if (worker) files["/worker.js"] = script(await bundled(worker));
  if (id === "semel") {
    for (const name of LOADED) {
      const content = await readFile(join(SDK_PACKAGE, name));
      files[`/semel/${name}`] = name.endsWith(".wasm") ? { type: "application/wasm", content } : script(content);
    }
  }
  return files;
}

/** Resolves to the same files, with the page around them. */
export async function siteOf(files) {
  return { ...files, "/": { type: "text/html; charset=utf-8", content: PAGE }, "/page.js": script(await readFile(join(COMPARE, "page.js"))) };
}

export function bytesOf(files) {
  const options = { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } };
  return Object.values(files).reduce((sum, { content }) => sum + brotliCompressSync(content, options).length, 0);
}

const script = (content) => ({ type: SCRIPT, content });

async function bundled(name) {
  const { outputFiles } = await build({
    entryPoints: [join(COMPARE, "adapters", name)],
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    platform: "browser",
    target: "es2022",
    external: ["semel"],
    define: { "process.env.NODE_ENV": '"production"' },
    logLevel: "warning",
  });
  return Buffer.from(outputFiles[0].contents);
}
