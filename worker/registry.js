// The registry of keys: shards, and the coordinator of what all keys have to do. What is decided is the module's; here objects
// call each other.
//
// Invariants:
// - No request of an application comes here, and none waits for what happens here.
// - A job goes on from what is stored, whenever it was cut off. An alarm for the next try is set before one begins, so that none is
//   given up; and who asks for the progress restarts a job that nobody works on.
// - A key that does not answer holds up its own part of a visit for a while, and no other key for longer.

import { DurableObject } from "cloudflare:workers";
import { within } from "./chores.js";
import { attempted, glue, note, perInstance, settingsOf } from "./module.js";
import { objectOf, SHARDS, shardOf } from "./objects.js";

/** So many keys of a shard are visited at once: with 16 shards 32, so that others who ask for an object aren't kept waiting. */
const VISITS_AT_ONCE = 2;
const KEY_MS = 10_000;
/** After so long, those that were not visited yet are left for later. So a shard answers in time, though none of its keys may. */
const VISITS_MS = 60_000;
const SHARD_MS = 2 * VISITS_MS;
const COUNT_MS = 2_000;
/** So many jobs are in hand at once. */
const JOBS_AT_ONCE = 4;
/** One alarm works for so long; then the next takes over. */
const WORK_MS = 20_000;
/** Where a sweep has more to do, it is looked at again so much later; where a key or a shard does not answer, it is tried again. */
const LOOK_MS = 5_000;
const RETRY_MS = 60_000;
/** A shard names so many of those that failed; with more of them, it can't be told whether others are left. */
const FAILED_NAMED = 20;
/** A run that was cut off is taken up so much later. */
const STALLED_MS = 10_000;

/** One shard, by its number as its name; or the coordinator. */
export class SemelRegistry extends DurableObject {
  #registry = perInstance(() => new glue.SemelRegistry(this.ctx.storage, settingsOf(this.env)));
  #isWorking = false;

  // Of a shard.

  report(shard, report) {
    return attempted(() => this.#registry().report(shard, report, Date.now()));
  }

  list(shard, path) {
    return attempted(() => this.#registry().list(shard, path));
  }

  count(shard) {
    return attempted(() => this.#registry().count(shard));
  }

  /** Visits some keys for a job, and tells how far the shard is. */
  async forget(shard, id, beforeS) {
    const visit = attempted(() => this.#registry().visit(shard, id, beforeS));
    const [, ...keys] = visit;
    const tried = new Array(keys.length);
    const endMs = Date.now() + VISITS_MS;
    let next = 0;
    const visitor = async () => {
      while (next < keys.length) {
        const at = next;
        next += 1;
        tried[at] = Date.now() < endMs ? await this.#visit(keys[at], beforeS) : "left";
      }
    };
    await Promise.all(Array.from({ length: VISITS_AT_ONCE }, visitor));
    return attempted(() => this.#registry().visited(shard, id, visit, tried));
  }

  async #visit(key, beforeS) {
    try {
      const isSwept = await within(KEY_MS, objectOf(this.env, "SEMEL", key).forget(beforeS));
      return isSwept ? "done" : "left";
    } catch (error) {
      note("warn", `a key could not be told to forget, and will be again: ${error}`);
      return "failed";
    }
  }

  // Of the coordinator.

  async ask(method, pathname, search, lines, body) {
    const arrivedMs = Date.now();
    const keys = method === "POST" ? await this.#counts() : [];
    const answer = attempted(() => this.#registry().handle(method, pathname, search, lines, body, keys, arrivedMs, Date.now()));
    // In the turn that stored the job, if there is one.
    if (!this.#isWorking && this.#jobs().length > 0) this.ctx.storage.setAlarm(Date.now());
    return answer;
  }

  async alarm() {
    if (this.#isWorking) return;
    this.#isWorking = true;
    let waitMs = RETRY_MS;
    try {
      this.ctx.storage.setAlarm(Date.now() + STALLED_MS);
      waitMs = await this.#work();
    } catch (error) {
      note("warn", `a job waits: ${error}`);
    } finally {
      this.#isWorking = false;
    }
    if (waitMs === undefined) this.ctx.storage.deleteAlarm();
    else this.ctx.storage.setAlarm(Date.now() + waitMs);
  }

  /** Goes on with some jobs for a while; how long to wait then, or undefined when all are done. */
  async #work() {
    const endMs = Date.now() + WORK_MS;
    const all = this.#jobs();
    // Wherever it begins: those that wait for a key that never answers are to hold up no others, and the object may be a fresh one each time.
    const from = Math.floor(Math.random() * all.length);
    const jobs = [...all.slice(from), ...all.slice(0, from)].slice(0, JOBS_AT_ONCE);
    // Each shard goes on by itself: one that waits for a key holds up no other.
    const waits = await Promise.all(jobs.flatMap(([id, beforeS, shards]) => shards.map((shard) => this.#goOn(id, beforeS, shard, endMs))));
    if (all.length > JOBS_AT_ONCE) waits.push(LOOK_MS);
    return this.#jobs().length === 0 ? undefined : Math.min(...waits);
  }

  /** Has a shard do its part of a job, as long as that moves; how long to wait then. */
  async #goOn(id, beforeS, shard, endMs) {
    let last;
    for (let steps = 0; ; steps += 1) {
      const progress = await this.#step(id, beforeS, shard);
      if (progress === undefined) return RETRY_MS;
      const [keys, done, isDone, ...failed] = progress;
      const told = progress.join("\n");
      const hasFailed = !isDone && (keys - done <= failed.length || failed.length >= FAILED_NAMED);
      // A key that hangs takes as long as there is, and would be asked again and again.
      if (Date.now() >= endMs) return hasFailed && failed.length > 0 ? RETRY_MS : 0;
      if (told === last && steps > 1) return 0;
      if (told === last) return hasFailed ? RETRY_MS : LOOK_MS;
      last = told;
    }
  }

  /** How far a shard is after one step more; undefined where it does not answer. */
  async #step(id, beforeS, shard) {
    try {
      const progress = await within(SHARD_MS, shardOf(this.env, shard).forget(shard, id, beforeS));
      attempted(() => this.#registry().told(id, shard, progress));
      return progress;
    } catch (error) {
      note("warn", `shard ${shard} of the registry does not answer: ${error}`);
      return undefined;
    }
  }

  #jobs() {
    return attempted(() => this.#registry().jobs());
  }

  /** How many keys each shard has; 0 where it does not answer: it is told by and by. */
  #counts() {
    return Promise.all(SHARDS.map((shard) => within(COUNT_MS, shardOf(this.env, shard).count(shard)).catch(() => 0)));
  }
}
