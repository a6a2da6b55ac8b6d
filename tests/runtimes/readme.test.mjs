// Tests that the package's README names the versions of the runtimes that it is tested in.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { RUNTIMES } from "../../scripts/setup/packages.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { BINARIES } from "./binaries.mjs";

const manifestOf = async (folder) => JSON.parse(await readFile(join(folder, "package.json"), "utf8"));

test("the README names the versions that are tested, and no others", async () => {
  const { vite, webpack, "typescript-5": earlier } = (await manifestOf(RUNTIMES)).dependencies;
  const { dependencies: { esbuild, workerd }, devDependencies: { typescript } } = await manifestOf(ROOT);
  const { bun, deno } = BINARIES;
  const nodes = ["node-20.0", "node-22", "node-26"].map((name) => BINARIES[name].version);
  const tested = [[vite], [webpack], [esbuild], nodes, [bun.version], [deno.version], [workerd]];
  const [, section] = /## Where it runs\n([\s\S]*?)\n## /.exec(await readFile(join(ROOT, "sdk/npm/README.md"), "utf8"));
  const named = [...section.matchAll(/^\| [^|]+ \| ([^|]+) \|/gm)].map(([, cell]) => cell.match(/\d+\.\d+\.\d+/g)).filter(Boolean);
  assert.deepEqual(named, tested);
  assert.deepEqual(/by TypeScript (.+) and (.+)\.$/m.exec(section).slice(1), [typescript, earlier.replace("npm:typescript@", "")]);
});
