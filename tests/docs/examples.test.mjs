// Tests that the four ways to bring a handler stay as short as they are said to be.

import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";

/** Below this number of lines, blank ones and comments apart, everybody reads an example to its end. */
const LINES_MAX = 60;
const WAYS = ["orders-rust", "orders-typescript", "binding", "upstream", "transfers"];

/** The files of an example that its user writes as code. */
async function codeOf(way) {
  const files = await readdir(join(ROOT, "examples", way), { recursive: true });
  return files.filter((name) => /\.(rs|ts|js)$/.test(name) && !/node_modules|dist|worker-configuration|target/.test(name));
}

for (const way of WAYS) {
  test(`examples/${way} has fewer than ${LINES_MAX} lines of code`, async () => {
    const texts = await Promise.all((await codeOf(way)).map((name) => readFile(join(ROOT, "examples", way, name), "utf8")));
    const lines = texts.flatMap((text) => text.split("\n")).filter((line) => !/^\s*(\/\/.*|\/?\*[ *\/].*)?$/.test(line));
    assert.equal(lines.length > 0, way !== "upstream", "only in front of an API no code is needed");
    assert.ok(lines.length < LINES_MAX, `${lines.length} lines`);
  });
}
