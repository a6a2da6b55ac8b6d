// Puts `semel/worker` and `semel/upstream` into the npm package: the built Worker for handlers in JavaScript and TypeScript, and the one that goes in
// front of existing code.

import { existsSync } from "node:fs";
import { cp, rm } from "node:fs/promises";
import { join } from "node:path";
import { BUILD } from "./paths.mjs";
import { SDK_PACKAGE } from "./sdk.mjs";
import { hashOf, onceFor } from "./stamp.mjs";
import { step } from "./step.mjs";
import { buildWorker, workerFolder } from "./worker.mjs";

/** Folders of the package, and which worker each contains. */
const PACKED = { worker: "script", upstream: "upstream" };
/** Files that both need, although only the bundle of `script` contains them: in front of other code, only a consumer of a queue uses them. */
const SHARED = ["queue.js", "json.js"];

/** Builds them unless their sources are unchanged. Prints one line for each step. */
export async function buildPackedWorkers() {
  for (const [name, worker] of Object.entries(PACKED)) {
    await buildWorker(worker);
    const folder = join(SDK_PACKAGE, name);
    const stamp = join(BUILD, `packed-${name}.stamp`);
    if (!existsSync(join(folder, "index.js"))) await rm(stamp, { force: true });
    await step(`semel/${name}`, async () =>
      onceFor(stamp, await hashOf([`build/${worker}`, ...SHARED.map((file) => `build/script/${file}`)]), async () => {
        await rm(folder, { recursive: true, force: true });
        await cp(workerFolder(worker), folder, { recursive: true });
        for (const file of SHARED) await cp(join(workerFolder("script"), file), join(folder, file));
      }),
    );
  }
}
