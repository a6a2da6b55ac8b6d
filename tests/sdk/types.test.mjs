// Tests the types of the package: correct uses compile, and wrong uses don't.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { OWN_NAMES } from "../../scripts/setup/sdk.mjs";
import { OutcomeUnknownError, Semel, SemelError } from "../../sdk/npm/node.js";

const TYPES = new URL("../../sdk/npm/index.d.ts", import.meta.url);
const FLAGS = ["--strict", "--noEmit", "--target", "es2023", "--lib", "es2023,dom", "--module", "nodenext", "--exactOptionalPropertyTypes"];

/** The exit code and the output of the compiler for these files. */
async function compile(...files) {
  // If TypeScript is missing, this throws, and the test fails.
  const manifest = createRequire(import.meta.url).resolve("typescript/package.json");
  const { bin } = JSON.parse(await readFile(manifest, "utf8"));
  const args = [join(dirname(manifest), bin.tsc), ...FLAGS, ...files.map((file) => fileURLToPath(new URL(file, import.meta.url)))];
  return new Promise((resolve) => execFile(process.execPath, args, { timeout: 60_000 }, (error, stdout, stderr) => resolve({ code: error?.code ?? 0, said: stdout + stderr })));
}

test("correct uses of the types compile, and wrong uses do not", { timeout: 60_000 }, async () => {
  assert.deepEqual(await compile("types/usage.ts", "types/wrong.ts"), { code: 0, said: "" });
});

test("the package exports exactly the classes that its types declare", async () => {
  const declared = [...(await readFile(TYPES, "utf8")).matchAll(/^export class (\w+)/gm)].map(([, name]) => name);
  for (const entry of ["node", "index"]) {
    const exported = await import(new URL(`../../sdk/npm/${entry}.js`, import.meta.url));
    assert.deepEqual(Object.keys(exported).sort(), declared.sort(), entry);
  }
});

test("no type has a member whose name the build shortens", async () => {
  const types = (await readFile(TYPES, "utf8")).replace(/\/\*[\s\S]*?\*\//g, "");
  const members = [...types.matchAll(/(\w+)\??[(:<]/g)].map(([, name]) => name);
  assert.ok(members.includes("requestId") && members.includes("outcome"));
  assert.deepEqual(members.filter((name) => OWN_NAMES.test(name)), []);
});

test("the class Semel has exactly the members that its type declares", async () => {
  const [, body] = /export class Semel \{\n([\s\S]*?)\n\}/.exec(await readFile(TYPES, "utf8"));
  const declared = [...body.matchAll(/^ {2}(?:readonly )?(\w+)[(:<]/gm)].map(([, name]) => name);
  const semel = await Semel.open({ url: "https://worker.test", durability: "memory", fetch: () => new Promise(() => {}) });
  const members = new Set(Object.keys(semel));
  for (let prototype = Object.getPrototypeOf(semel); prototype !== EventTarget.prototype; prototype = Object.getPrototypeOf(prototype)) {
    for (const name of Object.getOwnPropertyNames(prototype)) members.add(name);
  }
  await semel.close();
  members.delete("constructor");
  assert.deepEqual([...members].sort(), declared.filter((name) => !["constructor", "addEventListener", "removeEventListener"].includes(name)).sort());
  assert.equal(semel.constructor, Semel);
  assert.ok(OutcomeUnknownError.prototype instanceof SemelError && SemelError.prototype instanceof Error);
});
