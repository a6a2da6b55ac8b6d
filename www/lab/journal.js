// What was clicked and what was sent, in IndexedDB, for every tab and every reload.
//
// Invariants:
// - A click is on record before either client is asked to make it, and an attempt before it is sent.
// - Whatever a tab records, every tab of the lab gets to know: `onchange` tells of its own records and of the others'.
// - A journal is of one account. Starting over makes another.
// - One that is over takes nothing any more, and who waits for it does nothing more: its page is about to go.

import { openDB } from "idb";
import { AMOUNT, CLICKS_MAX } from "./limits.js";
import { byLane } from "./model.js";

const STORES = ["clicks", "attempts", "events", "samples"];
/** Samples of the dedup set that are kept. */
const SAMPLES_MAX = 2_000;

/** Opens the journal of `account`. `page` names this load of the page, `tab` the tab that it is in. */
export async function openJournal({ account, tab, page }) {
  const database = await openDB(nameOf(account), 1, {
    upgrade(database) {
      database.createObjectStore("clicks", { keyPath: "n", autoIncrement: true });
      database.createObjectStore("attempts", { keyPath: "id" });
      database.createObjectStore("events", { keyPath: "at", autoIncrement: true });
      database.createObjectStore("samples", { keyPath: "atMs" });
      database.createObjectStore("run");
    },
    // Another tab starts over.
    blocking: () => journal.close(),
    // The visitor has the browser forget it.
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
  /** Is called with the kind and the value of each change. */
  onchange = () => {};
  #byClick = new Map();
  #database;
  #channel;
  #own;
  /** It takes nothing any more. */
  isOver = false;

  constructor(database, channel, own) {
    this.#database = database;
    this.#channel = channel;
    this.#own = own;
    channel.onmessage = ({ data: [kind, value] }) => this.#take(kind, value);
  }

  async load() {
    const [clicks, attempts, events, samples, run] = await Promise.all([...STORES.map((name) => this.#database.getAll(name)), this.#database.get("run", "run")]);
    // What came over the channel meanwhile is newer.
    for (const click of clicks) if (!this.clicks.has(click.n)) this.clicks.set(click.n, click);
    for (const attempt of attempts) if (!this.attempts.has(attempt.id)) this.#keep(attempt);
    this.events = [...events, ...this.events.filter(({ at }) => !events.some((event) => event.at === at))];
    this.samples = [...samples, ...this.samples.filter(({ atMs }) => !samples.some((sample) => sample.atMs === atMs))];
    this.run ??= run;
  }

  /** Records a click of this page, or the next of the run: undefined once there is none left, `{ isFull }` where there is no room. A run that finds none is over. */
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

  /** Changes a click, as it is on record then, if `isDue` says so of it. Resolves to whether it did. */
  async change(n, members, isDue = () => true) {
    const transaction = await this.#begin(["clicks"]);
    const click = await transaction.store.get(n);
    // One that was lost with a journal must not come back without what it was.
    if (!click) return false;
    const changed = isDue(click) ? { ...click, ...members } : undefined;
    if (changed) await transaction.store.put(changed);
    await transaction.done;
    // Who asked had it otherwise: its last change may not have been told by a page that is gone.
    this.#tell("click", changed ?? click);
    return changed !== undefined;
  }

  /** Records an attempt, or what has become of it. Resolves once it is on record. */
  async attempt(attempt) {
    this.#tell("attempt", { ...this.#own, ...attempt });
    await this.#put("attempts", { ...this.#own, ...attempt });
  }

  /** Records something that befell a page or the server. */
  async event(kind, members = {}) {
    const event = { ...this.#own, kind, atMs: Date.now(), ...members };
    event.at = await this.#put("events", event);
    this.#tell("event", event);
  }

  /** Records how large the dedup set was, if it changed. */
  async sample(sample) {
    const last = this.samples.at(-1);
    if (last && last.records === sample.records && last.tombstones === sample.tombstones) return;
    if (this.samples.length >= SAMPLES_MAX) return;
    this.#tell("sample", sample);
    await this.#put("samples", sample);
  }

  /** Starts a run, unless one is going. */
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

  /** Says to the other tabs that this account is over. */
  leave() {
    this.#channel.postMessage(["over"]);
    this.#channel.close();
    this.close();
  }

  close() {
    this.isOver = true;
    this.#database.close();
  }

  /** It is gone, and so is what was in it. */
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
    // It was read as it was being told.
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
