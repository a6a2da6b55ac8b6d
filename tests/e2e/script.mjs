// Workers whose handlers are in JavaScript or TypeScript, bundled as wrangler does: what is wasm stays a module of its own.

import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import { workerFolder } from "../../scripts/setup/worker.mjs";

/** Bundles `entry`, which imports `semel/worker`, and resolves to the folder that it is in. `after` is node:test's. */
export async function scriptWorker(after, entry) {
  const folder = await mkdtemp(join(tmpdir(), "semel-script-"));
  after(() => rm(folder, { recursive: true, force: true }));
  await bundled(entry, folder);
  return folder;
}

/** The same, into a folder that is there. */
export async function bundled(entry, folder) {
  const packed = workerFolder("script");
  await build({
    entryPoints: { index: entry },
    outdir: folder,
    bundle: true,
    format: "esm",
    alias: { "semel/worker": join(packed, "index.js") },
    external: ["cloudflare:workers", "*.wasm"],
    logLevel: "silent",
  });
  await copyFile(join(packed, "semel_bg.wasm"), join(folder, "semel_bg.wasm"));
}
