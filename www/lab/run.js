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
  #locks;
  #sleep;
  #now;
  /** By click: whose it was when a look of this page found it left. */
  #found = new Map();
  #isQueued = false;

  /** `parts`: journal, naive, semel, referee, `kill` and `crash`, which end the server and the page, and `full`, which says that a run found no room. */
  constructor({ account, page, locks = navigator.locks, sleep = pause, now = Date.now, ...parts }) {
    this.#lock = `semel lab ${account}`;
    this.#page = page;
    this.#locks = locks;
    this.#sleep = sleep;
    this.#now = now;
    this.#parts = parts;
  }

  /** Resolves once all can see that this page is there: until then it makes no click. */
  async enter() {
    await new Promise((resolve, reject) => {
      const hold = () => {
        resolve();
        return new Promise(() => {});
      };
      this.#locks.request(`${this.#lock} page ${this.#page}`, hold).catch(reject);
    });
  }

  /** Makes one click, if there is room. */
  async click() {
    const clicked = await this.#parts.journal.click();
    if (!clicked.isFull) this.#make(clicked.click.n);
    return clicked;
  }

  #make(n) {
    this.#parts.naive.deposit(n);
    this.#parts.semel.deposit(n);
  }

  /** Makes what is left of the run, unless another page does: then it goes on when that is gone. */
  async drive() {
    const { journal, kill, crash, full } = this.#parts;
    // One that waits its turn is enough.
    if (this.#isQueued || !(journal.run?.made < journal.run?.total)) return;
    this.#isQueued = true;
    await this.#locks.request(`${this.#lock} run`, async () => {
      this.#isQueued = false;
      for (;;) {
        const clicked = await journal.click({ ofRun: true });
        if (clicked?.isFull) full();
        if (!clicked?.click) return;
        this.#make(clicked.click.n);
        const { run } = clicked;
        if (run.made === run.kill) await kill();
        if (run.made === run.crash) {
          crash();
          // The page takes a moment to go: in that it makes no more, nor does another while it is there.
          return new Promise(() => {});
        }
        await this.#sleep(RUN_INTERVAL_MS);
      }
    });
  }

  /** Goes on with what pages have left that are gone, now and whenever one goes. */
  async watch() {
    for (;;) {
      // The next look may do better than one that fails.
      await this.#goOn().catch((error) => console.error(error));
      // Not to its end: others may go while a run is under way.
      this.drive();
      await this.#sleep(LOOK_MS);
    }
  }

  /** The pages that are there. */
  async #pages() {
    const prefix = `${this.#lock} page `;
    const { held } = await this.#locks.query();
    return new Set(held.filter(({ name }) => name.startsWith(prefix)).map(({ name }) => name.slice(prefix.length)));
  }

  async #goOn() {
    await this.#locks.request(`${this.#lock} go on`, async () => {
      const { journal } = this.#parts;
      // In this order: a page could be seen before any click of it was known.
      const known = [...journal.clicks.keys()];
      const pages = await this.#pages();
      const left = known.map((n) => journal.clicks.get(n)).filter(({ page }) => page !== this.#page && !pages.has(page));
      // Of what is found just now, something may still be on its way into the store: it is looked at again next time.
      const older = left.filter(({ n, page, semel }) => semel === "waiting" && this.#found.get(n) === page);
      for (const { n, page } of left) this.#found.set(n, page);
      await this.#note(left);
      if (older.length > 0) await this.#finish(older);
    });
  }

  /** Says what was left, once, and that the naive client has forgotten its part of it. */
  async #note(left) {
    const { journal } = this.#parts;
    const naive = left.filter((click) => click.naive === "waiting");
    // What was answered since it was left is among it: Semel went on with it.
    const fresh = left.filter((click) => !click.isLeft && (click.semel === "waiting" || click.isRecovered));
    for (const from of new Set([...naive, ...fresh].map(({ tab }) => tab))) {
      const count = (clicks) => clicks.filter(({ tab }) => tab === from).length;
      await journal.event("left", { naive: count(naive), semel: count(fresh), from });
    }
    for (const { n } of naive) await journal.change(n, { naive: "forgotten", naiveMs: this.#now() }, (click) => click.naive === "waiting");
    for (const { n } of fresh) await journal.change(n, { isLeft: true });
  }

  /** Sees to it that Semel makes what it has neither stored nor made. */
  async #finish(clicks) {
    const { journal, referee, semel } = this.#parts;
    // In this order: what leaves the store in between is in the log by then.
    const stored = await semel.stored();
    if (!(await referee.askAnew())) return;
    for (const { n, page } of clicks) {
      if (stored.has(n)) continue;
      const isMade = [...referee.logged].some(([id, status]) => id.startsWith(`${n}-semel-`) && ["executed", "replayed"].includes(status));
      // Of a log that is full it can't be told what never came.
      if (!isMade && referee.isFull) continue;
      const members = isMade ? { semel: "answered", semelMs: this.#now() } : { page: this.#page };
      const isDue = (click) => click.semel === "waiting" && click.page === page;
      if ((await journal.change(n, members, isDue)) && !isMade) semel.deposit(n);
    }
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
