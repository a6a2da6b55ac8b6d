// Tests the packed SDK in server-side rendering: with Vite's server side, in development and as built.

import assert from "node:assert/strict";
import { copyFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { pathToFileURL } from "node:url";
import { build, createServer, version } from "vite";
import { importedQuietly } from "./app/quietly.js";
import { roundTrip } from "./app/round-trip.js";
import { installApp } from "./packed.mjs";
import { expected, serveLossily } from "./server.mjs";

const LIMIT = { timeout: 60_000 };
const server = await serveLossily(after);
const { folder } = await installApp(after);
const common = { root: folder, configFile: false, logLevel: "warn" };
const module = join(folder, "node_modules/semel/semel.wasm");

/** Checks that importing and rendering touch nothing, and that the package works on the server too. */
async function check({ exports, touched }, account) {
  assert.deepEqual(touched, []);
  assert.equal(exports.render(), "<button>Deposit</button><script>/* function */</script>");
  assert.deepEqual(await roundTrip(exports.semel, { url: server.url, account, durability: "memory" }), expected(account));
}

test(`Vite ${version} in development renders a page with the SDK on the server, and the SDK works there`, LIMIT, async (t) => {
  const vite = await createServer({ ...common, appType: "custom", server: { middlewareMode: true, ws: false } });
  t.after(() => vite.close());
  await check({ exports: await vite.ssrLoadModule("/server-side.js"), touched: [] }, "ssr-dev");
});

/** Builds with a setting, and imports the result from its folder. */
async function importBuilt(outDir, ssr) {
  await build({ ...common, ssr, build: { ssr: "server-side.js", outDir } });
  return importedQuietly(() => import(pathToFileURL(join(folder, outDir, "server-side.js"))), module);
}

test(`Vite ${version}'s build renders on the server, and the SDK imports without side effects and works there`, LIMIT, async () => check(await importBuilt("ssr", {}), "ssr"));

test(`Vite ${version}'s build with the SDK bundled in and its modules copied beside it renders and works on the server`, LIMIT, async () => {
  const imported = await importBuilt("ssr-bundled", { noExternal: ["semel"] });
  await copyFile(module, join(folder, "ssr-bundled/semel.wasm"));
  // Sessions are a separate chunk, in a separate folder.
  await copyFile(join(module, "../session.wasm"), join(folder, "ssr-bundled/assets/session.wasm"));
  await check(imported, "ssr-bundled");
});
