// Tests the build of the page: its limit of bytes, and its templates.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { StepError } from "../../scripts/setup/step.mjs";
import { checkInputs, checkPageSize, fill } from "../../scripts/setup/www.mjs";

const LIMIT_BYTES = 150_000;

/** A built page whose files have these sizes, of bytes that can't be compressed. */
async function pageOf(t, sizes) {
  const folder = await mkdtemp(join(tmpdir(), "semel-page-"));
  t.after(() => rm(folder, { recursive: true }));
  for (const name of ["assets", "docs"]) await mkdir(join(folder, name));
  for (const [name, bytes] of Object.entries({ "index.html": 10, ...sizes })) await writeFile(join(folder, name), randomBytes(bytes));
  return folder;
}

test("a page below its limit reports its size", async (t) => {
  const says = await checkPageSize(await pageOf(t, { "assets/lab.js": 100_000, "assets/semel.wasm": 49_000 }));
  assert.match(says, /^149,\d{3} of 150,000 bytes brotli$/);
});

test("a page above its limit fails the build, whichever of its files make it too large", async (t) => {
  for (const sizes of [{ "assets/lab.js": LIMIT_BYTES }, { "index.html": LIMIT_BYTES }, { "assets/page.css": 80_000, "assets/semel.wasm": 80_000 }]) {
    await assert.rejects(checkPageSize(await pageOf(t, sizes)), (error) => error instanceof StepError && /^The page is too large: 1[56]\d,\d{3} of 150,000 bytes brotli\.$/.test(error.message) && error.advice.length > 0);
  }
});

test("files that the page does not load do not count", async (t) => {
  await checkPageSize(await pageOf(t, { "docs/protocol.html": 2 * LIMIT_BYTES, "inspector.html": LIMIT_BYTES, "assets/inspector-ABCDEFGH.js": LIMIT_BYTES }));
});

test("a file counts by its compressed size", async (t) => {
  const folder = await pageOf(t, {});
  await writeFile(join(folder, "assets/lab.js"), "a".repeat(10 * LIMIT_BYTES));
  assert.match(await checkPageSize(folder), /^\d{1,3} of/);
});

test("a bundled file that is not among the sources fails the build, also if its path begins like that of a source", () => {
  const sources = ["www", "sdk/npm/index.js"];
  checkInputs(["www/lab/main.js", "sdk/npm/index.js", "node_modules/idb/build/index.js"], sources);
  for (const input of ["sdk/npm/session.js", "www2/main.js", "sdk/npm/index.js2"]) {
    assert.throws(() => checkInputs(["www/lab/main.js", input], sources), (error) => error instanceof StepError && error.message.endsWith(`: ${input}.`));
  }
});

test("a template is filled with its values, unchanged and in every place", () => {
  assert.equal(fill("<a>{{one}}</a>{{two}}{{one}}", { one: "$& {{two}}", two: "", three: "3" }), "<a>$& {{two}}</a>$& {{two}}");
  assert.equal(fill("{ {one} } {{ one }}", {}), "{ {one} } {{ one }}");
});

test("a template that asks for a value that is not given fails the build, which names it", () => {
  assert.throws(() => fill("{{one}}{{none}}", { one: "1" }), (error) => error instanceof StepError && error.message.includes("none"));
});
