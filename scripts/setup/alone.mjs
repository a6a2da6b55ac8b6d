// One process at a time sets up this checkout: installs packages, or builds. Two would delete from under each other what they write, and each would
// take what the other has half written for good.
//
// Invariant: what is there already is looked at without this, so that nobody waits who has nothing to set up.

import { join } from "node:path";
import { hold } from "./hold.mjs";
import { BUILD } from "./paths.mjs";

/** A process does one thing after the other, and a step of a build may itself be one. */
let isOurs = false;

/** Runs `work` while no other process sets up this checkout. Whoever has to wait says so. */
export async function alone(work) {
  if (isOurs) return work();
  const held = await hold(join(BUILD, "holders"), (others, looks) => {
    // Two that come at one moment both look again, and then one of them is first.
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
