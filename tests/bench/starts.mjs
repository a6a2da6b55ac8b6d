// Several starts of each side, whose rounds take turns.
//
// Two starts of one server on one machine may differ by a fifth, each in its own way as long as it lives. With one of each, a ratio would be of these two.

const STARTS = 3;

/** What `begin` gives of each start. */
export async function each(begin) {
  const starts = [];
  for (let start = 0; start < STARTS; start += 1) starts.push(await begin(start));
  return starts;
}

/** The start whose turn it is. */
export const ofRound = (starts, round) => starts[round % starts.length];
