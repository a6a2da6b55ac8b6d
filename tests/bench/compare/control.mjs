// Whether a comparison has measured what it says: the scripted faults were dealt, to every library alike, and they do harm.
//
// Invariant: the control, a `fetch` in a loop on a server that executes everything, must come out exactly as the script has it. A
// run whose control comes out better has measured nothing.

import { DOUBLE_CLICKED, ORDERS, faultsOf, scripted } from "./orders.mjs";

/** What is wrong with a run, as sentences. `runs`: `{ library, tally, dealt, attempts }`, of the measured ones. */
export function faultsOfRun(runs) {
  const wrong = [];
  const expect = (who, what, is, wanted) => {
    if (is !== wanted) wrong.push(`${who}: ${what} is ${is}, the script wants ${wanted}`);
  };
  for (const { library, dealt } of runs) {
    // A request that carries several orders meets one of their fates.
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

/** Each order until it gets through, once what hangs, nothing of what is offline; a browser that resends by itself sends more. */
function attemptsOfControl() {
  const retried = [...ORDERS.before, ...ORDERS.after].reduce((sum, n) => sum + faultsOf(n).length + 1, 0);
  return retried + ORDERS.inFlight.length + 2 * DOUBLE_CLICKED.length;
}
