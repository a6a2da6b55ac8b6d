// Makes clicks, one by one or a hundred at speed, and finishes those whose page is gone.
//
// Invariants:
// - One page at a time makes the clicks of a run. When it is gone, another page goes on, or the same page once it is loaded again.
// - A click whose page is gone is given to Semel again only if it was never made: if Semel has not stored it, and it is not in the server's log.
//   A stored request goes on by itself, and a logged one is made already.
// - What the naive client had in memory is gone with its page.

import { RUN_INTERVAL_MS } from "./limits.js";

/** How often a page looks for clicks that other pages have left. */
const LOOK_MS = 2_000;

export class Run {
  #parts;
  #lock;
  #page;
  #locks;
  #sleep;
  #now;
  /** By click: whose it was when this page found that its page was gone. */
  #found = new Map();
  #isQueued = false;

  /** `parts`: journal, naive, semel, referee; `kill` and `crash`, which end the server and the page; `full`, which says that a run found no room. */
  constructor({ account, page, locks = navigator.locks, sleep = pause, now = Date.now, ...parts }) {
    this.#lock = `semel lab ${account}`;
    this.#page = page;
    this.#locks = locks;
    this.#sleep = sleep;
    this.#now = now;
    this.#parts = parts;
  }

  /** Resolves once all pages can see that this one is there. Until then it makes no click. */
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

  /** Makes the clicks that are left of the run. If another page is doing that, waits until that page is gone, and goes on. */
  async drive() {
    const { journal, kill, crash, full } = this.#parts;
    // One call in the queue is enough.
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
          // The page takes a moment to go. Holding the lock for that time, it makes no more clicks, nor does another page.
          return new Promise(() => {});
        }
        await this.#sleep(RUN_INTERVAL_MS);
      }
    });
  }

  /** Finishes what pages that are gone have left, now and whenever a page goes. */
  async watch() {
    for (;;) {
      // An error need not come again at the next look.
      await this.#goOn().catch((error) => console.error(error));
      // Not awaited: pages may go while a run is under way.
      this.drive();
      await this.#sleep(LOOK_MS);
    }
  }

  /** Resolves to the ids of the pages that are there. */
  async #pages() {
    const prefix = `${this.#lock} page `;
    const { held } = await this.#locks.query();
    return new Set(held.filter(({ name }) => name.startsWith(prefix)).map(({ name }) => name.slice(prefix.length)));
  }

  async #goOn() {
    await this.#locks.request(`${this.#lock} go on`, async () => {
      const { journal } = this.#parts;
      // In this order. Otherwise a page could make its first click after the pages were listed, and count as gone.
      const known = [...journal.clicks.keys()];
      const pages = await this.#pages();
      const left = known.map((n) => journal.clicks.get(n)).filter(({ page }) => page !== this.#page && !pages.has(page));
      // A click that was found only now may still be on its way into Semel's store: it is dealt with at the next look.
      const older = left.filter(({ n, page, semel }) => semel === "waiting" && this.#found.get(n) === page);
      for (const { n, page } of left) this.#found.set(n, page);
      await this.#note(left);
      if (older.length > 0) await this.#finish(older);
    });
  }

  /** Records once what was left, and that the naive client has forgotten its part of it. */
  async #note(left) {
    const { journal } = this.#parts;
    const naive = left.filter((click) => click.naive === "waiting");
    // This includes clicks that were answered since their page went, because Semel went on with them.
    const fresh = left.filter((click) => !click.isLeft && (click.semel === "waiting" || click.isRecovered));
    for (const from of new Set([...naive, ...fresh].map(({ tab }) => tab))) {
      const count = (clicks) => clicks.filter(({ tab }) => tab === from).length;
      await journal.event("left", { naive: count(naive), semel: count(fresh), from });
    }
    for (const { n } of naive) await journal.change(n, { naive: "forgotten", naiveMs: this.#now() }, (click) => click.naive === "waiting");
    for (const { n } of fresh) await journal.change(n, { isLeft: true });
  }

  /** Makes Semel deposit what it has neither stored nor made. */
  async #finish(clicks) {
    const { journal, referee, semel } = this.#parts;
    // In this order: a request that leaves the store in between is in the log by then.
    const stored = await semel.stored();
    if (!(await referee.askAnew())) return;
    for (const { n, page } of clicks) {
      if (stored.has(n)) continue;
      const isMade = [...referee.logged].some(([id, status]) => id.startsWith(`${n}-semel-`) && ["executed", "replayed"].includes(status));
      // A full log can't tell what never came.
      if (!isMade && referee.isFull) continue;
      const members = isMade ? { semel: "answered", semelMs: this.#now() } : { page: this.#page };
      const isDue = (click) => click.semel === "waiting" && click.page === page;
      if ((await journal.change(n, members, isDue)) && !isMade) semel.deposit(n);
    }
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
