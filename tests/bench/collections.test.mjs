// Tests how often the server's V8 collects garbage: it logs each collection, and the test counts requests, so no speed matters.

import assert from "node:assert/strict";
import { tmpdir } from "node:os";
import { test } from "node:test";
import { collectionsOf } from "./collections.mjs";
import { deposit, load } from "./load.mjs";
import { Sides } from "./sides.mjs";

/** In so many requests, V8 would by itself make one or two full collections. */
const REQUESTS = 24_000;
const WARM_REQUESTS = 8_000;

test("V8 makes at least 5 full collections in 24,000 requests", { timeout: 120_000 }, async (t) => {
  const sides = await Sides.on(tmpdir());
  t.after(() => sides.end());
  let log = "";
  const { url } = await sides.ledger({ v8Flags: ["--trace-gc-nvp"], onLog: (chunk) => (log += chunk) });
  const next = deposit("/accounts/collected/deposit");
  const send = (requests) => load(url, { connections: 16, requests, of: () => next });
  await send(WARM_REQUESTS);
  log = "";
  await send(REQUESTS);
  const full = collectionsOf(log).filter(({ gc }) => gc === "mc");
  assert.ok(full.length >= 5, `${full.length} in ${REQUESTS} requests`);
});
