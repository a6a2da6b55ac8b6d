// Plays at random with tabs of one outbox, in a world where anything may fail. The tabs use few ids for many payloads, and often give no id. Each id
// runs once, and no error says something wrong.

import assert from "node:assert/strict";
import { test } from "node:test";
import { playOutbox } from "./play-outbox.mjs";
import { played, playedOnce } from "./playing.mjs";

const PLAYS = 32;

test("an outbox keeps its rules whatever befalls its pages, its store and its network", { timeout: 120_000 }, async (t) => {
  for (const name of ["error", "warn"]) t.mock.method(console, name, () => {});
  assert.deepEqual(await played(PLAYS, playOutbox), []);
});

test("the same seed plays the same outbox again", { timeout: 120_000 }, async () => {
  const [one, other] = [await playedOnce(3, playOutbox), await playedOnce(3, playOutbox)];
  assert.ok(one.log.length > 100);
  assert.deepEqual(other.log, one.log);
});
