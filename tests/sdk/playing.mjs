// What may befall tabs, by chance: a network that loses what is sent and what is answered, and a store that fails, does a thing twice, or does it and says that
// it is lost.
//
// Invariants:
// - A seed says how often what happens. What comes first is the machine's, so a seed that fails need not fail again; what must hold holds in any order.
// - Once it is calm nothing fails any more.

import { setTimeout as sleep } from "node:timers/promises";
import { lost, problem } from "./stub.mjs";

/** Nobody has to wait for so long, once it is calm. */
export const CALM_MS_MAX = 20_000;
/** So many plays are under way at a time: most of each is waiting. */
const TOGETHER = 8;

/** Runs `play` by each seed up to `seeds`. It gives what was wrong, and what happened. */
export async function played(seeds, play) {
  const left = Array.from({ length: seeds }, (_, seed) => seed);
  const wrong = [];
  const next = async () => {
    for (let seed = left.shift(); seed !== undefined; seed = left.shift()) {
      const { faults, log } = await play(new World(seed));
      if (faults.length > 0) wrong.push([`seed ${seed}`, ...faults, "what happened:", ...log].join("\n"));
    }
  };
  await Promise.all(Array.from({ length: TOGETHER }, next));
  return wrong;
}

class World {
  isCalm = false;
  faults = [];
  log = [];
  rows = new Map();
  living = new Set();
  #state;

  constructor(seed) {
    this.#state = seed * 7_919 + 17;
    for (let warm = 0; warm < 5; warm += 1) this.#next();
    this.lossy = this.oneOf(0, 0.15, 0.3);
    this.fails = this.oneOf(0, 0.05, 0.12);
    this.loses = this.oneOf(0, 0.05, 0.1);
  }

  #next() {
    this.#state = (Math.imul(this.#state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return this.#state / 0x80000000;
  }

  below(many) {
    return Math.floor(this.#next() * many);
  }

  oneOf(...all) {
    return all[this.below(all.length)];
  }

  happens(share) {
    return !this.isCalm && this.#next() < share;
  }

  /** Some time passes, at most so much. */
  async pass(ms) {
    if (!this.isCalm) await sleep(this.below(ms));
  }

  /** What becomes of a call. `serve`: what the worker makes of it. */
  async carry(call, serve) {
    await this.pass(15);
    if (this.happens(this.lossy)) return lost();
    if (this.happens(0.08)) return problem(503, "unavailable");
    const answer = serve();
    this.log.push(`${call}: ${answer.status} ${answer.headers.get("semel-status")} ${(await answer.clone().text()).slice(0, 300)}`);
    await this.pass(10);
    return this.happens(this.lossy) ? lost() : answer;
  }

  /** A store over the rows that all tabs share. */
  store() {
    const failing = (share) => {
      if (this.happens(share)) throw new Error("the disk fails");
    };
    const change = (id, to) => {
      const row = to(this.rows.get(id)?.slice());
      if (row === undefined) this.rows.delete(id);
      else if (row !== null) this.rows.set(id, row.slice());
    };
    return {
      load: async () => structuredClone([...this.rows]),
      change: async (id, to) => {
        await this.pass(6);
        failing(this.fails);
        change(id, to);
        await this.pass(4);
        if (this.happens(0.06)) change(id, to);
        if (this.happens(this.loses)) throw new Error("Connection to Indexed Database server lost. Refresh the page to try again");
      },
      remove: async (ids, isDone) => {
        failing(this.fails);
        for (const id of ids) if (this.rows.has(id) && isDone(this.rows.get(id))) this.rows.delete(id);
      },
      presence: (owner) => {
        this.living.add(owner);
        return { alive: async () => [...this.living], leave: () => this.living.delete(owner) };
      },
    };
  }

  /** That a caller of `what` was told an error, of which the truth is known: whether it ran. */
  checkTold(what, { code, executed }, hasRun) {
    if (executed === (hasRun ? "no" : "yes")) this.faults.push(`${what} was told ${code}, executed: ${executed}, and it ${hasRun ? "ran" : "never ran"}`);
  }
}
