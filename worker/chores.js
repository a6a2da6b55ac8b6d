// What a key's object does without a request: its one alarm, the sweep page by page, and what it tells the registry.
//
// Invariants:
// - An alarm is set in the turn that makes it needed, and so in its commit; and only where it is needed sooner than the one that
//   is set, for each costs a row.
// - Between two pages requests come in, and a page waits for those that are in hand. So at most one lies before a request, and none fails
//   because of it.
// - What an object looks at when it starts it looks at page by page: nobody but who asks that key waits for it.
// - The platform gives an alarm up after six failures. So nothing here fails an alarm, and one that is long overdue is made up for by
//   the next request.

import { attempted, guarded, note, noteOf } from "./module.js";
import { shardOf } from "./objects.js";

/** Sweeping goes on for so long; then the next alarm takes over, at once. */
const SWEEP_MS = 5_000;
const SWEEP_PAGES = 2_000;
/** So long the registry has to answer. */
const REPORT_MS = 10_000;
/** An alarm that didn't come for so long won't. After a failure, the next comes so much later. */
const OVERDUE_MS = 60_000;
/** None is set for later than in so long: the platform has none after 2189, and a token may last longer. It comes, and sets the next. */
const AHEAD_MS_MAX = 1e12;

/** Lets whoever waits for the object in. */
const PAUSE_MS = 5;
/** A page waits for the requests that are in hand, but no longer than this: what one waits for may be slow. */
const YIELD_MS = 1_000;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Rejects where a promise takes too long. */
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
 * Works with a signal that aborts where it takes too long. The timer ends with the work: of an `AbortSignal.timeout` it goes on, and an object has ten
 * thousand at most for all that it does in its life.
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

/** Finds a shard of the registry; undefined where there is none, which the log says once. */
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
  /** When there is something to do but to send, as far as this object knows. */
  #dueMs;
  /** When the alarm is set for; null: it isn't. */
  #alarmMs = null;
  /** Settles when the run is through that is under way; undefined: none is. */
  #running;
  /** The requests that are in hand: one comes in several steps, and is not to find a page before each. */
  #inHand = new Set();
  /** Settles when what is stored was looked at; undefined: nobody is looking. */
  #opening;

  /** `engine()` gives the engine of the key; `sockets` may have to be ended; `effects`, if there are any, sent. */
  constructor(ctx, env, engine, sockets, effects) {
    this.#ctx = ctx;
    this.#storage = ctx.storage;
    this.#registry = registryOf(env);
    this.#engine = engine;
    this.#sockets = sockets;
    this.#effects = effects;
  }

  /** Before the object's first request: what the object before it has set. */
  async start() {
    // Where that fails, the next one is set without asking.
    this.#alarmMs = await this.#storage.getAlarm().catch(() => null);
  }

  /** Keeps pages of the sweep waiting until `work` is through. Resolves as that does. */
  async during(work) {
    this.#inHand.add(work);
    try {
      return await work;
    } finally {
      this.#inHand.delete(work);
    }
  }

  /** Before anything is asked of the engine: what is stored is looked at, which may take many pages. Undefined: nothing has to be waited for. */
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

  /** Looks at a page; whether there are more. */
  #looks() {
    try {
      return attempted(() => this.#engine().open(Date.now()));
    } catch {
      // Whoever asks now finds the same, and has it answered and logged.
      return false;
    }
  }

  /** After a call into the engine, in the same turn: sets the alarm that is needed by now. */
  wake() {
    // Who runs sees to it at the end; should it die, its alarm comes again.
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
    // An object that its alarm has started doesn't know what it is for. One that comes during a run is over when that is: should the object die before, it comes again.
    if (this.#running || this.#effects === undefined || this.#dueMs === undefined || this.#dueMs <= Date.now()) return this.run();
    const asked = this.#send();
    this.wake();
    return asked.then((hasFailed) => {
      const againMs = Date.now() + OVERDUE_MS;
      // What could not be looked at may be all that there is to do.
      if (hasFailed && (this.#alarmMs === null || this.#alarmMs > againMs)) this.#set(againMs);
    });
  }

  /** Has sent what is due; whether that could not be looked at. */
  async #send() {
    try {
      return await this.#effects?.begin();
    } catch {
      // The settings can't be read, which is noted elsewhere. An alarm that fails is given up after some times, and what is to be sent with it.
      return true;
    }
  }

  /** Sweeps, reports, and sets the next alarm. Who comes meanwhile waits for the same. */
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
      // Where that fails, it is due again: the engine says when.
      await this.#report().catch((error) => noteOf(this.#engine, `a key could not tell the registry: ${error}`));
      // The answer may have had the key forget.
      isSwept = await this.#sweep();
    } catch (error) {
      hasFailed = true;
      noteOf(this.#engine, `a key's sweep waits: ${error}`);
    } finally {
      this.#running = undefined;
    }
    const asked = this.#send();
    // An object that was started for what it has to send, and could not look at that, is the only one that knows that there may be any.
    if (hasFailed || (await asked)) this.#set(Math.min(Date.now() + OVERDUE_MS, this.#sockets.endsMs));
    else if (!isSwept) this.#set(Date.now());
    else this.wake();
  }

  /** Has the key forget what was first sent before an instant; whether all of that is swept. */
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

  /** Sweeps until nothing may leave; false where there is more than one run takes. */
  async #sweep() {
    const endMs = Date.now() + SWEEP_MS;
    for (let page = 0; page < SWEEP_PAGES && Date.now() < endMs; page += 1) {
      if (!attempted(() => this.#engine().sweep_page(Date.now()))) return true;
      await this.#letIn();
    }
    return false;
  }

  /** Those that come meanwhile find the next page, so that something leaves, however many come. */
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
