// The time of a play, and the pages in it. Timers, clocks and network events belong to the page that asks, and nothing waits for the machine's time.
//
// Invariants:
// - The order of events follows from the drawn instants, never from the machine. So a seed that fails fails again.
// - Everything that follows from one timer has come to rest before the next one fires.
// - While a page is frozen, nothing in it goes on: no timer, no answer, no store. Afterwards, everything that is due happens at once; long timers may come
//   first. In a page that is gone, nothing ever happens again.

import { AsyncLocalStorage } from "node:async_hooks";
import { createHash } from "node:crypto";

const whose = new AsyncLocalStorage();
const { setTimeout, setImmediate } = globalThis;
const now = { wall: Date.now, steady: performance.now.bind(performance) };
/** A timer of this length or more is a time limit, not an event. */
const LONG_MS = 1_000;
/** The instant at which a play begins, in Unix ms. */
const BEGINS_MS = 1_800_000_000_000;

/** A page; or the world around all pages. */
export class Page {
  isFrozen = false;
  isGone = false;
  /** How often it was thawed. */
  thaws = 0;
  isOnline = true;
  /** Since when it is offline, if it is. */
  offlineMs = 0;
  hidden = false;
  /** How many ms its clocks are ahead of the world's. */
  wallMs = 0;
  steadyMs = 0;
  #held = [];
  #window = new EventTarget();

  constructor(time) {
    this.time = time;
  }

  /** Runs something as this page: everything that follows from it belongs to the page, too. */
  run(act, ...given) {
    return whose.run(this, act, ...given);
  }

  /** Resolves once the page may go on. */
  async goesOn() {
    while (this.isGone || this.isFrozen) await new Promise((resolve) => this.#held.push(resolve));
  }

  /** Fires an event in it, as its browser does. */
  hears(type) {
    this.run(() => this.#window.dispatchEvent(new Event(type)));
  }

  listen(type, act, options) {
    this.#window.addEventListener(type, act, options);
  }

  freeze() {
    this.isFrozen = true;
  }

  /** `sleptMs`: for how long its steady clock stood still. `timersFirst`: long timers that are due fire before events that it has not heard yet. */
  thaw(sleptMs = 0, timersFirst = false) {
    if (timersFirst) this.time.hurry(this);
    this.steadyMs -= sleptMs;
    this.isFrozen = false;
    this.thaws += 1;
    // A request that was on its way out may still be sent.
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

/** Runs `play` in a time of its own, and resolves to what it resolves to. `drawn`: the source of random numbers from 0 to 1. */
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

  /** Calls `act` at an instant, as the page that asks. */
  at(ms, act, everyMs) {
    const page = whose.getStore();
    const number = (this.#last += 1);
    this.#timers.set(number, { ms, isLong: ms - this.ms >= LONG_MS, number, page, everyMs, act: () => whose.run(page, act) });
    return number;
  }

  drop(number) {
    this.#timers.delete(number);
  }

  /** Makes the long timers of a page that are due fire first. */
  hurry(page) {
    for (const timer of this.#timers.values()) if (timer.page === page && timer.isLong && timer.ms <= this.ms) timer.ms = -Infinity;
  }

  /** Lets time pass until `promise` settles. */
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

/** Replaces the machine's time. Returns what restores it. */
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
    // The real one runs on another thread, and would end at an instant of the machine's.
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
