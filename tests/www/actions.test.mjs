// Tests what the lab's buttons do, as far as that needs no page.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Actions } from "../../www/lab/actions.js";
import { CLICKS_MAX } from "../../www/lab/limits.js";

/** Begins a run of `total` clicks on an account that has `made` clicks. Resolves to the texts that it showed, and the runs that it started. */
async function begun({ made, total }) {
  const [told, started] = [[], []];
  const journal = { clicks: { size: made }, startRun: async (run) => started.push(run.total) > 0 };
  const actions = new Actions({ journal, run: { drive: async () => {} }, tell: (text) => told.push(text) });
  await actions.begin({ total });
  return { told, started };
}

test("a run starts whole, or says that the account is full", async () => {
  const full = { told: [`An account takes ${CLICKS_MAX} clicks: start over.`], started: [] };
  assert.deepEqual(await begun({ made: CLICKS_MAX, total: 1 }), full);
  assert.deepEqual(await begun({ made: CLICKS_MAX - 99, total: 100 }), full);
  assert.deepEqual(await begun({ made: CLICKS_MAX - 100, total: 100 }), { told: [], started: [100] });
});
