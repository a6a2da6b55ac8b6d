// Clicks, one by one and a hundred at speed, and what becomes of those whose page is gone.
//
// Invariants:
// - One page at a time makes the clicks of a run; when it is gone, another goes on with it, or the same one once it is loaded again.
// - A click whose page is gone is made by Semel exactly if it never was: what is stored goes on by itself, and what the server's log
//   has is made. It is handed to Semel again only if it is in neither.
// - What the naive client had in memory is gone with its page.

import { RUN_INTERVAL_MS } from "./limits.js";

/** So often a page looks for what others have left. */
const LOOK_MS = 2_000;

export class Run {
  #parts;
  #lock;
  #page;

  /** `parts`: journal, naive, semel, referee, and `crash`, which ends the page. */
  constructor({ account, page, ...parts }) {
    this.#lock = `semel lab ${account}`;
    this.#page = page;
    this.#parts = parts;
    // Held for as long as this page is there.
    navigator.locks.request(`${this.#lock} page ${page}`, () => new Promise(() => {}));
  }

  /** Makes one click. */
  async click() {
    const clicked = await this.#parts.journal.click();
    if (clicked) this.#make(clicked.click.n);
    return clicked;
  }

  #make(n) {
    this.#parts.naive.deposit(n);
    this.#parts.semel.deposit(n);
  }

  /** Makes what is left of the run, unless another page does. */
  async drive() {
    const { journal } = this.#parts;
    if (!(journal.run?.made < journal.run?.total)) return;
    await navigator.locks.request(`${this.#lock} run`, async () => {
      for (;;) {
        const clicked = await journal.click({ ofRun: true });
        if (!clicked) return;
        this.#make(clicked.click.n);
        const { made, kill, crash } = clicked.run;
        if (made === kill) await this.#parts.kill();
        if (made === crash) return this.#parts.crash();
        await new Promise((resolve) => setTimeout(resolve, RUN_INTERVAL_MS));
      }
    });
  }

  /** Goes on with what pages have left that are gone, now and whenever one goes. */
  async watch() {
    for (;;) {
      await this.#goOn();
      await this.drive();
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  /** The pages that are there. */
  async #pages() {
    const prefix = `${this.#lock} page `;
    const { held } = await navigator.locks.query();
    return new Set(held.filter(({ name }) => name.startsWith(prefix)).map(({ name }) => name.slice(prefix.length)));
  }

  async #goOn() {
    const { journal, referee, semel } = this.#parts;
    await navigator.locks.request(`${this.#lock} go on`, async () => {
      const pages = await this.#pages();
      const isGone = (page) => page !== this.#page && !pages.has(page);
      const left = [...journal.clicks.values()].filter(({ page }) => isGone(page));
      const naive = left.filter((click) => click.naive === "waiting");
      // What was answered since it was left is among it: Semel went on with it.
      const fresh = left.filter((click) => !click.isLeft && (click.semel === "waiting" || click.isRecovered));
      if (naive.length + fresh.length > 0) await journal.event("left", { naive: naive.length, semel: fresh.length, from: left[0].tab });
      for (const { n } of naive) await journal.change(n, { naive: "forgotten", naiveMs: Date.now() });
      for (const { n } of fresh) await journal.change(n, { isLeft: true });
      // Of what was found just now, something may still be on its way into the store: it is looked at again next time.
      const older = left.filter((click) => click.isLeft && click.semel === "waiting");
      if (older.length === 0) return;
      // In this order: what leaves the store in between is in the log by then.
      const stored = await semel.stored();
      if (!(await referee.ask())) return;
      for (const { n } of older) {
        if (stored.has(n)) continue;
        const isMade = [...referee.logged].some(([id, status]) => id.startsWith(`${n}-semel-`) && ["executed", "replayed"].includes(status));
        if (isMade) await journal.change(n, { semel: "answered", semelMs: Date.now(), isUnheard: true });
        else if (await journal.adopt(n, isGone)) semel.deposit(n);
      }
    });
  }
}
