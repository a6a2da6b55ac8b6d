// Bundles Workers in JavaScript or TypeScript as wrangler does: a wasm module stays a separate module.

import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import { SDK_PACKAGE } from "../../scripts/setup/sdk.mjs";
import { workerFolder } from "../../scripts/setup/worker.mjs";

/** Where the packages are. The benchmarks only build `worker`, and pack nothing. */
const PACKED = { worker: workerFolder("script"), upstream: join(SDK_PACKAGE, "upstream") };

/**
 * Bundles `entry`, which imports `semel/worker`; with `name`, `semel/upstream`. Resolves to the folder of the bundle. `after` is node:test's.
 */
export async function scriptWorker(after, entry, name = "worker") {
  const folder = await mkdtemp(join(tmpdir(), "semel-script-"));
  after(() => rm(folder, { recursive: true, force: true }));
  await bundled(entry, folder, name);
  return folder;
}

/** The same, into an existing folder. */
export async function bundled(entry, folder, name = "worker") {
  const packed = PACKED[name];
  await build({
    entryPoints: { index: entry },
    outdir: folder,
    bundle: true,
    format: "esm",
    alias: { [`semel/${name}`]: join(packed, "index.js"), [`semel/${name}/queue`]: join(packed, "queue.js") },
    external: ["cloudflare:workers", "cloudflare:sockets", "*.wasm"],
    logLevel: "silent",
  });
  await copyFile(join(packed, "semel_bg.wasm"), join(folder, "semel_bg.wasm"));
}
