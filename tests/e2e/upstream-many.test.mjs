// A key in front of an API gets more requests than an object may have timers, and each has a long time-out. So each request must take its timer with
// it.
//
// Invariant: the runtime allows ten thousand timers at once, and fewer requests would show nothing.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { otherSide } from "./other-side.mjs";
import { serve } from "./server.mjs";

const TIMERS_MAX = 10_000;
const CONNECTIONS = 4;

test("a key sends more requests upstream within one time-out than an object may have timers", { timeout: 240_000 }, async () => {
  const other = await otherSide(after);
  const vars = { SEMEL_UPSTREAM: other.url, SEMEL_UPSTREAM_TIMEOUT_SECONDS: "600" };
  const server = await serve(after, "upstream", vars, { reachesLocal: true });
  const headers = { "content-type": "application/json", "semel-key": '"all"' };
  const statuses = new Map();
  let left = TIMERS_MAX + 100;
  const client = async () => {
    for (; left > 0; left -= 1) {
      const { semel } = await server.send("POST", "/orders", { id: randomUUID(), body: JSON.stringify({ ref: String(left) }), headers });
      statuses.set(semel, (statuses.get(semel) ?? 0) + 1);
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, client));
  assert.deepEqual([...statuses.keys()], ["executed"]);
  assert.equal(other.changes, statuses.get("executed"));
});
