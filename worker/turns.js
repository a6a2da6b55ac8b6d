// Whose turn it is at an object, and what is committed together.
//
// Invariants:
// - Nothing waits while no commit is under way, as far as is known.
// - To be told when a commit is over takes the runtime a turn of its own, a twentieth to a tenth of what a request costs, and gains something only where
//   several wait for it. So once that was not so many times in a row, only one turn in as many asks, until it is so again.
// - What came during a commit is in the next, in the order in which it came, all in one turn: the runtime commits a turn as a whole, and lets no
//   answer out before.
// - Nobody is in one commit with who has the object to itself.

/** So many are in one commit. Whoever comes beyond them waits for one more. */
const GROUP_MAX = 256;
/** After so many commits that nobody has waited for, or one alone, one turn in so many asks for its own. */
const VAIN_MAX = 16;

export class Turns {
  /** Settles when who has the object to itself is through; undefined where nobody has. */
  taken;
  #sync;
  #isCommitting = false;
  /** How many commits in a row were asked for that several have not waited for, and how many turns have asked for none since. */
  #vain = 0;
  #unasked = 0;
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

  /** Works, in one turn with all that waited for the same commit. `brought`: a list; `work` is given what `many` gives for each of it, if it does. */
  async together(work, brought) {
    while (this.taken) await this.taken;
    if (this.#isCommitting) return work(await new Promise((go) => this.#waiting.push({ go, brought })));
    if (this.#asks()) this.#commit();
    return work(...this.#givenTo([{ brought }]));
  }

  /** Whether to ask when what comes now is committed. */
  #asks() {
    if (this.#vain < VAIN_MAX) return true;
    this.#unasked = (this.#unasked + 1) % VAIN_MAX;
    return this.#unasked === 0;
  }

  async #commit() {
    this.#isCommitting = true;
    for (let group = [undefined]; group.length > 0; ) {
      // Those who were let go work first.
      await undefined;
      try {
        await this.#sync();
      } catch {
        // The object is ended then, and all who wait are told.
      }
      while (this.taken) await this.taken;
      group = this.#next();
      this.#vain = group.length > 1 ? 0 : this.#vain + 1;
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
