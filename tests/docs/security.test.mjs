// Tests that the tests that `SECURITY.md` names exist.

import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";

const read = (path) => readFile(join(ROOT, path), "utf8");

/** The names of all tests: those over HTTP, those of documents, and those in Rust. */
async function names() {
  const found = new Set();
  for (const folder of ["tests/e2e", "tests/docs"]) {
    const files = (await readdir(join(ROOT, folder))).filter((name) => name.endsWith(".test.mjs"));
    for (const file of files) for (const [, name] of (await read(join(folder, file))).matchAll(/^test\("(.+?)",/gm)) found.add(name);
  }
  for (const folder of ["core/src", "tests/engine/tests"]) {
    const files = (await readdir(join(ROOT, folder), { recursive: true })).filter((name) => name.endsWith(".rs"));
    for (const file of files) for (const [, name] of (await read(join(folder, file))).matchAll(/#\[test\]\n\s*fn (\w+)\(\)/g)) found.add(name);
  }
  return found;
}

test("every test that the threat model of SECURITY.md names exists", async () => {
  const rows = (await read("SECURITY.md")).split("\n").filter((line) => /^\| (?!(tries|does|mistake) \|)/.test(line));
  const known = await names();
  const named = rows.flatMap((row) => [...row.split("|")[3].matchAll(/`([^`]+)`/g)].map(([, name]) => name));
  assert.ok(rows.length >= 20 && named.length >= 20, `${rows.length} rows, ${named.length} names`);
  assert.deepEqual(named.filter((name) => !known.has(name)), []);
});
