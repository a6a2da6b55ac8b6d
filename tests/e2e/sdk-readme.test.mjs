// The quickstart of the README for web apps, as it stands there.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { SDK_PACKAGE } from "../../scripts/setup/sdk.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { serve } from "./server.mjs";

const run = promisify(execFile);
const server = await serve(after, "ledger");
const app = await mkdtemp(join(tmpdir(), "semel-app-"));
after(() => rm(app, { recursive: true, force: true }));

test("an app that installs the packed package does what the README says", async () => {
  const readme = await readFile(join(ROOT, "README.md"), "utf8");
  const script = /<!-- sdk quickstart -->\n```js\n([\s\S]*?)```/.exec(readme)?.[1];
  const expected = /<!-- sdk quickstart prints -->\n```\n([\s\S]*?)```/.exec(readme)?.[1];
  assert.ok(script && expected, "the README has a quickstart and what it prints");

  // What `npm test` has built is packed; the script that would build it prints to the same output.
  const { stdout: packed } = await run("npm", ["pack", SDK_PACKAGE, "--pack-destination", app, "--json", "--ignore-scripts"], { cwd: app });
  const [{ filename, files }] = JSON.parse(packed);
  assert.deepEqual(files.map(({ path }) => path).sort(), ["README.md", "index.d.ts", "index.js", "node.js", "package.json", "semel.js", "semel.wasm"]);
  await writeFile(join(app, "package.json"), '{"private":true,"type":"module"}');
  await run("npm", ["install", "--offline", "--no-audit", "--no-fund", `./${filename}`], { cwd: app });

  await writeFile(join(app, "app.js"), script.replaceAll("http://127.0.0.1:8787", server.url));
  const { stdout } = await run(process.execPath, ["app.js"], { cwd: app, timeout: 30_000 });
  assert.equal(stdout, expected);
});
