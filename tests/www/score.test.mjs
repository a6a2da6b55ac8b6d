// Tests what the score says of a difference.

import assert from "node:assert/strict";
import { test } from "node:test";
import { verdictOf } from "../../www/view/score.js";

test("a surplus is wrong at once, a shortfall is missing only once all is settled, and exact is said only then", () => {
  const cases = [
    [undefined, false, "open", "not known yet"],
    [undefined, true, "open", "not known yet"],
    [0, true, "right", "±$0: exact"],
    [0, false, "open", "±$0"],
    [10, true, "wrong", "+$10: too much"],
    [1_230, false, "wrong", "+$1,230: too much"],
    [-10, true, "wrong", "−$10: missing"],
    [-1_230, false, "open", "−$1,230: under way"],
  ];
  for (const [difference, isSettled, kind, text] of cases) assert.deepEqual(verdictOf(difference, isSettled), { kind, text }, `${difference}, ${isSettled ? "settled" : "not settled"}`);
});
