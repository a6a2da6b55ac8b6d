// The time of a play, and the pages in it: timers, clocks and the network's word are those of who asks, and nothing waits for the machine.
//
// Invariants:
// - What comes first goes by the instants that were drawn, and by nothing of the machine's: a seed that fails fails again.
// - Between two timers all that follows from the first has come to rest.
// - While a page is frozen nothing of it goes on: no timer, no answer, no store. Then all that is due does, at once. Of one that is gone nothing ever does.

import { AsyncLocalStorage } from "node:async_hooks";
import { createHash } from "node:crypto";

const whose = new AsyncLocalStorage();
const { setTimeout, setImmediate } = globalThis;
const now = { wall: Date.now, steady: performance.now.bind(performance) };
/** Where a play begins. */
const BEGINS_MS = 1_800_000_000_000;

/** A page, or the world around all pages. */
export class Page {
  isFrozen = false;
  isGone = false;
  /** How often it has gone on. */
  thaws = 0;
  isOnline = true;
  /** Since when it is offline, if it is. */
  offlineMs = 0;
  hidden = false;
  /** How far its clocks are ahead of the world's. */
  wallMs = 0;
  steadyMs = 0;
  #held = [];
  #window = new EventTarget();

  constructor(time) {
    this.time = time;
  }

  /** Does it as this page: all that follows is this page's too. */
  run(act, ...given) {
    return whose.run(this, act, ...given);
  }

  /** Resolves once the page may go on. */
  async goesOn() {
    while (this.isGone || this.isFrozen) await new Promise((resolve) => this.#held.push(resolve));
  }

  /** Something happens to it, as its browser tells it. */
  hears(type) {
    this.run(() => this.#window.dispatchEvent(new Event(type)));
  }

  listen(type, act, options) {
    this.#window.addEventListener(type, act, options);
  }

  freeze() {
    this.isFrozen = true;
  }

  /** `sleptMs`: for so long its steady clock stood still. */
  thaw(sleptMs = 0) {
    this.steadyMs -= sleptMs;
    this.isFrozen = false;
    this.thaws += 1;
    // What was on its way out goes on.
    this.offlineMs = this.time.ms;
    for (const resolve of this.#held.splice(0)) resolve();
  }

  goes() {
    this.isGone = true;
    this.#held.length = 0;
  }

  goesOffline(isOnline = false) {
    [this.isOnline, this.offlineMs] = [isOnline, this.time.ms];
    this.hears(isOnline ? "online" : "offline");
  }
}

/** Has `play` done in a time of its own, and gives what it gives. `drawn`: what is at random comes from there, from 0 to 1. */
export async function inTimeOfItsOwn(drawn, play) {
  const time = new Time();
  const world = new Page(time);
  const back = put(time, world, drawn);
  try {
    return await time.until(whose.run(world, () => play(time, world)));
  } finally {
    back();
  }
}

class Time {
  ms = 0;
  #timers = new Map();
  #last = 0;

  /** Calls back at an instant, by the page that asks. */
  at(ms, act, everyMs) {
    const page = whose.getStore();
    const number = (this.#last += 1);
    this.#timers.set(number, { ms, number, page, everyMs, act: () => whose.run(page, act) });
    return number;
  }

  drop(number) {
    this.#timers.delete(number);
  }

  /** Lets time go by until `promise` settles. */
  async until(promise) {
    let isSettled = false;
    promise.then(() => (isSettled = true), () => (isSettled = true));
    for (;;) {
      for (let turn = 0; turn < 2; turn += 1) await new Promise((resolve) => setImmediate(resolve));
      if (isSettled) return promise;
      const next = this.#next();
      if (!next) throw new Error("nothing will happen any more");
      this.ms = Math.max(this.ms, next.ms);
      if (next.everyMs === undefined) this.#timers.delete(next.number);
      else next.ms = this.ms + next.everyMs;
      next.act();
    }
  }

  #next() {
    let first;
    for (const timer of this.#timers.values()) {
      if (timer.page.isGone) this.#timers.delete(timer.number);
      else if (!timer.page.isFrozen && !(timer.ms >= first?.ms)) first = timer;
    }
    return first;
  }
}

/** Puts the time in the place of the machine's. Returns what puts that back. */
function put(time, world, drawn) {
  const page = () => whose.getStore() ?? world;
  const timer = (number) => ({ number, unref: () => timer(number), ref: () => timer(number) });
  const after = (ms = 0) => time.ms + Math.max(1, Number(ms) || 0);
  const drop = (set) => time.drop(set?.number ?? set);
  const bytes = (into) => into.map(() => Math.floor(drawn() * 256));
  const putters = [
    [globalThis, "setTimeout", (act, ms, ...given) => timer(time.at(after(ms), () => act(...given)))],
    [globalThis, "setInterval", (act, ms) => timer(time.at(after(ms), act, Math.max(1, ms)))],
    [globalThis, "clearTimeout", drop],
    [globalThis, "clearInterval", drop],
    [globalThis, "navigator", { get onLine() { return page().isOnline; } }],
    [globalThis, "document", { get hidden() { return page().hidden; } }],
    [globalThis, "addEventListener", (...given) => page().listen(...given)],
    [Date, "now", () => BEGINS_MS + Math.floor(time.ms + page().wallMs)],
    [performance, "now", () => time.ms + page().steadyMs],
    [crypto, "randomUUID", undefined],
    // By a thread of the machine's own it would end at an instant of the machine's.
    [crypto.subtle, "digest", async (_name, bytes) => new Uint8Array(createHash("sha256").update(bytes).digest()).buffer],
    [crypto, "getRandomValues", (into) => (into.set(bytes(into)), into)],
  ];
  const before = putters.map(([of, name]) => [of, name, Object.getOwnPropertyDescriptor(of, name)]);
  for (const [of, name, value] of putters) Object.defineProperty(of, name, { value, configurable: true, writable: true });
  return () => {
    for (const [of, name, was] of before) {
      if (was) Object.defineProperty(of, name, was);
      else delete of[name];
    }
  };
}
