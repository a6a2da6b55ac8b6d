// A load that the server can't slow down: a fixed number of requests a second, whether or not earlier ones are answered.
//
// Invariants:
// - How long a request took is counted from the instant at which it was due. If it could not be sent in time because the server or this client was
//   busy,
//   that wait is in the figures, too. Nothing is left out because others were slow.
// - Every request that was due is sent and gets its answer, or the measurement fails.

import { Line } from "./load.mjs";

/** These are opened before the first request is due, because opening is not part of a request. */
const LINES_AT_FIRST = 64;
/** With this many connections open, requests wait for one another. */
const LINES_MAX = 1000;
/** A connection that was idle for this long is opened anew: the server closes it after five seconds. */
const IDLE_MS_MAX = 3_000;

/** Sends `rate` requests a second for `forMs`, as `next` makes them. Resolves to how many ms each took, and when it was due. */
export async function paced(url, { rate, forMs, next }) {
  const fresh = async () => ({ line: await Line.to(url), id: undefined, usedMs: performance.now() });
  const idle = await Promise.all(Array.from({ length: LINES_AT_FIRST }, fresh));
  let opened = idle.length;
  const due = [];
  const took = [];
  const flights = new Set();
  const startedMs = performance.now();

  /** Sends everything that is due over one connection, one request after another. */
  const drive = async (mine) => {
    if (mine !== undefined && performance.now() - mine.usedMs > IDLE_MS_MAX) {
      mine.line.close();
      mine = undefined;
    }
    mine ??= await fresh();
    for (let atMs = due.shift(); atMs !== undefined; atMs = due.shift()) {
      const request = next(mine.id);
      mine.id = request.id;
      await mine.line.ask(request.bytes);
      took.push({ ms: performance.now() - startedMs - atMs, atMs });
    }
    mine.usedMs = performance.now();
    idle.push(mine);
  };
  const fly = () => {
    const flight = drive(idle.pop()).finally(() => flights.delete(flight));
    flights.add(flight);
    return flight;
  };

  await new Promise((resolve, reject) => {
    let planned = 0;
    const look = () => {
      const passedMs = performance.now() - startedMs;
      for (; (planned * 1000) / rate <= Math.min(passedMs, forMs); planned += 1) {
        due.push((planned * 1000) / rate);
        if (idle.length > 0 || opened < LINES_MAX) {
          if (idle.length === 0) opened += 1;
          fly().catch(reject);
        }
      }
      if (passedMs > forMs) resolve();
      // Not a timer, which would be late by a millisecond.
      else setImmediate(look);
    };
    look();
  });
  await Promise.all(flights);
  for (const { line } of idle) line.close();
  return took;
}
