// Makes V8 collect garbage more often, so that each collection is short.
//
// Each request leaves objects of the runtime that only a full collection frees. V8 starts one by the memory that it knows of, and it knows of a small part
// of these objects. So it started one about every 12,000 requests, and each held up all others for 100 ms or more. The buffers held here count as
// memory, so collections start earlier. Measured in docs/performance.md, "The slowest of a hundred at half the peak".
//
// Invariants:
// - The buffers are never read or written, so they take no memory. They are resizable because the runtime would clear, and so touch, others. They have at most
//   32 MB; V8 may count 64, because released buffers count until the next full collection.
// - The buffers are released after a full collection. Otherwise later collections would start later again.

const EACH_REQUESTS = 125;
const EACH_BYTES = 4 << 20;
const HELD_MAX = 8;

let requests = 0;
let held = [];
/** Its target disappears at the next full collection, and not before. */
let mark;

/** To be called once for each request. */
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
    // There is no memory, or no WeakRef because the compatibility date is before 2025-05-05: V8 then collects as it would.
  }
}
