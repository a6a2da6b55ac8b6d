// Looks through the SQLite files of a stopped server with a native helper, because Node itself can't read them.

import { join } from "node:path";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { run } from "../../scripts/setup/step.mjs";

const HELPER = join(ROOT, "target/debug/inspect");

/** Builds the helper. */
export async function buildHelper() {
  await run("cargo", ["build", "--quiet", "--locked", "-p", "semel-support", "--bin", "inspect"], { cwd: ROOT, env: { CARGO_TARGET_DIR: join(ROOT, "target") } });
}

/** Resolves to `{ file, integrity, unacknowledged, account, kept }` for each file. */
export async function inspect(folder) {
  const lines = (await run(HELPER, [folder])).split("\n");
  const of = ({ file, found }) => ({ file, ...found });
  return lines.filter((line) => line !== "").map((line) => of(JSON.parse(line)));
}
