// Measures garbage collection while a server has half of its peak load: how often it happens, how long everything else waits for it, and how much of
// that is V8's own work. The rest of a full collection is the runtime's, which releases each of its objects that has died.

import { deposit, load, warmUp } from "./load.mjs";
import { paced } from "./paced.mjs";

const PATH = "/accounts/bench/deposit";
const CONNECTIONS = 64;
/** The length of the measurement in rounds: long enough for some full collections. */
const TIMES = 48;
/** The parts of V8's own work in a full collection, as V8 reports them. */
const PHASES = ["prologue", "mark", "weakness_handling", "clear", "evacuate", "sweep", "finish", "epilogue"];
const KINDS = { mc: "full", s: "young" };

/** Loads both sides on the disk of `sides`. Resolves to lines of text. */
export async function collections(sides, forMs) {
  const lines = ["", "collections of garbage at half of the peak load:"];
  for (const [name, side] of [["floor", "floor"], ["Semel", "ledger"]]) {
    let log = "";
    const next = deposit(PATH);
    const { url } = await sides[side]({ state: `${side}-collected`, v8Flags: ["--trace-gc-nvp"], onLog: (chunk) => (log += chunk) });
    await warmUp(url, forMs, next);
    const { rate } = await load(url, { connections: CONNECTIONS, forMs, of: () => next });
    log = "";
    const requests = (await paced(url, { rate: rate / 2, forMs: TIMES * forMs, next })).length;
    lines.push(`${name}, ${Math.round(rate / 2)} requests a second:`, ...collected(log, requests));
  }
  return lines;
}

/** Summarises V8's log while `requests` were answered: a line for each kind of collection. */
export function collected(log, requests) {
  const all = collectionsOf(log);
  return Object.entries(KINDS).map(([kind, name]) => {
    const those = all.filter(({ gc }) => gc === kind);
    const sum = (valueOf) => those.reduce((total, one) => total + valueOf(one), 0);
    const [pauseMs, ownMs] = [sum(({ pause }) => pause), sum((one) => PHASES.reduce((total, phase) => total + (one[phase] ?? 0), 0))];
    const each = (total) => (total / Math.max(those.length, 1)).toFixed(1);
    const own = kind === "mc" ? `, of which V8's own work is ${each(ownMs)}` : `, in which ${each(sum((one) => one.nodes_died_in_new))} of the runtime's objects are let go`;
    return `  ${those.length} ${name} of ${each(pauseMs)} ms${own}: ${((pauseMs * 1000) / requests).toFixed(1)} µs a request`;
  });
}

/** The collections in V8's log. A line that was mixed with another can't be read, and is left out. */
export function collectionsOf(log) {
  return [...log.matchAll(/ms: GC: ([{].*[}])$/gm)].flatMap(([, json]) => {
    try {
      return [JSON.parse(json)];
    } catch {
      return [];
    }
  });
}
