// Tests `semel/worker` as it is packed: the template with wrangler's own types, bundled by wrangler, on workerd, and Drizzle in a handler.

import assert from "node:assert/strict";
import { copyFile, cp, mkdir, readFile, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { build } from "esbuild";
import { wrangler } from "../../scripts/deploy/wrangler.mjs";
import { RUNTIMES } from "../../scripts/setup/packages.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { run } from "../../scripts/setup/step.mjs";
import { serve } from "../e2e/server.mjs";
import { installApp } from "./packed.mjs";

const LIMIT = { timeout: 120_000 };
const OWN = join(ROOT, "tests/runtimes/handlers");
const { folder: app } = await installApp(after);
const template = join(app, "orders");
const transfers = join(app, "transfers");

before(async () => {
  for (const [name, folder] of [["orders-typescript", template], ["transfers", transfers]]) {
    await cp(join(ROOT, "examples", name), folder, { recursive: true, filter: (path) => !/node_modules|worker-configuration/.test(path) });
    // The packages are installed beside the example, as in a workspace.
    await symlink(join(app, "node_modules"), join(folder, "node_modules"));
    await wrangler(["types", "--cwd", folder]);
  }
}, LIMIT);

/** The output of `tsc` for the template, with other sources beside its own, or for another folder. */
async function compile({ checksLibraries = false, folder = template } = {}) {
  const tsc = join(ROOT, "node_modules/typescript/bin/tsc");
  const printed = await run(process.execPath, [tsc, "-p", folder, "--skipLibCheck", String(!checksLibraries)]).then(() => "", ({ message }) => message);
  return printed.replaceAll(folder, "");
}

/** Sends a change under an id. */
const change = (server, path, id, body) => server.send("POST", path, { id, body: JSON.stringify(body) });

test("the examples orders-typescript and transfers compile under wrangler's types, and so do the package's types", LIMIT, async () => {
  assert.equal(await compile({ checksLibraries: true }), "");
  assert.equal(await compile({ folder: transfers }), "", "the example of transfers");
});

test("the SDK's types compile in a Worker under wrangler's types, without those of a browser or of Node", LIMIT, async () => {
  await copyFile(join(OWN, "client.ts"), join(template, "src/client.ts"));
  assert.equal(await compile({ checksLibraries: true }), "");
});

test("the code blocks of docs/handlers.md compile", LIMIT, async () => {
  const blocks = [...(await readFile(join(ROOT, "docs/handlers.md"), "utf8")).matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map(([, block]) => block);
  assert.equal(blocks.length, 7);
  const [whole, other, scheduled, queue, queueInFront, sent, inFront] = blocks;
  const end = "export default worker(Counters);\n";
  assert.ok(whole.endsWith(end));
  await writeFile(join(template, "src/whole.ts"), whole);
  await writeFile(join(template, "src/other.ts"), whole.slice(0, -end.length) + other);
  await writeFile(join(template, "src/scheduled.ts"), whole.slice(0, -end.length) + scheduled);
  await writeFile(join(template, "src/queue.ts"), whole.slice(0, -end.length) + queue);
  await writeFile(join(template, "src/sent.ts"), `import type { Context } from "semel/worker";\nexport function sent(ctx: Context) {\n${sent}}\n`);
  await writeFile(join(template, "src/queue-in-front.ts"), queueInFront);
  await writeFile(join(template, "src/in-front.ts"), inFront);
  assert.equal(await compile(), "");
});

test("a handler that breaks the rules of its types does not compile", LIMIT, async () => {
  await copyFile(join(OWN, "wrong.ts"), join(template, "src/wrong.ts"));
  assert.equal(await compile(), "");
});

test("a method or a field with a name that Semel itself uses does not compile", LIMIT, async () => {
  const host = await readFile(join(ROOT, "worker/host.js"), "utf8");
  const names = [...host.matchAll(/^  (?:async )?(\w+)\(.*\{\}?$/gm)].map(([, name]) => name).filter((name) => name !== "constructor");
  assert.ok(names.length > 12 && ["storage", "run", "fetch"].every((name) => names.includes(name)), names.join());
  const classes = names.map((name) => `export class Of_${name} extends SemelObject<Env> {\n  ${name} = 1;\n  handle(): null {\n    return null;\n  }\n}\n`);
  const file = join(template, "src/taken.ts");
  await writeFile(file, `import { SemelObject } from "semel/worker";\n${classes.join("")}`);
  const told = await compile();
  await rm(file);
  assert.deepEqual(names.filter((name) => !told.includes(`'Of_${name}'`)), [], told);
});

test("wrangler bundles the template, and the bundle that it would upload runs", LIMIT, async () => {
  const folder = join(template, "dist");
  await wrangler(["deploy", "--dry-run", "--outdir", folder, "--cwd", template]);
  const files = (await readdir(folder)).filter((name) => /\.(js|wasm)$/.test(name));
  assert.deepEqual(files.map((name) => name.replace(/^[0-9a-f]{40}-/, "")).sort(), ["index.js", "semel_bg.wasm"]);
  const uploaded = join(template, "uploaded");
  await mkdir(uploaded);
  for (const name of files) await copyFile(join(folder, name), join(uploaded, name));
  const server = await serve(after, "script", {}, { folder: uploaded, objects: { SEMEL: "Orders", REGISTRY: "SemelRegistry" } });
  await change(server, "/shops/north/deliveries", "delivery", { item: "apple", quantity: 5 });
  for (const semel of ["executed", "replayed"]) {
    const answer = await change(server, "/shops/north/orders", "order", { item: "apple", quantity: 2 });
    assert.deepEqual([answer.semel, answer.text], [semel, '{"order":1,"left":3}']);
  }
});

test("statements and transactions of Drizzle's driver for Durable Objects in a handler are part of its commit", LIMIT, async () => {
  const folder = join(app, "drizzle");
  await build({
    absWorkingDir: app,
    stdin: { contents: await readFile(join(OWN, "drizzle.ts"), "utf8"), loader: "ts", resolveDir: app },
    outfile: join(folder, "index.js"),
    bundle: true,
    format: "esm",
    target: "es2022",
    conditions: ["workerd", "worker", "browser"],
    nodePaths: [join(RUNTIMES, "node_modules")],
    external: ["cloudflare:workers", "*.wasm"],
    logLevel: "silent",
  });
  await copyFile(join(app, "node_modules/semel/worker/semel_bg.wasm"), join(folder, "semel_bg.wasm"));
  const server = await serve(after, "script", {}, { folder, objects: { SEMEL: "Shop", REGISTRY: "SemelRegistry" } });
  const all = async () => (await server.send("GET", "/shop/stock")).json;

  assert.deepEqual(await all(), { stock: [], orders: [] });
  for (const semel of ["executed", "replayed"]) {
    const answer = await change(server, "/shop/deliveries", "delivery", { item: "apple", quantity: 5 });
    assert.deepEqual([answer.semel, answer.json], [semel, { item: "apple", quantity: 5 }]);
    const order = await change(server, "/shop/orders", "order", { item: "apple", quantity: 2 });
    assert.deepEqual([order.semel, order.json], [semel, { number: 1, item: "apple", quantity: 2 }]);
  }
  assert.equal((await change(server, "/shop/orders", "too-many", { item: "apple", quantity: 4 })).semel, "rolled-back");
  assert.equal((await change(server, "/shop/tries", "tries", { item: "pear", quantity: 1 })).semel, "executed");
  assert.equal((await change(server, "/shop/awaited", "awaited", {})).semel, "rolled-back");
  assert.match(await server.lineOf("awaited"), /handle gave a promise/);
  assert.equal((await change(server, "/shop/awaited-inside", "inside", { item: "fig", quantity: 1 })).semel, "rolled-back");
  assert.match(await server.lineOf("inside"), /a transaction gave a promise/);
  assert.deepEqual(await all(), {
    stock: [{ item: "apple", quantity: 3 }],
    orders: [{ number: 1, item: "apple", quantity: 2 }, { number: 2, item: "not pear", quantity: 1 }],
  });
});
