// Tests that `SECURITY.md` names a test for each protection in its tables, and that the tests that it names exist.

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

test("the threat model of SECURITY.md names tests for each protection, and all of them exist", async () => {
  const rows = (await read("SECURITY.md")).split("\n").filter((line) => /^\| (?!(tries|does|mistake) \|)/.test(line));
  const known = await names();
  const namedIn = (row) => [...row.split("|")[3].matchAll(/`([^`]+)`/g)].map(([, name]) => name);
  assert.ok(rows.length >= 20, `${rows.length} rows`);
  assert.deepEqual(rows.filter((row) => namedIn(row).length === 0), []);
  assert.deepEqual(rows.flatMap(namedIn).filter((name) => !known.has(name)), []);
});
