// A page that is frozen while it waits for its store: as it thaws, a timer that has been due for long may run before it hears what the store has
// said meanwhile. That is no store that does not answer.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as sessions from "./session-stub.mjs";
import { outbox, Rows } from "./stub.mjs";

const LIMIT = { timeout: 9_000 };
/** Longer than any store is waited for. */
const FROZEN_MS = 60_000;

/** Timers stand still from now on. Returns what waits until `asked` gives what it is that the store would say; then the page thaws, and hears that. */
function freezing(t) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  return async (asked) => {
    let says;
    while (!(says = asked())) await new Promise((resolve) => setImmediate(resolve));
    t.mock.timers.tick(FROZEN_MS);
    says();
    // What it does then may take timers.
    t.mock.timers.reset();
  };
}

/** Of a store, one function answers for the first time only once it is told to: by what `told.says` is then. */
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
    test(`${what} opens though its page was frozen before its store had answered: ${name}`, LIMIT, async (t) => {
      const { semel } = await sessions.outbox(t);
      const store = new sessions.SharedRows();
      const told = slow(store, name);
      const thaws = freezing(t);
      const opening = open(semel, t, store);
      await Promise.all([opening, thaws(() => told.says)]);
    });
  }
}

test("what is pending is told though the page was frozen before the store had answered", LIMIT, async (t) => {
  const store = new Rows();
  const { semel } = await outbox(t, { store });
  const told = slow(store, "load");
  const thaws = freezing(t);
  const [pending] = await Promise.all([semel.pending(), thaws(() => told.says)]);
  assert.deepEqual(pending, []);
});
