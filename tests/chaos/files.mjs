// The SQLite files of a stopped server, looked through by a native helper: what Node itself can't read.

import { join } from "node:path";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { run } from "../../scripts/setup/step.mjs";

const HELPER = join(ROOT, "target/debug/inspect");

/** Builds the helper. */
export async function buildHelper() {
  await run("cargo", ["build", "--quiet", "--locked", "-p", "semel-support", "--bin", "inspect"], { cwd: ROOT, env: { CARGO_TARGET_DIR: join(ROOT, "target") } });
}

/** Resolves to `{ file, integrity, unacknowledged, account, kept }` of each file. */
export async function inspect(folder) {
  const lines = (await run(HELPER, [folder])).split("\n");
  const of = ({ file, found }) => ({ file, ...found });
  return lines.filter((line) => line !== "").map((line) => of(JSON.parse(line)));
}
