// Fills keys with very many rows: a native helper writes them into the file of a stopped server, with the engine's own code.

import { join } from "node:path";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { run } from "../../scripts/setup/step.mjs";

/** Builds the helper. Resolves to `crowd(server, what, count, atS)`, which resolves to `{ bytes, outcome }` for each row. */
export async function buildCrowd() {
  await run("cargo", ["build", "--quiet", "--locked", "-p", "semel-support", "--bin", "crowd"], { cwd: ROOT, env: { CARGO_TARGET_DIR: join(ROOT, "target") } });
  const helper = join(ROOT, "target/debug/crowd");
  return async ({ state }, what, count, atS) => JSON.parse(await run(helper, [state, what, String(count), String(atS)]));
}
