// Checks that a run has had everything happen that it is there for: a fault that never happened was not tested.
//
// Invariant: a run that is long enough for everything (see schedule.mjs) fails if anything of it never happened.

const WHOLE_MS = 60_000;

/** How often each fault happened that should, and how often each client got an answer, from the run's figures. */
function dealt(figures, { parts, isSmallDisk }) {
  const { requestsCut, answersCut, requestsTruncated, answersTruncated, requestsStalled, answersStalled, duplicates, unreachable } = figures;
  const { serverKills, browserKills, nodeKills, fills, refusedByFullDisk, answered } = figures;
  const { batches, madeInSessions, fenced, tabKills, sockets, socketsCut, socketsTruncated, socketsStalled } = figures;
  return {
    ...{ requestsCut, answersCut, requestsTruncated, answersTruncated, requestsStalled, answersStalled, duplicates, unreachable, serverKills },
    ...(parts.page && { browserKills }),
    ...(parts.nodes > 0 && { nodeKills }),
    ...(parts.batches && { batches }),
    ...((parts.tills || parts.tabs) && { madeInSessions, fenced }),
    // There are few sockets, so their faults are counted together.
    ...(parts.tabs && { tabKills, sockets, "faults of sockets": socketsCut + socketsTruncated + socketsStalled }),
    ...(isSmallDisk && { fills, refusedByFullDisk }),
    ...Object.fromEntries(Object.entries(answered).map(([name, count]) => [`answers to ${name}`, count])),
  };
}

/** A line for each thing that never happened. */
export function missing(figures, { durationMs, ...more }) {
  if (durationMs < WHOLE_MS) return [];
  const never = Object.entries(dealt(figures, more)).filter(([, count]) => !(count > 0));
  return never.map(([name]) => `in a whole run there must be all of it, and this never happened: ${name}`);
}
