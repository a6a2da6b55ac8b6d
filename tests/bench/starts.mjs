// Starts each side several times. Their rounds take turns.
//
// Two starts of the same server on the same machine may differ by a fifth, each for as long as it lives. With one start of each side, a ratio would
// be of
// these two starts only.

const STARTS = 3;

/** Resolves to what `begin` makes of each start. */
export async function each(begin) {
  const starts = [];
  for (let start = 0; start < STARTS; start += 1) starts.push(await begin(start));
  return starts;
}

/** The start whose turn it is in a round. */
export const ofRound = (starts, round) => starts[round % starts.length];
