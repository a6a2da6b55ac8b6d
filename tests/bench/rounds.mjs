// Rounds of several sides in turn, and what is made of their figures.
//
// Invariant: all sides run round by round, each beside what it is compared with, and what counts is the ratio within a round: machines are
// noisy, and noise that hits all sides leaves it alone.

/** Runs each of `sides`, functions by name of which round it is, `rounds` times in turn, and before that once unless all are warm. Resolves to what each made of each round. */
export async function interleaved(sides, rounds, { isWarm = false } = {}) {
  const names = Object.keys(sides);
  const made = Object.fromEntries(names.map((name) => [name, []]));
  if (!isWarm) for (const name of names) await sides[name](0);
  for (let round = 0; round < rounds; round += 1) {
    // The side that goes first changes, so that none always finds the disk as another left it.
    for (const name of round % 2 === 0 ? names : names.toReversed()) made[name].push(await sides[name](round));
  }
  return made;
}

export const median = (numbers) => quantile(numbers, 0.5);

/** The number that a share of all is at most. */
export function quantile(numbers, share) {
  return numbers.toSorted((one, other) => one - other)[Math.min(numbers.length - 1, Math.floor(numbers.length * share))];
}

/** The median of what each round's number is to the other's. */
export const ratio = (numbers, others) => median(numbers.map((number, round) => number / others[round]));
