// Plays at random with tabs that take a session over from each other, in a world where anything may fail. Each call runs once, and no error says
// something wrong.

import assert from "node:assert/strict";
import { test } from "node:test";
import { playSession } from "./play-session.mjs";
import { played, playedOnce } from "./playing.mjs";

const PLAYS = 32;

test("in a session that goes from tab to tab each call runs once, its maker gets its answer, and no error is wrong", { timeout: 120_000 }, async (t) => {
  for (const name of ["error", "warn"]) t.mock.method(console, name, () => {});
  assert.deepEqual(await played(PLAYS, playSession), []);
});

test("the same seed plays the same session again", { timeout: 120_000 }, async () => {
  const [one, other] = [await playedOnce(3, playSession), await playedOnce(3, playSession)];
  assert.ok(one.log.length > 100);
  assert.deepEqual(other.log, one.log);
});
