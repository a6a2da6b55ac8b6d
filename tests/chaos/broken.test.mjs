// What is broken on purpose must be found: a run that can't fail would prove nothing.

import assert from "node:assert/strict";
import { test } from "node:test";
import { buildHelper } from "./files.mjs";
import { runChaos } from "./run.mjs";

const LIMIT = { timeout: 600_000 };
const NOTHING = { page: false, nodes: 0, hand: false, batches: false, tills: false, tabs: false, smallDisk: false, memory: false };

await buildHelper();

test("accounts without protection have deposits twice, and the oracle says so", LIMIT, async () => {
  const { violations } = await runChaos({ seed: 1, durationMs: 10_000, parts: { ...NOTHING, hand: true }, naive: true });
  assert.ok(violations.some((line) => /^account .* some were made twice$/.test(line)), violations.join("\n"));
});

test("a client whose store forgets leaves deposits without an answer, and the oracle says so", LIMIT, async () => {
  // What was forgotten is never acknowledged: there is nothing to wait for.
  const { violations } = await runChaos({ seed: 1, durationMs: 20_000, parts: { ...NOTHING, nodes: 1 }, forgets: true, settleMs: 5_000 });
  assert.ok(violations.some((line) => /its client did not know it any more$/.test(line)), violations.join("\n"));
});

test("clients whose sessions are forgotten, or whose batches have other ids each time, leave deposits without an answer or make them twice, and the oracles say so", LIMIT, async () => {
  const parts = { ...NOTHING, tills: true, batches: true };
  const { violations } = await runChaos({ seed: 1, durationMs: 14_000, parts, forgets: true, renames: true, settleMs: 2_000 });
  for (const found of [/^deposit .* of node-(solo|duo)-\d: .* its client did not know it any more$/, /^account .* some were made twice$/]) {
    assert.ok(violations.some((line) => found.test(line)), violations.join("\n"));
  }
});

test("a server that answers before it has stored loses deposits and numbers of sessions, and their oracle says so", LIMIT, async () => {
  // A session that is behind its client's numbers goes on no more: there is nothing to wait for.
  const { violations } = await runChaos({ seed: 1, durationMs: 10_000, parts: { ...NOTHING, tills: true }, loses: true, settleMs: 2_000 });
  assert.ok(violations.some((line) => /^session of (solo|duo).* does not follow from/.test(line)), violations.join("\n"));
});

test("clients that keep something of every answer grow and grow, in Node and in a page, and the weighing says so", LIMIT, async () => {
  const parts = { ...NOTHING, page: true, nodes: 1, memory: true };
  const { violations } = await runChaos({ seed: 1, durationMs: 1_000, parts, leaks: true });
  for (const name of ["node-0", "page"]) assert.ok(violations.includes(`the memory of ${name} grows and grows under the same load`), violations.join("\n"));
});
