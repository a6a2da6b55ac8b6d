// What all clients of a run have in common: each keeps some deposits under way, and is started again after a kill.
//
// Invariants:
// - A deposit is in the book before its client gets it.
// - After a kill, nothing new is begun before the client has said what it still has in its store.

/**
 * A subclass has `launch()`, which opens the client and resolves to the numbers of what it has stored; `takeRecovered()`; `begin(deposit)`; and
 * `end()`, which kills the client.
 */
export class Caller {
  counts = { kills: 0, answered: 0 };
  #book;
  #atATime;
  #underWay = new Set();
  #life = 0;
  #isUp = false;
  #isStopped = false;

  constructor(name, book, atATime) {
    this.name = name;
    this.#book = book;
    this.#atATime = atATime;
  }

  /** The numbers of the deposits that wait for their answer. */
  get underWay() {
    return [...this.#underWay];
  }

  async start() {
    const before = [...this.#underWay];
    const stored = await this.launch();
    this.#book.reopened(before, stored);
    this.#underWay = new Set(stored);
    await this.takeRecovered();
    this.#isUp = true;
    this.#refill();
  }

  /** Does `kill -9`. */
  async kill() {
    this.#isUp = false;
    this.#life += 1;
    this.counts.kills += 1;
    await this.end();
  }

  /** Begins nothing new from now on. */
  stop() {
    this.#isStopped = true;
  }

  told({ n, ...answer }) {
    if (!this.#book.told(n, answer)) return;
    if (this.#underWay.delete(n)) this.counts.answered += 1;
    this.#refill();
  }

  #refill() {
    while (this.#isUp && !this.#isStopped && this.#underWay.size < this.#atATime) {
      const deposit = this.#book.next(this.name);
      this.#underWay.add(deposit.n);
      const life = this.#life;
      this.begin(deposit).catch((error) => {
        // A kill makes everything fail that is under way.
        if (life === this.#life) this.#book.faults.push(`${this.name}, deposit ${deposit.n}: ${error}`);
      });
    }
  }
}
