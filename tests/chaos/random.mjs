// All randomness of a run, from one seed.
//
// Invariant: each purpose has its own stream. How often one stream is asked depends on the machine, but does not change the others. So the schedule
// of kills
// is the same for a seed, however many connections come meanwhile.

import { createHash } from "node:crypto";
import { randomOf } from "../e2e/lossy.mjs";

/** Numbers from 0 to 1, the same for the same seed and purpose. */
export function stream(seed, purpose) {
  const next = randomOf(createHash("sha256").update(`${seed} ${purpose}`).digest().readUInt32LE());
  const between = (least, most) => least + next() * (most - least);
  return { next, between, below: (count) => Math.floor(next() * count) };
}
