// The registry of keys: shards that list them, and a coordinator that runs jobs over all keys. The module decides; this file makes the calls between objects.
//
// Invariants:
// - No application request comes here, and none waits for anything that happens here.
// - A job that was cut off goes on from what is stored. The alarm for the next try is set before a try begins, so no job is given up. Asking for a job's
//   progress also restarts it, if nothing is working on it.
// - A key that does not answer delays its own part of a visit, and no other key for longer than that.

import { DurableObject } from "cloudflare:workers";
import { within } from "./chores.js";
import { attempted, glue, note, perInstance, settingsOf } from "./module.js";
import { objectOf, SHARDS, shardOf } from "./objects.js";

/** How many keys of a shard are visited at once. With 16 shards these are 32, few enough for others to reach their objects meanwhile. */
const VISITS_AT_ONCE = 2;
const KEY_MS = 10_000;
/** After this time, keys that were not visited yet are left for later. So a shard answers in time even if none of its keys does. */
const VISITS_MS = 60_000;
const SHARD_MS = 2 * VISITS_MS;
const COUNT_MS = 2_000;
/** How many jobs are worked on at once. */
const JOBS_AT_ONCE = 4;
/** How long one alarm works; then the next takes over. */
const WORK_MS = 20_000;
/** The pause before a key that is still sweeping is asked again; and before a key or shard that did not answer is tried again. */
const LOOK_MS = 5_000;
const RETRY_MS = 60_000;
/** A shard names at most this many keys that failed. If it names that many, there may be more. */
const FAILED_NAMED = 20;
/** How much later a run that was cut off is taken up. */
const STALLED_MS = 10_000;

/** A shard, whose name is its number; or the coordinator. */
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

  /** Visits some keys for a job. Resolves to how far the shard is. */
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
    // In the same turn as the job was stored, so in its commit.
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

  /** Works on some jobs for a while. Resolves to how many ms to wait then, or to undefined if all are done. */
  async #work() {
    const endMs = Date.now() + WORK_MS;
    const all = this.#jobs();
    // Begins at a random job, so that jobs which wait for a dead key don't hold up the others. Random, because the object may be new at each alarm.
    const from = Math.floor(Math.random() * all.length);
    const jobs = [...all.slice(from), ...all.slice(0, from)].slice(0, JOBS_AT_ONCE);
    // The shards work in parallel: one that waits for a key holds up no other.
    const waits = await Promise.all(jobs.flatMap(([id, beforeS, shards]) => shards.map((shard) => this.#goOn(id, beforeS, shard, endMs))));
    if (all.length > JOBS_AT_ONCE) waits.push(LOOK_MS);
    return this.#jobs().length === 0 ? undefined : Math.min(...waits);
  }

  /** Makes a shard work on its part of a job for as long as it gets on. Resolves to how many ms to wait then. */
  async #goOn(id, beforeS, shard, endMs) {
    let last;
    for (let steps = 0; ; steps += 1) {
      const progress = await this.#step(id, beforeS, shard);
      if (progress === undefined) return RETRY_MS;
      const [keys, done, isDone, ...failed] = progress;
      const told = progress.join("\n");
      const hasFailed = !isDone && (keys - done <= failed.length || failed.length >= FAILED_NAMED);
      // A key that hangs uses up all the time: without a pause it would be asked again and again.
      if (Date.now() >= endMs) return hasFailed && failed.length > 0 ? RETRY_MS : 0;
      if (told === last && steps > 1) return 0;
      if (told === last) return hasFailed ? RETRY_MS : LOOK_MS;
      last = told;
    }
  }

  /** Makes one more step. Resolves to how far the shard is; to undefined if it does not answer. */
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

  /** Resolves to the number of keys of each shard; 0 if it does not answer, in which case the number comes with its first step. */
  #counts() {
    return Promise.all(SHARDS.map((shard) => within(COUNT_MS, shardOf(this.env, shard).count(shard)).catch(() => 0)));
  }
}
