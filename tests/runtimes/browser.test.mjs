// Tests the packed SDK in Chromium: without a bundler, and as bundled by Vite, webpack and esbuild.

import assert from "node:assert/strict";
import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { build as bundleWithEsbuild, version as esbuildVersion } from "esbuild";
import { build as bundleWithVite, createServer as serveWithVite, version as viteVersion } from "vite";
import webpack from "webpack";
import { browse } from "../e2e/browser.mjs";
import { installApp } from "./packed.mjs";
import { expected, serveLossily } from "./server.mjs";

const LIMIT = { timeout: 90_000 };

const server = await serveLossily(after);
const { folder } = await installApp(after);
const browser = await browse(after, { page: folder });

/** Opens a page: the one without a bundler, or another by its path from there. */
async function open(t, path = "") {
  const tab = await browser.tab();
  t.after(() => tab.close());
  if (path) await tab.goto(new URL(path, tab.url()).href);
  await tab.waitForFunction("globalThis.roundTrip");
  return tab;
}

/** Writes a page that runs a script, in its own folder. */
async function pageOf(name, script) {
  await mkdir(join(folder, name), { recursive: true });
  await writeFile(join(folder, name, "index.html"), `<!doctype html><link rel="icon" href="data:,"><script ${script}></script>`);
}

/** The wasm files that a page has asked for. */
const modulesOf = (tab) => tab.evaluate(() => performance.getEntriesByType("resource").filter(({ name }) => name.includes(".wasm")).map(({ name }) => name));

/**
 * Makes two round trips in the page. Nothing is loaded before the first; the first loads one module for the outbox and one for its session; the
 * second loads none.
 */
async function checkPage(tab, account, { modules = 2 } = {}) {
  assert.deepEqual(await modulesOf(tab), [], "nothing is loaded before the first call");
  for (const name of [account, `${account}-again`]) {
    const result = await tab.evaluate((settings) => globalThis.roundTrip(settings), { url: server.url, account: name });
    assert.deepEqual(result, expected(name));
    assert.deepEqual(await server.account(name), { id: name, balance: 5, entries: 1 });
    assert.equal((await modulesOf(tab)).length, modules);
  }
}

test("the packed SDK makes its round trips in a page without a bundler", LIMIT, async (t) => checkPage(await open(t), "plain"));

test(`the packed SDK makes its round trips with Vite ${viteVersion} as a development server`, LIMIT, async (t) => {
  const vite = await serveWithVite({ root: folder, configFile: false, logLevel: "warn", server: { port: 0, host: "127.0.0.1" } });
  t.after(() => vite.close());
  await vite.listen();
  const { port } = vite.httpServer.address();
  await checkPage(await open(t, `http://127.0.0.1:${port}/bundled.html`), "vite-dev");
});

test(`the packed SDK makes its round trips as built by Vite ${viteVersion}`, LIMIT, async (t) => {
  await bundleWithVite({ root: folder, configFile: false, logLevel: "warn", base: "./", build: { outDir: "vite", rollupOptions: { input: join(folder, "bundled.html") } } });
  await checkPage(await open(t, "vite/bundled.html"), "vite-build");
});

test(`the packed SDK makes its round trips as bundled by webpack ${webpack.version}`, LIMIT, async (t) => {
  const output = { path: join(folder, "webpack"), filename: "page.js" };
  const compiler = webpack({ context: folder, mode: "production", entry: "./page.js", output });
  const stats = await new Promise((resolve, reject) => compiler.run((error, done) => (error ? reject(error) : resolve(done))));
  await new Promise((resolve) => compiler.close(resolve));
  assert.deepEqual([stats.toJson().errors, stats.toJson().warnings], [[], []]);
  await pageOf("webpack", 'src="page.js"');
  await checkPage(await open(t, "webpack/index.html"), "webpack");
});

async function bundle(entry, folderName, format) {
  const outfile = join(folder, folderName, "page.js");
  const { warnings } = await bundleWithEsbuild({ absWorkingDir: folder, entryPoints: [entry], outfile, bundle: true, minify: true, format, logLevel: "silent" });
  assert.deepEqual(warnings, []);
}

test(`the packed SDK makes its round trips as bundled by esbuild ${esbuildVersion}, with its modules beside the bundle`, LIMIT, async (t) => {
  await bundle("page.js", "esbuild", "esm");
  for (const name of ["semel.wasm", "session.wasm"]) await copyFile(join(folder, "node_modules/semel", name), join(folder, "esbuild", name));
  await pageOf("esbuild", 'type="module" src="page.js"');
  await checkPage(await open(t, "esbuild/index.html"), "esbuild");
});

test(`semel/inline makes its round trips as a classic script by esbuild ${esbuildVersion}, without a wasm file`, LIMIT, async (t) => {
  await bundle("page-inline.js", "inline", "iife");
  await pageOf("inline", 'defer src="page.js"');
  await checkPage(await open(t, "inline/index.html"), "inline", { modules: 0 });
});

test("an open that fails offline does not make the next open fail", LIMIT, async (t) => {
  const tab = await open(t);
  await browser.offline(true);
  t.after(() => browser.offline(false));
  const settings = { url: server.url, account: "offline" };
  const name = await tab.evaluate((given) => globalThis.roundTrip(given).catch((error) => error.name), settings);
  assert.equal(name, "TypeError");
  await browser.offline(false);
  assert.deepEqual(await tab.evaluate((given) => globalThis.roundTrip(given), settings), expected("offline"));
});

test("no page has an error, or a message in its console except failed network loads", () => {
  const complaints = browser.complaints.map(({ text }) => text).filter((text) => !text.startsWith("Failed to load resource: net::"));
  assert.deepEqual([browser.errors, complaints], [[], []]);
});
