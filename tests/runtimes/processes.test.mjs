// Tests the packed SDK in Node, Bun and Deno, imported and required.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { BINARIES } from "./binaries.mjs";
import { EXPORTS, installApp } from "./packed.mjs";
import { expected, serveLossily } from "./server.mjs";

const LIMIT = { timeout: 60_000 };

const server = await serveLossily(after);
const { folder } = await installApp(after);
const home = await mkdtemp(join(tmpdir(), "semel-home-"));
after(() => rm(home, { recursive: true, force: true }));

/** Deno grants what the package needs, and nothing else. */
const DENO = ["run", "--quiet", "--no-prompt", "--no-lock", "--cached-only", "--node-modules-dir=manual", "--allow-net=127.0.0.1"];
/** The arguments of each runtime before the script. Deno may write, because the script renames a file. */
const ARGUMENTS = {
  "node-20.0": [],
  "node-22": [],
  "node-26": [],
  bun: ["run", "--no-install"],
  deno: [...DENO, `--allow-read=${folder}`, `--allow-write=${folder}`],
};
/** The same for a script that uses the store on disk. It asks the system which processes live, and Deno allows that only with `--allow-all`. */
const DISK_ARGUMENTS = { ...ARGUMENTS, deno: ["run", "--quiet", "--no-lock", "--cached-only", "--node-modules-dir=manual", "--allow-all"] };

/** Runs a script of the app, and resolves to what it printed. Anything on the standard error is a failure. */
async function execute(runtime, before, script, ...more) {
  const args = [...before, join(folder, script), ...more];
  const env = { PATH: process.env.PATH, HOME: home, DENO_DIR: join(home, "deno"), DENO_NO_UPDATE_CHECK: "1" };
  const { stdout, stderr } = await promisify(execFile)(BINARIES[runtime].path, args, { cwd: folder, env, timeout: 30_000 });
  assert.equal(stderr, "");
  return JSON.parse(stdout);
}

for (const [runtime, before] of Object.entries(ARGUMENTS)) {
  for (const [script, way] of [["import.mjs", "imported"], ["require.cjs", "required"]]) {
    for (const entry of ["semel", "semel/inline"]) {
      test(`${runtime} ${BINARIES[runtime].version}: ${entry} is ${way} without side effects, and gets the answer that was lost`, LIMIT, async () => {
        const account = `${runtime}-${way}-${entry.replace("/", "-")}`;
        const { exports, touched, ...result } = await execute(runtime, before, script, entry, server.url, account);
        assert.deepEqual({ exports, touched }, { exports: EXPORTS, touched: [] });
        assert.deepEqual(result, expected(account));
        assert.deepEqual(await server.account(account), { id: account, balance: 5, entries: 1 });
      });
    }
  }
}

for (const [runtime, before] of Object.entries(DISK_ARGUMENTS)) {
  for (const [script, way] of [["import-store.mjs", "imported"], ["require-store.cjs", "required"]]) {
    test(`${runtime} ${BINARIES[runtime].version}: semel/file is ${way}, passes the checks of a store, and gets a lost answer`, LIMIT, async () => {
      const account = `${runtime}-${way}-file`;
      const { checks, ...result } = await execute(runtime, before, script, server.url, account, join(folder, account));
      assert.deepEqual(result, { failures: [], isStoreError: true, touched: [], ...expected(account) });
      assert.ok(checks > 20, `${checks} checks`);
      assert.deepEqual(await server.account(account), { id: account, balance: 5, entries: 1 });
    });
  }
}

test(`deno ${BINARIES.deno.version}: semel/inline reads no file`, LIMIT, async () => {
  assert.deepEqual(await execute("deno", DENO, "net-only.mjs", server.url, "deno-net-only"), expected("deno-net-only"));
});
