// Simulated time and randomness for the tests of the page's logic.
//
// Invariants:
// - Time passes only when a test says so. What becomes due meanwhile happens in order.
// - All randomness comes from a seed.

/** Resolves once everything that needs no time has happened. */
export const settled = () => new Promise((resolve) => setImmediate(resolve));

export class Clock {
  nowMs = 1_000_000;
  now = () => this.nowMs;
  /** The length of each sleep, in ms. */
  slept = [];
  #timers = [];

  sleep = (ms) => {
    this.slept.push(ms);
    return new Promise((resolve) => this.#timers.push({ atMs: this.nowMs + ms, resolve }));
  };

  /** Lets `ms` milliseconds pass. */
  async pass(ms) {
    const endMs = this.nowMs + ms;
    for (;;) {
      await settled();
      const due = this.#timers.filter(({ atMs }) => atMs <= endMs);
      if (due.length === 0) break;
      const next = due.reduce((one, other) => (other.atMs < one.atMs ? other : one));
      this.#timers.splice(this.#timers.indexOf(next), 1);
      this.nowMs = next.atMs;
      next.resolve();
    }
    this.nowMs = endMs;
  }
}

/** Numbers from 0 to below 1, the same for the same seed. */
export function seeded(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A promise and its resolver. */
export function gate() {
  let open;
  const opened = new Promise((resolve) => (open = resolve));
  return { open, opened };
}
