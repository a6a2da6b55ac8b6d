// Whose turn it is at an object, and what is committed together.
//
// Invariants:
// - Nothing waits while no commit is under way, as far as is known.
// - To be told when a commit is over takes the runtime a turn of its own, a twentieth to a tenth of what a request costs, and gains something only where
//   several wait for it. So once that was not so many times in a row, only one turn in as many asks, until it is so again.
// - What came during a commit is in the next, in the order in which it came, all in one turn: the runtime commits a turn as a whole, and lets no
//   answer out before.
// - Nobody is in one commit with who has the object to itself. Who wants that claims it at once, so whoever comes later is behind them.
// - What waits has a bound. Who comes beyond it is told so at once, by an error, and nothing was done of it.

/** So many are in one commit. Whoever comes beyond them waits for one more. */
const GROUP_MAX = 256;
/** So many requests wait at a time, with so many bytes: an isolate has 128 MB for all its keys. As many connections as a key answers come to hundreds. */
const WAITING_MAX = 4_096;
const WAITING_BYTES_MAX = 32 << 20;
/** After so many commits that nobody has waited for, or one alone, one turn in so many asks for its own. */
const VAIN_MAX = 16;

export class Turns {
  /** Settles when all who have claimed the object by now are through; undefined where nobody has. */
  taken;
  #sync;
  #isCommitting = false;
  /** How many commits in a row were asked for that several have not waited for, and how many turns have asked for none since. */
  #vain = 0;
  #unasked = 0;
  /** Who waits for the commit that is under way: `go` lets them go. */
  #waiting = [];
  /** What waits, for a commit or for who has the object to itself. */
  #count = 0;
  #bytes = 0;
  #many;

  /**
   * `sync()` resolves once all that was written is durable. `many`, if there is one: given all that is brought by those who were let go together, what each of it
   * gets; undefined where each is to work by itself.
   */
  constructor(sync, many) {
    this.#sync = sync;
    this.#many = many;
  }

  /** Works while nothing else of the object runs. `bytes`: so many wait with it. */
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
   * Works, in one turn with all that waited for the same commit; at once, where there is none. `brought`: a list; `work` is given what `many` gives for each of
   * it, if it does. `bytes`: so many wait with it. Gives what `work` does, or what resolves to that.
   */
  together(work, brought, bytes = 0) {
    return this.taken || this.#isCommitting ? this.#behind(work, brought, bytes) : work(this.#begin(brought));
  }

  /** Waits for something else with the room that it takes; resolves to what `work` gives then. `count`: so many requests it is. */
  async after(other, work, bytes, count = 1) {
    const leave = this.#enter(count, bytes);
    await other.finally(leave);
    return work();
  }

  async #behind(work, brought, bytes) {
    const leave = this.#enter(brought?.length ?? 1, bytes);
    // Who claims the object from now on is let in after this one.
    if (this.taken) await this.taken;
    const given = this.#isCommitting ? await new Promise((go) => this.#waiting.push({ go, brought })) : this.#begin(brought);
    leave();
    return work(given);
  }

  /** Takes room to wait in; answers what gives it back. */
  #enter(count, bytes) {
    if (this.#count + count > WAITING_MAX || this.#bytes + bytes > WAITING_BYTES_MAX) throw new Error("too many requests wait at this key");
    this.#count += count;
    this.#bytes += bytes;
    return () => {
      this.#count -= count;
      this.#bytes -= bytes;
    };
  }

  /** Claims the object: `before` settles once all who have claimed it before are through; undefined where nobody has. `end()` lets the next in. */
  #claim() {
    const before = this.taken;
    let end;
    const own = new Promise((resolve) => {
      end = () => {
        // Behind all who wait for it: whoever claims the object before they go on would be beside them.
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
    return brought?.length > 1 ? this.#givenTo([{ brought }])[0] : undefined;
  }

  /** Whether to ask when what comes now is committed. */
  #asks() {
    if (this.#vain < VAIN_MAX) return true;
    this.#unasked = (this.#unasked + 1) % VAIN_MAX;
    return this.#unasked === 0;
  }

  async #commit() {
    this.#isCommitting = true;
    let through = () => {};
    for (let group = [undefined]; group.length > 0; ) {
      // Those who were let go work first.
      await undefined;
      through();
      try {
        await this.#sync();
      } catch {
        // The object is ended then, and all who wait are told.
      }
      // Who claims the object meanwhile begins after those who are let go now.
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

  /** Who is let go next. */
  #next() {
    let count = 0;
    const end = this.#waiting.findIndex(({ brought }) => (count += brought?.length ?? 1) > GROUP_MAX);
    return this.#waiting.splice(0, end < 0 ? this.#waiting.length : end || 1);
  }

  /** What each of a group gets for what it brings. */
  #givenTo(group) {
    const all = group.flatMap(({ brought }) => brought);
    let given;
    try {
      if (all.length > 1 && !all.includes(undefined)) given = this.#many?.(all);
    } catch {
      // Each finds the same by itself, and tells its own caller.
    }
    return group.map(({ brought }) => given?.splice(0, brought.length));
  }
}
