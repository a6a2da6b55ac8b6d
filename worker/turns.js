// Group commit: whose turn it is at an object, and which requests share a commit.
//
// Invariants:
// - A request waits only while a commit is known to be under way.
// - Requests that arrive during a commit are in the next one, in the order of arrival, all in one turn. The runtime commits a turn as a whole, and lets no
//   answer out before that.
// - To learn when a commit is over costs a turn of the runtime, 5 to 10 % of a request, and helps only if several requests wait for it. So after
//   `VAIN_MAX` commits for which fewer than two waited, only one turn in `VAIN_MAX` asks, until two wait again.
// - A request that has the object to itself shares its commit with no other. It claims the object when it arrives, so later requests are behind it.
// - Waiting is bounded. A request beyond the bound is refused at once by an error, and nothing was done of it.

/** How many requests share a commit at most. Those beyond wait for the next. */
const GROUP_MAX = 256;
/** How many requests may wait, and with how many bytes. An isolate has 128 MB for all its keys, and a key serves hundreds of connections at most. */
const WAITING_MAX = 4_096;
const WAITING_BYTES_MAX = 32 << 20;
/** After this many commits in a row for which fewer than two requests waited, only one turn in this many asks when its commit is over. */
const VAIN_MAX = 16;

export class Turns {
  /** Settles when all that have claimed the object so far are done; undefined: nobody has claimed it. */
  taken;
  #sync;
  #isCommitting = false;
  /** How many commits in a row were asked for in vain (see `VAIN_MAX`); and how many turns have passed since one asked. */
  #vain = 0;
  #unasked = 0;
  /** The requests that wait for the current commit; `go` releases one. */
  #waiting = [];
  /** How many requests wait, for a commit or for a claim, and their bytes. */
  #count = 0;
  #bytes = 0;
  #many;

  /**
   * `sync()` resolves once everything written is durable. `many(items)`, if given, works for all items of the requests that were released together, and
   * returns what each item gets; undefined if each must work by itself.
   */
  constructor(sync, many) {
    this.#sync = sync;
    this.#many = many;
  }

  /** Runs `work` while nothing else of the object runs. `bytes`: how many it holds while it waits. */
  async alone(work, bytes = 0) {
    const leave = this.taken && this.#enter(1, bytes);
    const { before, end } = this.#claim();
    try {
      if (before) await before;
      if (leave) leave();
      return await work();
    } finally {
      end();
    }
  }

  /**
   * Runs `work` at once if no commit is under way, otherwise in one turn with all that wait for the same commit. `brought`: a list of items for `many`;
   * `work` is called with what `many` returned for them, if it did. `bytes`: how many it holds while it waits. Returns what `work` returns, or a promise
   * of it.
   */
  together(work, brought, bytes = 0) {
    return this.taken || this.#isCommitting ? this.#behind(work, brought, bytes) : work(this.#begin(brought));
  }

  /** Waits for another promise, within the same bounds, and then runs `work`. `count`: how many requests this is. */
  async after(other, work, bytes, count = 1) {
    const leave = this.#enter(count, bytes);
    await other.finally(leave);
    return work();
  }

  async #behind(work, brought, bytes) {
    const leave = this.#enter(brought?.length ?? 1, bytes);
    // A claim that is made from now on is behind this request.
    if (this.taken) await this.taken;
    const given = this.#isCommitting ? await new Promise((go) => this.#waiting.push({ go, brought })) : this.#begin(brought);
    leave();
    return work(given);
  }

  /** Takes room for waiting. Returns a function that gives it back. */
  #enter(count, bytes) {
    if (this.#count + count > WAITING_MAX || this.#bytes + bytes > WAITING_BYTES_MAX) throw new Error("too many requests wait at this key");
    this.#count += count;
    this.#bytes += bytes;
    return () => {
      this.#count -= count;
      this.#bytes -= bytes;
    };
  }

  /** Claims the object. `before` settles when all earlier claims are done; undefined: there are none. `end()` lets the next in. */
  #claim() {
    const before = this.taken;
    let end;
    const own = new Promise((resolve) => {
      end = () => {
        // Cleared only after all that await `own` have gone on: a claim made before that must still see it.
        own.then(() => {
          if (this.taken === own) this.taken = undefined;
        });
        resolve();
      };
    });
    this.taken = own;
    return { before, end };
  }

  #begin(brought) {
    if (this.#asks()) this.#commit();
    // Nearly all requests bring one item, for which `many` is not called.
    return brought?.length > 1 ? this.#givenTo([{ brought }])[0] : undefined;
  }

  /** Whether this turn asks when its commit is over. */
  #asks() {
    if (this.#vain < VAIN_MAX) return true;
    this.#unasked = (this.#unasked + 1) % VAIN_MAX;
    return this.#unasked === 0;
  }

  async #commit() {
    this.#isCommitting = true;
    let through = () => {};
    for (let group = [undefined]; group.length > 0; ) {
      // The requests that were released run first.
      await undefined;
      through();
      try {
        await this.#sync();
      } catch {
        // The platform ends the object then, which fails all that wait.
      }
      // A claim that is made meanwhile begins after the requests that are released now.
      const { before, end } = this.#claim();
      through = end;
      if (before) await before;
      group = this.#next();
      this.#vain = group.length > 1 ? 0 : this.#vain + 1;
      const given = this.#givenTo(group);
      for (const [at, { go }] of group.entries()) go(given[at]);
    }
    this.#isCommitting = false;
    through();
  }

  /** Takes out the requests that are released next. */
  #next() {
    let count = 0;
    const end = this.#waiting.findIndex(({ brought }) => (count += brought?.length ?? 1) > GROUP_MAX);
    return this.#waiting.splice(0, end < 0 ? this.#waiting.length : end || 1);
  }

  /** For each request of a group, what `many` returned for its items. */
  #givenTo(group) {
    const all = group.flatMap(({ brought }) => brought);
    let given;
    try {
      if (all.length > 1 && !all.includes(undefined)) given = this.#many?.(all);
    } catch {
      // Each request then meets the same failure by itself, and tells its own caller.
    }
    return group.map(({ brought }) => given?.splice(0, brought.length));
  }
}
