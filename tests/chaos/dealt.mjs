// Whether a run has dealt out all that it is there for: what never went wrong was never borne.
//
// Invariant: a run that is long enough to have everything in it (see schedule.mjs) fails where something never happened.

const WHOLE_MS = 60_000;

/** Of each fault that should have happened, and of each client that should have got through, how often: by the run's figures. */
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
    // Of sockets there are few.
    ...(parts.tabs && { tabKills, sockets, "faults of sockets": socketsCut + socketsTruncated + socketsStalled }),
    ...(isSmallDisk && { fills, refusedByFullDisk }),
    ...Object.fromEntries(Object.entries(answered).map(([name, count]) => [`answers to ${name}`, count])),
  };
}

/** A line for each that is missing. */
export function missing(figures, { durationMs, ...more }) {
  if (durationMs < WHOLE_MS) return [];
  const never = Object.entries(dealt(figures, more)).filter(([, count]) => !(count > 0));
  return never.map(([name]) => `in a whole run there must be all of it, and this never happened: ${name}`);
}
