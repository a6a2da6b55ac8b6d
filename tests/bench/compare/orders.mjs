// The script of a comparison: which orders a user makes, and what happens to each attempt.
//
// Invariants:
// - The fate of an attempt follows from the number of its order, and from how many attempts of that order came before. Nothing is random, and no clock
//   is read.
// - A client that sends every order up to four times gets every order through whose page stays.

const range = (first, last) => Array.from({ length: last - first + 1 }, (_, index) => first + index);

/** What the user orders, by when. The user wants each order once. */
export const ORDERS = {
  /** Before anything happens to the page. */
  before: range(1, 40),
  /** The network hangs, and the page is reloaded. A browser opens six connections to an origin, so one is left for the reload. */
  inFlight: range(41, 45),
  /** The browser is offline; the page is closed, and opened again online. */
  offline: range(46, 50),
  /** Afterwards. */
  after: range(51, 100),
};
/** Clicked twice, on a network without faults. */
export const DOUBLE_CLICKED = range(101, 105);

/** Of the orders that hang, these have had their effect. */
const DONE_BEFORE_IT_HANGS = new Set(range(41, 43));

/** The faults that the first attempts of an order meet, in turn. Later attempts meet none. */
export function faultsOf(n) {
  if (![...ORDERS.before, ...ORDERS.after].includes(n)) return [];
  const faults = [];
  if (n % 3 === 0) faults.push("lose-answer");
  if (n % 7 === 1) faults.push("lose-request");
  if (n % 10 === 5) faults.push("unavailable");
  return faults;
}

/** The fate of an attempt, counted from 1. `hangs`: whether the network hangs. */
export function fateOf(n, attempt, hangs) {
  if (hangs && ORDERS.inFlight.includes(n)) return attempt === 1 && DONE_BEFORE_IT_HANGS.has(n) ? "hang-after" : "hang";
  return faultsOf(n)[attempt - 1] ?? "pass";
}

/** How often the script has each fault. */
export function scripted() {
  const counts = { "lose-answer": 0, "lose-request": 0, unavailable: 0 };
  for (const n of Object.values(ORDERS).flat()) for (const fault of faultsOf(n)) counts[fault] += 1;
  return counts;
}
