// Puts `semel/worker` and `semel/upstream` into the npm package: the workers for handlers in JavaScript and TypeScript, and for code that
// is there already, as they were built.

import { existsSync } from "node:fs";
import { cp, rm } from "node:fs/promises";
import { join } from "node:path";
import { BUILD } from "./paths.mjs";
import { SDK_PACKAGE } from "./sdk.mjs";
import { hashOf, onceFor } from "./stamp.mjs";
import { step } from "./step.mjs";
import { buildWorker, workerFolder } from "./worker.mjs";

/** Folders of the package, and the workers that are in them. */
const PACKED = { worker: "script", upstream: "upstream" };
/** What is the same for both, and in the bundle of the one alone: in front of other code, only who consumes a queue has it. */
const SHARED = ["queue.js", "json.js"];

/** Builds them unless their sources are unchanged, a line a step. */
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
