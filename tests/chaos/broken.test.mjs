// Runs with something broken on purpose: the oracles must find it. A run that can't fail would prove nothing.

import assert from "node:assert/strict";
import { test } from "node:test";
import { buildHelper } from "./files.mjs";
import { runChaos } from "./run.mjs";

const LIMIT = { timeout: 600_000 };
const NOTHING = { page: false, nodes: 0, hand: false, batches: false, tills: false, tabs: false, smallDisk: false, memory: false };

/** The machine, too, decides which fault meets which moment. So this many seeds are tried. */
const SEEDS = 8;

await buildHelper();

/** Runs one seed after the other until each of `patterns` is among the violations. Fails if one never is. */
async function isFound(patterns, settings) {
  const missing = new Set(patterns);
  const said = [];
  for (let seed = 1; seed <= SEEDS && missing.size > 0; seed += 1) {
    const { violations } = await runChaos({ seed, ...settings });
    for (const pattern of patterns) if (violations.some((line) => pattern.test(line))) missing.delete(pattern);
    said.push(...violations);
  }
  assert.equal(missing.size, 0, `${[...missing].join(", ")} not in:\n${said.join("\n")}`);
}

test("the oracle finds deposits made twice at accounts without protection", LIMIT, () =>
  isFound([/^account .* some were made twice$/], { durationMs: 10_000, parts: { ...NOTHING, hand: true }, naive: true }));

// The run need not wait long for the end: what the client has forgotten is never acknowledged.
test("the oracle finds deposits without an answer if a client's store forgets", LIMIT, () =>
  isFound([/its client did not know it any more$/], { durationMs: 20_000, parts: { ...NOTHING, nodes: 1 }, forgets: true, settleMs: 5_000 }));

test("the oracles find lost and repeated deposits if clients forget their sessions or give batches other ids each time", LIMIT, () => {
  const patterns = [/^deposit .* of node-(solo|duo)-\d: .* its client did not know it any more$/, /^account .* some were made twice$/];
  return isFound(patterns, { durationMs: 14_000, parts: { ...NOTHING, tills: true, batches: true }, forgets: true, renames: true, settleMs: 2_000 });
});

// The run need not wait long for the end: a session that is behind its client's numbers never goes on.
test("the oracle of sessions finds lost deposits and numbers if the server answers before it has stored", LIMIT, () =>
  isFound([/^session of (solo|duo).* does not follow from/], { durationMs: 10_000, parts: { ...NOTHING, tills: true }, loses: true, settleMs: 2_000 }));

test("the weighing finds clients that keep something of every answer, in Node and in a page", LIMIT, () => {
  const patterns = ["node-0", "page"].map((name) => new RegExp(`^the memory of ${name} grows and grows under the same load$`));
  return isFound(patterns, { durationMs: 1_000, parts: { ...NOTHING, page: true, nodes: 1, memory: true }, leaks: true });
});
