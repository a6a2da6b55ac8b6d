// Puts `semel/worker` into the npm package: the worker for handlers in JavaScript and TypeScript, as it was built.

import { existsSync } from "node:fs";
import { cp, rm } from "node:fs/promises";
import { join } from "node:path";
import { BUILD } from "./paths.mjs";
import { SDK_PACKAGE } from "./sdk.mjs";
import { hashOf, onceFor } from "./stamp.mjs";
import { step } from "./step.mjs";
import { buildWorker, workerFolder } from "./worker.mjs";

/** Builds it unless its sources are unchanged, a line a step. */
export async function buildPackedWorker() {
  await buildWorker("script");
  const folder = join(SDK_PACKAGE, "worker");
  const stamp = join(BUILD, "packed-worker.stamp");
  if (!existsSync(join(folder, "index.js"))) await rm(stamp, { force: true });
  await step("semel/worker", async () =>
    onceFor(stamp, await hashOf(["build/script"]), async () => {
      await rm(folder, { recursive: true, force: true });
      await cp(workerFolder("script"), folder, { recursive: true });
    }),
  );
}
