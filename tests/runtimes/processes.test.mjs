// The packed SDK in Node, Bun and Deno, imported and required.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { BINARIES } from "./binaries.mjs";
import { installApp } from "./packed.mjs";
import { expected, serveLossily } from "./server.mjs";

const LIMIT = { timeout: 60_000 };
const EXPORTS = ["OutcomeUnknownError", "Semel", "SemelError"];

const server = await serveLossily(after);
const { folder } = await installApp(after);
const home = await mkdtemp(join(tmpdir(), "semel-home-"));
after(() => rm(home, { recursive: true, force: true }));

/** What each takes before the script. Deno is asked for no more rights than the package needs, but for what the test itself does. */
const DENO = ["run", "--quiet", "--no-lock", "--cached-only", "--node-modules-dir=manual", `--allow-read=${folder}`, `--allow-write=${folder}`, "--allow-net=127.0.0.1"];
const RUNTIMES = {
  "node-20.0": { arguments: [] },
  "node-22": { arguments: [] },
  "node-26": { arguments: [] },
  bun: { arguments: ["run", "--no-install"] },
  deno: { arguments: DENO },
};

/** Runs a script of the app, and resolves to what it printed. Anything on the standard error is a failure. */
async function execute(runtime, script, ...more) {
  const args = [...RUNTIMES[runtime].arguments, join(folder, script), ...more];
  const env = { PATH: process.env.PATH, HOME: home, DENO_DIR: join(home, "deno"), DENO_NO_UPDATE_CHECK: "1" };
  const { stdout, stderr } = await promisify(execFile)(BINARIES[runtime].path, args, { cwd: folder, env, timeout: 30_000 });
  assert.equal(stderr, "");
  return JSON.parse(stdout);
}

for (const runtime of Object.keys(RUNTIMES)) {
  for (const [script, way] of [["import.mjs", "imported"], ["require.cjs", "required"]]) {
    for (const entry of ["semel", "semel/inline"]) {
      test(`${runtime} ${BINARIES[runtime].version}: ${entry} is ${way} without a trace, and gets the answer that was lost`, LIMIT, async () => {
        const account = `${runtime}-${way}-${entry.replace("/", "-")}`;
        const { exports, touched, ...result } = await execute(runtime, script, entry, server.url, account);
        assert.deepEqual({ exports, touched }, { exports: EXPORTS, touched: [] });
        assert.deepEqual(result, expected(account));
        assert.deepEqual(await server.account(account), { id: account, balance: 5, entries: 1 });
      });
    }
  }
}
