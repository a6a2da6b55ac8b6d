// Tests where the bytes of the SDK go: the measurement covers all of them, and the README has its table.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { LOADED, SDK_PACKAGE, brotliBytes } from "../../scripts/setup/sdk.mjs";
import { measure, readTable, sourceOf, withTable } from "./bytes.mjs";
import { sizesOf } from "./wasm-sizes.mjs";

/** How far the README may be from what is built, as a share. */
const SHARE_MAX = 0.05;

test("the README's table of bytes adds up, names every part, and is within 5 % of the build", async () => {
  const readme = await readFile(join(SDK_PACKAGE, "README.md"), "utf8");
  const [measured, told] = [await measure(), readTable(readme)];
  const sizes = await Promise.all(LOADED.map((name) => brotliBytes(join(SDK_PACKAGE, name))));
  const built = sizes.reduce((sum, bytes) => sum + bytes);
  const sum = (rows) => rows.reduce((all, [, , bytes]) => all + bytes, 0);
  assert.equal(sum(measured), built);
  assert.ok(Math.abs(told.all - built) < SHARE_MAX * built, `told ${told.all}, built ${built}: run \`npm run bench:bytes\``);
  assert.equal(sum(told.rows), told.all);
  const parts = (rows) => rows.map(([file, part]) => `${file}: ${part}`).sort();
  assert.deepEqual(parts(told.rows), parts(measured), "run `npm run bench:bytes`");
  for (const [file, part, bytes] of measured) assert.ok(bytes > 0, `${file}: ${part}`);
  // Functions whose names don't tell their source count as the standard library. All functions of ours have names that do.
  const [, , nobodys] = measured.find(([, part]) => part.startsWith("Rust's standard library"));
  assert.ok(nobodys < built / 4, `${nobodys} bytes of ${built} are nobody's`);
});

test("a function's source file is read from its mangled name", () => {
  for (const [name, source] of [
    ["_ZN10semel_core6client7storing53_$LT$impl$u20$semel_core..client..machine..Client$GT$7changed17h730c0ca8ae37d004E", "storing"],
    ["_ZN10semel_core6header8unquoted17h739de21e5115d5d0E", "header"],
    ["_ZN69_$LT$semel_core..client..row..Entry$u20$as$u20$core..clone..Clone$GT$5clone17hbd569adddb69725dE", "row"],
    ["_ZN9semel_sdk4host4rows17h6768265d10017bc3E", "host"],
    ["_RNvMs4_NtCs5cOc02OMXlo_5alloc7raw_vecNtB5_11RawVecInner11finish_growB7_", "std"],
    [undefined, "std"],
  ]) assert.equal(sourceOf(name), source);
});

test("a wasm module's functions are read with their sizes and names, and all other bytes are counted as the rest", () => {
  const name = (text) => [text.length, ...Buffer.from(text)];
  const names = [...name("name"), 1, 6, 1, 1, ...name("two")];
  const module = Buffer.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...[1, 4, 1, 0x60, 0, 0],
    ...[3, 3, 2, 0, 0],
    ...[10, 8, 2, 2, 0, 0x0b, 3, 0, 0x01, 0x0b],
    ...[0, names.length, ...names],
  ]);
  assert.ok(WebAssembly.validate(module));
  assert.deepEqual(sizesOf(module), { functions: [[undefined, 2], ["two", 3]], others: 8 + 4 + 3 });
  assert.throws(() => sizesOf(module.subarray(0, 15)), /cut short/);
  assert.throws(() => sizesOf(Buffer.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 2, 1, 0])), /imports/);
});

test("a README without a place for the table is refused", () => {
  assert.throws(() => withTable("# semel\n", []), /has no <!-- bytes -->/);
  const written = withTable("a\n<!-- bytes -->\nold\n<!-- /bytes -->\nb\n", [["semel.js", "errors", 1234]]);
  assert.deepEqual(readTable(written), { rows: [["semel.js", "errors", 1234]], all: 1234 });
  assert.ok(written.startsWith("a\n<!-- bytes -->\n| file |") && written.endsWith("|\n<!-- /bytes -->\nb\n"));
});
