// Tabs of one outbox, in a world where anything may fail, which use few ids for many payloads and many without one: an id runs once, and nobody is told what is not so.

import assert from "node:assert/strict";
import { test } from "node:test";
import { playOutbox } from "./play-outbox.mjs";
import { played, playedOnce } from "./playing.mjs";

const PLAYS = 32;

test("what must hold of an outbox holds whatever befalls its pages, its store and its network", { timeout: 120_000 }, async (t) => {
  for (const name of ["error", "warn"]) t.mock.method(console, name, () => {});
  assert.deepEqual(await played(PLAYS, playOutbox), []);
});

test("a seed plays the same again", { timeout: 120_000 }, async () => {
  const [one, other] = [await playedOnce(3, playOutbox), await playedOnce(3, playOutbox)];
  assert.ok(one.log.length > 100);
  assert.deepEqual(other.log, one.log);
});
