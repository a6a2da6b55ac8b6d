// Compares what the servers executed in a run with what the application was told.

import { DOUBLE_CLICKED, ORDERS } from "./orders.mjs";

/** Returns the figures of a run, from the result of `runLibrary`. */
export function tallyOf({ left, effects }) {
  const made = (n) => effects.get(n) ?? 0;
  const told = left.end;
  const wanted = Object.values(ORDERS).flat();
  const count = (orders, which) => orders.filter(which).length;
  const group = (name) => {
    const unfinished = ORDERS[name].filter((n) => !left[name].has(n));
    return {
      unfinished: unfinished.length,
      made: count(unfinished, (n) => made(n) > 0),
      answered: count(unfinished, (n) => told.get(n) === "made" && made(n) > 0),
    };
  };
  return {
    effects: wanted.reduce((sum, n) => sum + made(n), 0),
    repeated: wanted.reduce((sum, n) => sum + Math.max(0, made(n) - 1), 0),
    lost: count(wanted, (n) => made(n) === 0 && told.get(n) !== "failed"),
    toldWrongly: count(wanted, (n) => told.has(n) && (told.get(n) === "made") !== made(n) > 0),
    neverTold: count(wanted, (n) => !told.has(n)),
    refused: count(wanted, (n) => told.get(n) === "failed" && made(n) === 0),
    inFlight: group("inFlight"),
    offline: group("offline"),
    doubleClicks: DOUBLE_CLICKED.reduce((sum, n) => sum + made(n), 0),
  };
}
