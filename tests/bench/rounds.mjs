// Runs several sides in turn, round by round, and evaluates their figures.
//
// Invariant: each side runs next to what it is compared with, and what counts is the ratio within a round. Machines are noisy, but noise that hits all
// sides does not change the ratio.

/**
 * Runs each of `sides` `rounds` times, in turn, with the number of the round; and once before that, unless all are warm. Resolves to what each side made
 * of each round.
 */
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

/** The quantile: the given share of all numbers is at most this number. */
export function quantile(numbers, share) {
  return numbers.toSorted((one, other) => one - other)[Math.min(numbers.length - 1, Math.floor(numbers.length * share))];
}

/** The median of the ratios of both sides' numbers, round by round. */
export const ratio = (numbers, others) => median(numbers.map((number, round) => number / others[round]));
