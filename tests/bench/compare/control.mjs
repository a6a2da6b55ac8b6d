// Checks that a comparison measured what it claims: the scripted faults happened, to every library alike, and they do harm.
//
// Invariant: the control, which is a `fetch` in a loop on a server that executes everything, must come out exactly as the script predicts. A run whose
// control comes out better has measured nothing.

import { DOUBLE_CLICKED, ORDERS, faultsOf, scripted } from "./orders.mjs";

/** What is wrong with a run, as sentences. `runs`: `{ library, tally, dealt, attempts }` for each measured library. */
export function faultsOfRun(runs) {
  const wrong = [];
  const expect = (who, what, is, wanted) => {
    if (is !== wanted) wrong.push(`${who}: ${what} is ${is}, the script wants ${wanted}`);
  };
  for (const { library, dealt } of runs) {
    // A request that carries several orders meets the fate of only one of them.
    if (library.isBatching) continue;
    for (const [fault, count] of Object.entries(scripted())) expect(library.id, fault, dealt[fault], count);
  }
  const control = runs.find(({ library }) => library.isControl);
  if (!control) return [...wrong, "there is no control"];
  expect("control", "repeated", control.tally.repeated, scripted()["lose-answer"]);
  expect("control", "lost", control.tally.lost, control.dealt.hang);
  expect("control", "attempts", control.attempts, attemptsOfControl());
  return wrong;
}

/**
 * How many attempts the control makes: for each order until it gets through; one for those that hang; none for those offline. A browser that resends
 * on its own makes more.
 */
function attemptsOfControl() {
  const retried = [...ORDERS.before, ...ORDERS.after].reduce((sum, n) => sum + faultsOf(n).length + 1, 0);
  return retried + ORDERS.inFlight.length + 2 * DOUBLE_CLICKED.length;
}
