// Whose turn it is at an object, and what is committed together.
//
// Invariants:
// - Nothing waits while no commit is under way, but for what has come already: where requests have come together, one that finds nothing under
//   way lets in those that the runtime has read meanwhile. It waits for no time, only for its turn.
// - To be told when a commit is over takes the runtime a turn of its own, a twentieth to a tenth of what a request costs. So of a request that acknowledges others
//   nobody asks: the next of its client acknowledges it, which tells the same. One that doesn't asks, and waits for what it is told.
// - What came during a commit is in the next, in the order in which it came, all in one turn: the runtime commits a turn as a whole, and lets no
//   answer out before.
// - Nobody is in one commit with who has the object to itself.

/** So many are in one commit. Whoever comes beyond them waits for one more. */
const GROUP_MAX = 256;

export class Turns {
  /** Settles when who has the object to itself is through; undefined where nobody has. */
  taken;
  #sync;
  #isCommitting = false;
  /** The id of a request that ran by itself, of whose commit nobody has asked whether it is over. */
  #unasked;
  /** Whether requests have come together, of late. */
  #isShared = false;
  /** Who waits for the commit that is under way: `go` lets them go. */
  #waiting = [];
  #many;

  /**
   * `sync()` resolves once all that was written is durable. `many`: given all that is brought by those who were let go together, what each of it gets;
   * undefined where each is to work by itself.
   */
  constructor(sync, many = () => undefined) {
    this.#sync = sync;
    this.#many = many;
  }

  /** Works while nothing else of the object runs. */
  async alone(work) {
    while (this.taken) await this.taken;
    let end;
    this.taken = new Promise((resolve) => {
      end = resolve;
    });
    try {
      return await work();
    } finally {
      this.taken = undefined;
      end();
    }
  }

  /**
   * Works, in one turn with all that waited for the same commit. `brought`: a list; `work` is given what `many` gives for each of it, if it does. `id`, and the
   * text that names the ids that are acknowledged: undefined where there is none. Who acknowledges what it has no answer to may be in one commit with it, and no worse.
   */
  async together(work, brought, { id, acks } = {}) {
    while (this.taken) await this.taken;
    if (this.#isCommitting) {
      this.#isShared = true;
    } else {
      const isFree = !this.#isShared && (this.#unasked === undefined || acks?.includes(this.#unasked));
      if (isFree && id !== undefined && acks !== undefined) {
        this.#unasked = id;
        return work();
      }
      this.#commit();
      if (isFree) return work(...this.#givenTo([{ brought }]));
    }
    return work(await new Promise((go) => this.#waiting.push({ go, brought })));
  }

  async #commit() {
    this.#isCommitting = true;
    this.#unasked = undefined;
    for (let group = [undefined]; group.length > 0; ) {
      // Those who were let go work first. Where nobody has, there is nothing to commit, and that takes a turn of the runtime's.
      await undefined;
      try {
        await this.#sync();
      } catch {
        // The object is ended then, and all who wait are told.
      }
      while (this.taken) await this.taken;
      group = this.#next();
      if (group.length === 1) this.#isShared = false;
      const given = this.#givenTo(group);
      for (const [at, { go }] of group.entries()) go(given[at]);
    }
    this.#isCommitting = false;
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
      if (all.length > 1 && !all.includes(undefined)) given = this.#many(all);
    } catch {
      // Each finds the same by itself, and tells its own caller.
    }
    return group.map(({ brought }) => given?.splice(0, brought.length));
  }
}
