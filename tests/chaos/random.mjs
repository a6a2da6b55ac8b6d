// All chance of a run, from one seed.
//
// Invariant: each purpose has a stream of its own. So how often one is asked, which depends on the machine, changes nothing
// of the others: the schedule of kills is the same for a seed, however many connections come meanwhile.

import { createHash } from "node:crypto";
import { randomOf } from "../e2e/lossy.mjs";

/** Numbers from 0 to 1, the same for the same seed and purpose. */
export function stream(seed, purpose) {
  const next = randomOf(createHash("sha256").update(`${seed} ${purpose}`).digest().readUInt32LE());
  const between = (least, most) => least + next() * (most - least);
  return { next, between, below: (count) => Math.floor(next() * count) };
}
