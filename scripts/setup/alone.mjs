// Makes sure that only one process at a time sets up this checkout: installs packages, or builds. Two at once would delete each other's files, and
// would take half-written files for complete ones.
//
// Invariant: a caller first checks, without this, whether there is anything to do. So nobody waits for nothing.

import { join } from "node:path";
import { hold } from "./hold.mjs";
import { BUILD } from "./paths.mjs";

/** A process does one thing after another, but a step of a build may itself call `alone`. */
let isOurs = false;

/** Runs `work` while no other process sets up this checkout. If it has to wait, it prints for whom. */
export async function alone(work) {
  if (isOurs) return work();
  const held = await hold(join(BUILD, "holders"), (others, looks) => {
    // Not at the first look: if two processes come at the same moment, both look again, and then one of them is first.
    if (looks === 1) console.log(`waiting for process ${others.join(" and ")}, which sets up this checkout too`);
  });
  isOurs = true;
  try {
    return await work();
  } finally {
    isOurs = false;
    held.release();
  }
}
