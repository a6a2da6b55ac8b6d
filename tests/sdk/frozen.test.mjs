// Tests pages that are frozen while they wait for their store. When such a page thaws, an overdue timer may run before the page hears what the store
// answered meanwhile. The page must not conclude that the store doesn't answer.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as sessions from "./session-stub.mjs";
import { outbox, Rows } from "./stub.mjs";

const LIMIT = { timeout: 9_000 };
/** Longer than the SDK waits for any store. */
const FROZEN_MS = 60_000;

/**
 * Stops all timers. The function that this returns waits until `asked` gives the store's answer, as a function. Then the page thaws: first its
 * timers run, then it hears the answer.
 */
function freezing(t) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  return async (asked) => {
    let says;
    while (!(says = asked())) await new Promise((resolve) => setImmediate(resolve));
    t.mock.timers.tick(FROZEN_MS);
    says();
    // What the page does next may need timers.
    t.mock.timers.reset();
  };
}

/** Makes the store's function `name` delay its first answer until the test calls `told.says()`. */
function slow(store, name) {
  const told = {};
  const answer = store[name];
  store[name] = (...given) => {
    store[name] = answer;
    return new Promise((resolve) => (told.says = () => resolve(answer.apply(store, given))));
  };
  return told;
}

for (const name of ["load", "presence"]) {
  for (const [what, open] of [["an outbox", (_, t, store) => outbox(t, { store })], ["a session", (semel, _, store) => semel.session("accounts/a", "s", { store })]]) {
    test(`${what} opens even if its page was frozen before its store answered: ${name}`, LIMIT, async (t) => {
      const { semel } = await sessions.outbox(t);
      const store = new sessions.SharedRows();
      const told = slow(store, name);
      const thaws = freezing(t);
      const opening = open(semel, t, store);
      await Promise.all([opening, thaws(() => told.says)]);
    });
  }
}

test("pending() answers even if the page was frozen before the store answered", LIMIT, async (t) => {
  const store = new Rows();
  const { semel } = await outbox(t, { store });
  const told = slow(store, "load");
  const thaws = freezing(t);
  const [pending] = await Promise.all([semel.pending(), thaws(() => told.says)]);
  assert.deepEqual(pending, []);
});
