// What was clicked and what was sent, in IndexedDB, for every tab and every reload.
//
// Invariants:
// - A click is recorded before either client is asked to make it, and an attempt before it is sent.
// - Every tab of the lab learns what any tab records: `onchange` is called for this tab's records and for the others'.
// - A journal belongs to one account. Starting over makes another journal.
// - A journal that is over records nothing more, and its calls never resolve: the page is about to be reloaded.

import { openDB } from "idb";
import { AMOUNT, CLICKS_MAX } from "./limits.js";
import { byLane } from "./model.js";

const STORES = ["clicks", "attempts", "events", "samples"];
/** How many samples of the dedup set are kept. */
const SAMPLES_MAX = 2_000;

/** Opens the journal of `account`. `page` is the id of this load of the page, `tab` the number of its tab. */
export async function openJournal({ account, tab, page }) {
  const database = await openDB(nameOf(account), 1, {
    upgrade(database) {
      database.createObjectStore("clicks", { keyPath: "n", autoIncrement: true });
      database.createObjectStore("attempts", { keyPath: "id" });
      database.createObjectStore("events", { keyPath: "at", autoIncrement: true });
      database.createObjectStore("samples", { keyPath: "atMs" });
      database.createObjectStore("run");
    },
    // Another tab is starting over.
    blocking: () => journal.close(),
    // The browser was told to delete the data.
    terminated: () => journal.lost(),
  });
  const journal = new Journal(database, new BroadcastChannel(nameOf(account)), { tab, page });
  await journal.load();
  return journal;
}

export const nameOf = (account) => `semel lab ${account}`;

class Journal {
  clicks = new Map();
  attempts = new Map();
  events = [];
  samples = [];
  run;
  /** Called with the kind and the value of each change. */
  onchange = () => {};
  #byClick = new Map();
  #database;
  #channel;
  #own;
  /** Whether it records nothing more. */
  isOver = false;

  constructor(database, channel, own) {
    this.#database = database;
    this.#channel = channel;
    this.#own = own;
    channel.onmessage = ({ data: [kind, value] }) => this.#take(kind, value);
  }

  async load() {
    const [clicks, attempts, events, samples, run] = await Promise.all([...STORES.map((name) => this.#database.getAll(name)), this.#database.get("run", "run")]);
    // Whatever came over the channel meanwhile is newer.
    for (const click of clicks) if (!this.clicks.has(click.n)) this.clicks.set(click.n, click);
    for (const attempt of attempts) if (!this.attempts.has(attempt.id)) this.#keep(attempt);
    this.events = [...events, ...this.events.filter(({ at }) => !events.some((event) => event.at === at))];
    this.samples = [...samples, ...this.samples.filter(({ atMs }) => !samples.some((sample) => sample.atMs === atMs))];
    this.run ??= run;
  }

  /**
   * Records a click of this page, or with `ofRun` the next click of the run. Resolves to `{ click, run }`; to undefined if the run has no click left;
   * to `{ isFull }` if there is no room, which also ends the run.
   */
  async click({ ofRun = false } = {}) {
    const transaction = await this.#begin(["clicks", "run"]);
    const clicks = transaction.objectStore("clicks");
    const runs = transaction.objectStore("run");
    const run = ofRun ? await runs.get("run") : undefined;
    if (ofRun && !(run?.made < run?.total)) return undefined;
    if ((await clicks.count()) >= CLICKS_MAX) {
      if (run) await this.#end(run, transaction);
      return { isFull: true };
    }
    const click = { ...this.#own, amount: AMOUNT, atMs: Date.now(), naive: "waiting", semel: "waiting" };
    if (run) {
      run.made += 1;
      click.ofRun = run.id;
      await runs.put(run, "run");
    }
    click.n = await clicks.add(click);
    await transaction.done;
    if (run) this.#tell("run", run);
    this.#tell("click", click);
    return { click, run };
  }

  /** Changes a recorded click, if `isDue` returns true for it. Resolves to whether it did. */
  async change(n, members, isDue = () => true) {
    const transaction = await this.#begin(["clicks"]);
    const click = await transaction.store.get(n);
    // A click that was lost with its journal must not come back as a fragment.
    if (!click) return false;
    const changed = isDue(click) ? { ...click, ...members } : undefined;
    if (changed) await transaction.store.put(changed);
    await transaction.done;
    // Told even if nothing changed: the caller knew another state, so a page that is gone may have failed to tell its last change.
    this.#tell("click", changed ?? click);
    return changed !== undefined;
  }

  /** Records an attempt, or what became of it. Resolves once it is stored. */
  async attempt(attempt) {
    this.#tell("attempt", { ...this.#own, ...attempt });
    await this.#put("attempts", { ...this.#own, ...attempt });
  }

  /** Records something that happened to a page or to the server. */
  async event(kind, members = {}) {
    const event = { ...this.#own, kind, atMs: Date.now(), ...members };
    event.at = await this.#put("events", event);
    this.#tell("event", event);
  }

  /** Records the size of the dedup set, if it changed. */
  async sample(sample) {
    const last = this.samples.at(-1);
    if (last && last.records === sample.records && last.tombstones === sample.tombstones) return;
    if (this.samples.length >= SAMPLES_MAX) return;
    this.#tell("sample", sample);
    await this.#put("samples", sample);
  }

  /** Starts a run, unless one is going. Resolves to whether it did. */
  async startRun(run) {
    const transaction = await this.#begin(["run"]);
    const current = await transaction.store.get("run");
    const isFree = !(current?.made < current?.total);
    if (isFree) await transaction.store.put(run, "run");
    await transaction.done;
    if (isFree) this.#tell("run", run);
    return isFree;
  }

  async stopRun() {
    const transaction = await this.#begin(["run"]);
    const run = await transaction.store.get("run");
    if (run) await this.#end(run, transaction);
  }

  async #end(run, transaction) {
    const ended = { ...run, total: run.made };
    await transaction.objectStore("run").put(ended, "run");
    await transaction.done;
    this.#tell("run", ended);
  }

  /** Tells the other tabs that this account is over, and closes the journal. */
  leave() {
    this.#channel.postMessage(["over"]);
    this.#channel.close();
    this.close();
  }

  close() {
    this.isOver = true;
    this.#database.close();
  }

  /** The database is gone, with all that was in it. */
  lost() {
    if (!this.isOver) this.#take("over");
  }

  async #begin(stores) {
    if (this.isOver) return new Promise(() => {});
    return this.#database.transaction(stores, "readwrite", { durability: "relaxed" });
  }

  async #put(store, value) {
    const transaction = await this.#begin([store]);
    const key = await transaction.store.put(value);
    await transaction.done;
    return key;
  }

  #tell(kind, value) {
    if (this.isOver) return;
    this.#take(kind, value);
    this.#channel.postMessage([kind, value]);
  }

  /** The attempts of a click, by lane. */
  attemptsOf(n) {
    return byLane(this.#byClick.get(n)?.values() ?? []);
  }

  #keep(attempt) {
    this.attempts.set(attempt.id, attempt);
    const ofClick = this.#byClick.get(attempt.click) ?? new Map();
    this.#byClick.set(attempt.click, ofClick.set(attempt.id, attempt));
  }

  #take(kind, value) {
    // The event was already read from the database.
    if (kind === "event" && this.events.some(({ at }) => at === value.at)) return;
    if (kind === "click") this.clicks.set(value.n, value);
    if (kind === "attempt") this.#keep(value);
    if (kind === "event") this.events.push(value);
    if (kind === "sample") this.samples.push(value);
    if (kind === "run") this.run = value;
    if (kind === "over") this.close();
    this.onchange(kind, value);
  }
}
