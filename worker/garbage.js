// How often V8 collects what requests leave behind.
//
// Of each request the runtime leaves objects that only a full collection lets go of, and V8 begins one by how much memory it knows to be taken, to which they come to a
// small part of what they are: it began one every 12,000 requests or so, which held up all others for 100 ms and more. What is held here counts, so one begins earlier.
//
// Invariants:
// - What is held is never read nor written, so it takes no memory: that it may be resized is why the runtime does not clear it. It is 32 MB at most; V8 may count
//   64, for what was let go of counts until the next full collection.
// - It is let go of once there was a full collection: what is held does not have the next ones begin later.

const EACH_REQUESTS = 125;
const EACH_BYTES = 4 << 20;
const HELD_MAX = 8;

let requests = 0;
let held = [];
/** What it refers to is gone after a full collection, and only then. */
let mark;

/** To be called once a request. */
export function collect() {
  requests += 1;
  if (requests % EACH_REQUESTS) return;
  try {
    if (!mark?.deref()) {
      held = [];
      mark = new WeakRef({});
    } else if (held.length < HELD_MAX) {
      held.push(new ArrayBuffer(EACH_BYTES, { maxByteLength: EACH_BYTES }));
    }
  } catch {
    // There is no room for it, or no WeakRef under a compatibility date before 2025-05-05: V8 begins by itself.
  }
}
