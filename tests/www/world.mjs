// The pages of one visitor, for the tests of runs: their locks, their journal, Semel's store and the server's log, without a browser.
//
// Invariants:
// - What takes a browser a turn of its event loop takes one here too: recording, locking, asking which pages are there.
// - A page that dies does nothing more, and its locks become free. What it had stored stays.

import { Run } from "../../www/lab/run.js";
import { Clock } from "./fakes.mjs";

const never = () => new Promise(() => {});

/** What a browser does asynchronously takes no time here, but other code runs meanwhile. */
async function turn() {
  for (let step = 0; step < 5; step += 1) await undefined;
}

export class World {
  clock = new Clock();
  /** The recorded clicks, by number. */
  clicks = new Map();
  run;
  events = [];
  /** The clicks that Semel has stored and not settled. */
  stored = new Set();
  /** The attempts that the server has logged. */
  logged = new Map();
  isDown = false;
  /** Whether the server's log is full. */
  isFull = false;
  /** How often reading Semel's store still fails. */
  unreadable = 0;
  /** How many clicks an account takes. */
  clicksMax = Infinity;
  /** By lane, the page and the number of each click that was handed to a client. */
  handed = { naive: [], semel: [] };
  /** What happened, in order: lock requests, asks, clicks. */
  log = [];
  pages = [];
  /** Whether other pages are told of what is recorded. */
  isTold = true;
  /** Runs when a page asks which pages are there, after the answer is made and before the page gets it. */
  onquery = () => {};
  #locks = [];

  /** Opens a page, which enters. `own` has its kill, its crash, or what runs at each of its lock requests. */
  async open({ tab = this.pages.length + 1, ...own } = {}) {
    const page = new Page(this, `page-${this.pages.length + 1}`, tab, own);
    this.pages.push(page);
    await page.run.enter();
    return page;
  }

  /** Which pages hold a lock, and which wait for it. */
  lock(name) {
    const all = this.#locks.filter((lock) => lock.name === name);
    return { held: all.filter(({ isHeld }) => isHeld).map(({ page }) => page.name), waiting: all.filter(({ isHeld }) => !isHeld).map(({ page }) => page.name) };
  }

  request(page, name, callback) {
    return new Promise((resolve, reject) => {
      const lock = { page, name, isHeld: false };
      lock.take = () => {
        lock.isHeld = true;
        Promise.resolve()
          .then(callback)
          .then(resolve, reject)
          .finally(() => this.release([lock]));
      };
      this.#locks.push(lock);
      this.#grant();
    });
  }

  async query() {
    const held = this.#locks.filter(({ isHeld }) => isHeld).map(({ name }) => ({ name }));
    await this.onquery();
    await turn();
    return { held, pending: [] };
  }

  locksOf(page) {
    return this.#locks.filter((lock) => lock.page === page);
  }

  release(locks) {
    this.#locks = this.#locks.filter((lock) => !locks.includes(lock));
    this.#grant();
  }

  #grant() {
    for (const lock of this.#locks) if (!lock.isHeld && this.#locks.find(({ name }) => name === lock.name) === lock) lock.take();
  }
}

class Page {
  isGone = false;
  /** How often the page said that a run found no room, killed the server, and crashed. */
  fulls = 0;
  kills = 0;
  crashes = 0;

  constructor(world, name, tab, { onrequest = () => {}, kill, crash } = {}) {
    this.world = world;
    this.name = name;
    this.tab = tab;
    this.journal = new Journal(this);
    const { clock } = world;
    const hand = (lane) => (n) => {
      world.handed[lane].push([name, n]);
      world.log.push([lane, n]);
    };
    this.run = new Run({
      account: "a",
      page: name,
      now: clock.now,
      sleep: (ms) => this.#living(clock.sleep(ms)),
      locks: {
        request: (lock, callback) => {
          onrequest(lock);
          return world.request(this, lock, callback);
        },
        query: () => this.#living(world.query()),
      },
      journal: this.journal,
      naive: { deposit: hand("naive") },
      semel: {
        deposit: hand("semel"),
        stored: async () => {
          world.log.push(["stored"]);
          if ((world.unreadable -= 1) >= 0) throw new Error("the store can't be read");
          const stored = new Set(world.stored);
          await turn();
          return stored;
        },
      },
      referee: (this.referee = {
        logged: new Map(),
        askAnew: async () => {
          world.log.push(["ask"]);
          await turn();
          if (!world.isDown) for (const [id, status] of world.logged) this.referee.logged.set(id, status);
          this.referee.isFull = world.isFull;
          return !world.isDown;
        },
      }),
      full: () => (this.fulls += 1),
      kill: async () => {
        this.kills += 1;
        world.log.push(["kill"]);
        await kill?.();
      },
      crash: () => {
        this.crashes += 1;
        world.log.push(["crash"]);
        crash?.(this);
      },
    });
  }

  /** Makes the page disappear from one instant to the next. */
  die() {
    this.isGone = true;
    this.world.release(this.world.locksOf(this));
  }

  /** Resolves like `promise` while the page lives, and never once it is gone. */
  async #living(promise) {
    const value = await promise;
    return this.isGone ? never() : value;
  }
}

/** The journal of a page, which shares one database with the other pages' journals. */
class Journal {
  clicks = new Map();
  run;
  onchange = () => {};
  #page;
  #world;

  constructor(page) {
    this.#page = page;
    this.#world = page.world;
    this.clicks = new Map(this.#world.clicks);
    this.run = this.#world.run;
  }

  click({ ofRun = false } = {}) {
    return this.#turn((world) => {
      const run = ofRun ? world.run : undefined;
      if (ofRun && !(run?.made < run?.total)) return undefined;
      if (world.clicks.size >= world.clicksMax) {
        if (run) this.#tell("run", (world.run = { ...run, total: run.made }));
        return { isFull: true };
      }
      const { name: page, tab } = this.#page;
      const click = { n: world.clicks.size + 1, page, tab, atMs: world.clock.now(), naive: "waiting", semel: "waiting" };
      world.clicks.set(click.n, click);
      world.log.push(["click", click.n]);
      if (run) world.run = { ...run, made: run.made + 1 };
      if (run) this.#tell("run", world.run);
      this.#tell("click", click);
      return { click, run: run && world.run };
    });
  }

  change(n, members, isDue = () => true) {
    return this.#turn((world) => {
      const click = world.clicks.get(n);
      const isChanged = isDue(click);
      if (isChanged) world.clicks.set(n, { ...click, ...members });
      this.#tell("click", world.clicks.get(n));
      return isChanged;
    });
  }

  event(kind, members) {
    return this.#turn((world) => void world.events.push({ kind, by: this.#page.tab, ...members }));
  }

  startRun(run) {
    return this.#turn((world) => {
      world.run = { id: "run", made: 0, ...run };
      this.#tell("run", world.run);
    });
  }

  async #turn(act) {
    await turn();
    if (this.#page.isGone) return never();
    return act(this.#world);
  }

  #tell(kind, value) {
    for (const { journal, isGone } of this.#world.pages) {
      if (isGone || !(this.#world.isTold || journal === this)) continue;
      if (kind === "click") journal.clicks.set(value.n, value);
      else journal.run = value;
      journal.onchange(kind);
    }
  }
}
