// The parts of the set-up that decide: what is unchanged, what is too large.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { after, test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { hashOf, onceFor } from "../../scripts/setup/stamp.mjs";
import { StepError, run } from "../../scripts/setup/step.mjs";
import { checkSize } from "../../scripts/setup/worker.mjs";

const scratch = await mkdtemp(join(tmpdir(), "semel-setup-"));
after(() => rm(scratch, { recursive: true, force: true }));

test("sources that changed in name or content are built again, others are not", async () => {
  const folder = join(scratch, "sources");
  const source = relative(ROOT, folder);
  const stamp = join(scratch, "stamp");
  await run("mkdir", [folder]);
  await writeFile(join(folder, "one"), "a");
  let builds = 0;
  const build = async () => onceFor(stamp, await hashOf([source]), async () => void (builds += 1));
  await build();
  assert.equal(await build(), "unchanged");
  await writeFile(join(folder, "one"), "b");
  await build();
  await run("mv", [join(folder, "one"), join(folder, "two")]);
  await build();
  assert.equal(await build(), "unchanged");
  assert.equal(builds, 3);
});

test("a build that failed is not taken for one that ran", async () => {
  const stamp = join(scratch, "failing");
  await onceFor(stamp, "same", async () => {});
  await assert.rejects(onceFor(stamp, "other", () => Promise.reject(new Error("it failed"))), /it failed/);
  let isBuilt = false;
  await onceFor(stamp, "same", async () => void (isBuilt = true));
  assert.ok(isBuilt);
});

test("a bundle over 300 kB gzip fails the build", async () => {
  const folder = await mkdtemp(join(scratch, "bundle-"));
  await writeFile(join(folder, "index.js"), randomBytes(290_000));
  assert.match(await checkSize(folder), /of 300000 bytes gzip/);
  await writeFile(join(folder, "semel_bg.wasm"), randomBytes(20_000));
  await assert.rejects(checkSize(folder), StepError);
});

test("a command that is missing or fails says so, with its output and what to do", async () => {
  await assert.rejects(run("semel-no-such-command", [], { advice: "install it" }), (error) => {
    assert.match(error.message, /not found on PATH/);
    assert.equal(error.advice, "install it");
    return error instanceof StepError;
  });
  await assert.rejects(run("sh", ["-c", "echo why >&2; exit 3"]), /ended with 3\nwhy/);
});
