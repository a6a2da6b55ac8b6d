// When what is killed, and when the disk fills up: drawn before the run begins.
//
// Invariants:
// - It depends on the seed and the length of the run only.
// - In a minute, everything happens at least once.

import { stream } from "./random.mjs";

/** For each kind: the least and most ms between two events, and how long one lasts. */
const KINDS = {
  server: { gapMs: [3_000, 9_000], lastsMs: [0, 500] },
  browser: { gapMs: [8_000, 18_000], lastsMs: [0, 1_500] },
  node: { gapMs: [3_000, 8_000], lastsMs: [0, 1_500] },
  tab: { gapMs: [5_000, 12_000], lastsMs: [0, 1_500] },
  disk: { gapMs: [6_000, 14_000], lastsMs: [800, 3_000] },
};

/** `{ kind: [{ atMs, lastsMs }] }`, in order, none later than `durationMs`. */
export function scheduleOf(seed, durationMs, kinds = Object.keys(KINDS)) {
  return Object.fromEntries(kinds.map((kind) => [kind, eventsOf(kind, stream(seed, kind), durationMs)]));
}

function eventsOf(kind, random, durationMs) {
  const { gapMs, lastsMs } = KINDS[kind];
  const events = [];
  for (let atMs = random.between(...gapMs); atMs < durationMs; atMs += random.between(...gapMs)) {
    events.push({ atMs: Math.round(atMs), lastsMs: Math.round(random.between(...lastsMs)) });
  }
  return events;
}
