// The work of a key's object that no request asks for: its one alarm, the sweep of old rows, and reports to the registry.
//
// Invariants:
// - An alarm is set in the turn that makes it necessary, and so in its commit. It is set only if it is due sooner than the one that is set, because each
//   costs a row.
// - The sweep goes page by page. Requests run between two pages, and a page waits for those in hand. So at most one page delays a request, and none makes
//   it fail.
// - The object reads its stored state at the start page by page too, so only requests of that key wait for it.
// - The platform gives an alarm up after six failures. So nothing here lets an alarm fail; the next request makes up for an alarm that is long overdue.

import { attempted, guarded, note, noteOf } from "./module.js";
import { shardOf } from "./objects.js";

/** How long and how many pages one run sweeps. Then it sets the next alarm for at once. The pages count if the clock is put back meanwhile. */
const SWEEP_MS = 5_000;
const SWEEP_PAGES = 2_000;
/** The time limit of a report. */
const REPORT_MS = 10_000;
/** An alarm that is overdue by this much is lost. Also the delay of the next alarm after a failure. */
const OVERDUE_MS = 60_000;
/** An alarm is set at most this far ahead, and then sets the next: the platform takes none past 2189, and a token may be valid longer. */
const AHEAD_MS_MAX = 1e12;

/** The pause between two pages, in which waiting requests run. */
const PAUSE_MS = 5;
/** How long a page waits for the requests in hand: one of them may wait for something slow. */
const YIELD_MS = 1_000;
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Resolves as `promise` does; rejects if that takes longer than `ms`. */
export async function within(ms, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer in ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Calls `work` with a signal that aborts after `ms`. Unlike that of `AbortSignal.timeout`, its timer ends with the work: an object may have ten thousand
 * timers at most.
 */
export async function inTime(ms, work) {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(new Error(`no answer in ${ms} ms`)), ms);
  try {
    return await work(late.signal);
  } finally {
    clearTimeout(timer);
  }
}

let isMissingNoted = false;

/** Returns a function that finds a shard of the registry. Undefined if no registry is bound, which the log says once. */
function registryOf(env) {
  if (env.REGISTRY === undefined && !isMissingNoted) {
    isMissingNoted = true;
    note("warn", "REGISTRY is not bound: keys are not listed, and can't be told to forget");
  }
  return env.REGISTRY && ((shard) => shardOf(env, shard));
}

/** The chores of one key. */
export class Chores {
  #storage;
  #ctx;
  #registry;
  #engine;
  #sockets;
  #effects;
  /** When something other than sending is due, as far as this object knows. */
  #dueMs;
  /** What the alarm is set to; null: no alarm is set. */
  #alarmMs = null;
  /** Settles when the current run is over; undefined: there is none. */
  #running;
  /** The requests in hand. A request has several steps, and must not wait for a page before each. */
  #inHand = new Set();
  /** Settles when the stored state has been read; undefined: it is not being read. */
  #opening;

  /** `engine()` gives the engine of the key. `sockets` are closed when their tokens end. `effects`, if given, sends what handlers emit. */
  constructor(ctx, env, engine, sockets, effects) {
    this.#ctx = ctx;
    this.#storage = ctx.storage;
    this.#registry = registryOf(env);
    this.#engine = engine;
    this.#sockets = sockets;
    this.#effects = effects;
  }

  /** Reads, before the object's first request, the alarm that an earlier object has set. */
  async start() {
    // If that fails, the next alarm simply replaces what may be set.
    this.#alarmMs = await this.#storage.getAlarm().catch(() => null);
  }

  /** Keeps pages of the sweep waiting until `work` is done. Resolves as that does. */
  async during(work) {
    this.#inHand.add(work);
    try {
      return await work;
    } finally {
      this.#inHand.delete(work);
    }
  }

  /** To be awaited before the engine is asked: reads the stored state, which may take many pages. Undefined: it has been read. */
  ready() {
    if (this.#opening === undefined && this.#looks()) {
      this.#opening = this.#open().finally(() => {
        this.#opening = undefined;
      });
    }
    return this.#opening;
  }

  async #open() {
    do await pause(0);
    while (this.#looks());
  }

  /** Reads a page of the stored state. Returns whether there are more. */
  #looks() {
    try {
      return attempted(() => this.#engine().open(Date.now()));
    } catch {
      // The request that asks next meets the same failure, which is then answered and logged.
      return false;
    }
  }

  /** To be called after each call into the engine, in the same turn: sets the alarm that is needed now. */
  wake() {
    // The current run does this at its end. If the object dies before, the platform repeats the run's alarm.
    if (this.#running) return;
    const dueMs = guarded(() => this.#engine().wakes_at(this.#registry !== undefined));
    this.#dueMs = Math.min(dueMs ?? Infinity, this.#sockets.endsMs);
    const atMs = Math.min(this.#dueMs, this.#effects?.wakesMs ?? Infinity);
    if (atMs === Infinity) return;
    const nowMs = Date.now();
    const isOverdue = this.#alarmMs !== null && this.#alarmMs + OVERDUE_MS < nowMs;
    if (this.#alarmMs !== null && this.#alarmMs <= atMs && !isOverdue) return;
    this.#set(Math.min(Math.max(atMs, nowMs), nowMs + AHEAD_MS_MAX));
    if (isOverdue) this.#ctx.waitUntil(this.run());
  }

  /** The alarm came. */
  alarm() {
    this.#alarmMs = null;
    // Runs if the alarm may be for more than sending; an object that its alarm has started can't know. An alarm that comes during a run waits for its end:
    // if the object dies before, the platform repeats the alarm.
    if (this.#running || this.#effects === undefined || this.#dueMs === undefined || this.#dueMs <= Date.now()) return this.run();
    const asked = this.#send();
    this.wake();
    return asked.then((hasFailed) => {
      const againMs = Date.now() + OVERDUE_MS;
      // What could not be looked at may be all that there is to do.
      if (hasFailed && (this.#alarmMs === null || this.#alarmMs > againMs)) this.#set(againMs);
    });
  }

  /** Sends what is due. Resolves to true if that could not be read. */
  async #send() {
    try {
      return await this.#effects?.begin();
    } catch {
      // The settings can't be read, which is logged elsewhere. Throwing would fail the alarm, and after six failures nothing would be sent any more.
      return true;
    }
  }

  /** Sweeps, reports to the registry, and sets the next alarm. Calls during a run wait for the same run. */
  run() {
    return (this.#running ??= this.#run());
  }

  async #run() {
    let isSwept = false;
    let hasFailed = false;
    try {
      await this.ready();
      attempted(() => this.#engine().woken(Date.now()));
      await this.#sweep();
      // A failed report stays due: the engine says when.
      await this.#report().catch((error) => noteOf(this.#engine, `a key could not tell the registry: ${error}`));
      // The registry's answer may have told the key to forget more.
      isSwept = await this.#sweep();
    } catch (error) {
      hasFailed = true;
      noteOf(this.#engine, `a key's sweep waits: ${error}`);
    } finally {
      this.#running = undefined;
    }
    const asked = this.#send();
    // If what is to be sent could not be read, no other alarm may be set for it: try again later.
    if (hasFailed || (await asked)) this.#set(Math.min(Date.now() + OVERDUE_MS, this.#sockets.endsMs));
    else if (!isSwept) this.#set(Date.now());
    else this.wake();
  }

  /** Makes the key forget requests that were first sent before an instant, in Unix s. Resolves to whether all of them are swept. */
  async forget(beforeS) {
    await this.ready();
    attempted(() => this.#engine().forget(beforeS, Date.now()));
    const isSwept = await this.#sweep();
    if (isSwept) this.wake();
    else this.#set(Date.now());
    return isSwept;
  }

  #set(atMs) {
    const failed = (error) => {
      this.#alarmMs = null;
      noteOf(this.#engine, `a key's alarm could not be set: ${error}`);
    };
    this.#alarmMs = atMs;
    try {
      this.#storage.setAlarm(atMs).catch(failed);
    } catch (error) {
      failed(error);
    }
  }

  /** Sweeps until no more rows may leave. Resolves to false if one run is not enough. */
  async #sweep() {
    const endMs = Date.now() + SWEEP_MS;
    for (let page = 0; page < SWEEP_PAGES && Date.now() < endMs; page += 1) {
      if (!attempted(() => this.#engine().sweep_page(Date.now()))) return true;
      await this.#letIn();
    }
    return false;
  }

  /** Lets waiting requests run, but not those that come after them: the sweep must go on however many come. */
  async #letIn() {
    await pause(PAUSE_MS);
    await within(YIELD_MS, Promise.allSettled([...this.#inHand])).catch(() => {});
  }

  async #report() {
    if (this.#registry === undefined) return attempted(() => this.#engine().drop_name(Date.now()));
    const told = attempted(() => this.#engine().report(this.#storage.sql.databaseSize, Date.now()));
    if (told === undefined) return;
    const [shard, report] = told;
    const answer = await within(REPORT_MS, this.#registry(shard).report(shard, report));
    attempted(() => this.#engine().reported(report, answer, Date.now()));
  }
}
