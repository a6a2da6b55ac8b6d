// A run: a server, and clients on a bad network; meanwhile, processes are killed, and the disk fills up. Then it checks whether everything holds.
//
// Invariants:
// - What is drawn comes from the seed. What also depends on the machine's timing, such as which request meets which fault, differs each time.
// - Whatever happens, nothing is left after `end`: no process, no mount, no file.
// - Every wait has a limit. What is not there by then is a violation, not an error of the run.

import { setMaxListeners } from "node:events";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { startBatches } from "./batch-caller.mjs";
import { Book } from "./book.mjs";
import { missing } from "./dealt.mjs";
import { inspect } from "./files.mjs";
import { startHand } from "./hand-caller.mjs";
import { WEIGHED, WEIGHED_IN_SESSION, clientLoad, serverLoad, weigh } from "./memory.mjs";
import { startNode } from "./node-caller.mjs";
import { startPage } from "./page-caller.mjs";
import { BRISK, CALM, startProxy } from "./proxy.mjs";
import { scheduleOf } from "./schedule.mjs";
import { startServer } from "./server.mjs";
import { SessionBook } from "./session-book.mjs";
import { makeState } from "./state.mjs";
import { startTabs } from "./tab-caller.mjs";

const AT_A_TIME = 6;
/** Some stalls are longer than an attempt, and some callers have less patience than that. */
const OPTIONS = { retryIntervalMs: 50, attemptTimeoutMs: 2_000 };
const GIVE_UP_AFTER_MS = 1_500;
/** Usually everything is there in seconds, on a slow machine in a minute. */
const SETTLE_MS = 240_000;
/** Used after a wait has failed: what depends on it will hardly come, and the run must end and say why. */
const SETTLE_AFTER_FAULT_MS = 10_000;
const LOOK_MS = 200;
/** How long ending a run early waits for what is being started. */
const LAST_WORK_MS = 30_000;
const TICK_MS = 15_000;
/** The clients with sessions. Each in `solo` has its own session; those in `duo` contend for one, as do all tabs. */
const TILLS = { solo: ["http"], duo: ["socket", "http"], tabs: ["http", "socket", "http", "auto", "http"] };
/** The name of sessions in `page/tills.js`. */
const SESSION = "till";
const AT_A_TIME_IN_A_TAB = 3;
const DUO_PAUSE_MS = 300;
/** Each book of sessions gets this many numbers for its deposits. */
const NUMBERS_OF_A_BOOK = 1e9;
export const EVERYTHING = { page: true, nodes: 2, hand: true, batches: true, tills: true, tabs: true, smallDisk: true, memory: true };

/**
 * `parts`: which parts of `EVERYTHING` take part. `naive`, `forgets`, `leaks`, `renames` and `loses`: what is broken on purpose. `settleMs`: the
 * limit for each wait at the end. `say`: called with a line now and then.
 */
export class Run {
  #settings;
  #ends = [];
  #ending = new AbortController();
  #callers = [];
  #tabs;
  /** The books of sessions. */
  #tillBooks = [];
  #lastSeqs = new Map();
  #isStuck = false;

  constructor({ seed, durationMs, parts = EVERYTHING, naive = false, forgets = false, leaks = false, renames = false, loses = false, settleMs = SETTLE_MS, say = () => {} }) {
    this.#settings = { seed, durationMs, parts, naive, forgets, leaks, renames, loses, settleMs, say };
    this.book = new Book(seed);
    setMaxListeners(0, this.#ending.signal);
  }

  async start() {
    const after = (end) => this.#ends.unshift(end);
    const { seed, durationMs, parts, naive, forgets, renames, say } = this.#settings;
    this.state = await makeState(after);
    if (parts.smallDisk) {
      await this.state.mount(durationMs);
      if (this.state.leftOut) say(`left out: no disk fills up, for none could be mounted (${this.state.leftOut})`);
    }
    this.server = await startServer(this.state);
    after(() => this.server.kill());
    this.proxy = await startProxy({ target: () => this.server.address, seed });
    after(() => this.proxy.close());
    const common = { book: this.book, atATime: AT_A_TIME, after };
    const options = { ...OPTIONS, url: this.proxy.url };
    for (let index = 0; index < parts.nodes; index += 1) {
      // The callers of the first one give up, and its answers come later.
      const more = index === 0 ? { giveUpAfterMs: GIVE_UP_AFTER_MS } : {};
      const journal = join(this.state.folder, `journal-${index}`);
      this.#callers.push(await startNode({ ...common, name: `node-${index}`, options: { ...options, ...more }, journal, forgets }));
    }
    if (parts.hand) this.#callers.push(await startHand({ ...common, url: this.proxy.url, naive }));
    if (parts.batches) this.#callers.push(await startBatches({ ...common, url: this.proxy.url, renames }));
    if (parts.page) this.#callers.push(await startPage({ ...common, options }));
    const node = async (name, book, tills) => {
      const journal = join(this.state.folder, `journal-${name}`);
      this.#callers.push(await startNode({ ...common, book, name, options, journal, tills, forgets }));
    };
    if (parts.tills) {
      for (const [at, transport] of TILLS.solo.entries()) await node(`node-solo-${at}`, this.#tillBook(`solo-${at}`, false), { transport, pauseMs: 0 });
      const duo = this.#tillBook("duo", true);
      for (const [at, transport] of TILLS.duo.entries()) await node(`node-duo-${at}`, duo, { transport, pauseMs: DUO_PAUSE_MS * at });
    }
    if (parts.tabs) {
      this.#tabs = await startTabs({ ...common, book: this.#tillBook("tabs", true), atATime: AT_A_TIME_IN_A_TAB, options, transports: TILLS.tabs });
      this.#callers.push(...this.#tabs.callers);
    }
  }

  #tillBook(name, isContended) {
    const book = new SessionBook({ seed: this.#settings.seed, name, first: NUMBERS_OF_A_BOOK * (this.#tillBooks.length + 1), isContended });
    this.#tillBooks.push(book);
    return book;
  }

  /** Makes everything happen that is drawn, however slow the machine is, and runs until the time is over. */
  async rage() {
    const { seed, durationMs, parts, loses, say } = this.#settings;
    const startedMs = Date.now();
    const named = (name) => this.#callers.filter((caller) => caller.name.startsWith(name));
    const [page, nodes, tabs] = [named("page"), named("node"), named("tab")];
    // One after another, so that no tab is started while its browser is down.
    let turn;
    const inTurn = (caller, lastsMs) => (turn = Promise.all([turn]).then(() => this.#restart(caller, lastsMs)));
    const browsers = [...page, ...(this.#tabs ? [this.#tabs] : [])];
    const acts = {
      server: async (lastsMs) => {
        await this.server.kill();
        this.server.counts.kills += 1;
        if (loses) await this.state.loseLogs();
        await this.#pause(lastsMs);
        await this.server.start();
      },
      ...(browsers.length > 0 && { browser: (lastsMs, index) => inTurn(browsers[index % browsers.length], lastsMs) }),
      ...(tabs.length > 0 && { tab: (lastsMs, index) => inTurn(tabs[index % tabs.length], lastsMs) }),
      ...(nodes.length > 0 && { node: (lastsMs, index) => this.#restart(nodes[index % nodes.length], lastsMs) }),
      ...(this.state.isSmall && {
        disk: async (lastsMs) => {
          await this.state.fill();
          await this.#pause(lastsMs);
          await this.state.free();
        },
      }),
    };
    const schedule = scheduleOf(seed, durationMs, Object.keys(acts));
    const lanes = Object.entries(schedule).map(async ([kind, events]) => {
      for (const [index, { atMs, lastsMs }] of events.entries()) {
        await this.#pause(Math.max(0, startedMs + atMs - Date.now()));
        await acts[kind](lastsMs, index);
      }
    });
    const ticker = setInterval(() => say(JSON.stringify(this.figures())), TICK_MS);
    // A failing lane ends the others. So when this rejects, nothing is being started any more.
    let failure;
    const ending = (error) => {
      failure ??= error;
      this.#ending.abort();
    };
    await Promise.all([...lanes, this.#pause(durationMs)].map((lane) => lane.catch(ending)));
    clearInterval(ticker);
    if (failure) throw failure;
  }

  /** Puts an equal load on processes that are no longer killed. Notes which of them do not stop growing. */
  async weigh() {
    const { leaks } = this.#settings;
    for (const caller of this.#callers) caller.stop();
    this.proxy.shares = BRISK;
    await this.#until("nothing is under way", () => this.#callers.every(({ underWay }) => underWay.length === 0));
    // Clients are weighed together, because their garbage is collected. The server's is not, so it is weighed alone.
    const clients = this.#callers.filter(({ name }) => isWeighed(name));
    await Promise.all(clients.map((caller) => this.#weigh(clientLoad(caller, leaks))));
    if (!leaks) await this.#weigh(serverLoad(this.server));
  }

  async #weigh({ name, ...process }) {
    const { isLevel, samples } = await weigh(process);
    this.#settings.say(`memory of ${name}, in kB: ${samples.map((bytes) => Math.round(bytes / 1024)).join(" ")}`);
    if (!isLevel) this.book.faults.push(`the memory of ${name} grows and grows under the same load`);
  }

  /** Makes the network good, then waits until every caller has its answer and no key keeps a record. */
  async settle() {
    for (const caller of this.#callers) caller.stop();
    this.proxy.shares = CALM;
    await this.#until("every caller is answered", () => this.#callers.every(({ underWay }) => underWay.length === 0));
    await this.#until("no client has anything pending", async () => {
      const pending = await Promise.all(this.#callers.map((caller) => caller.pending()));
      return pending.every(({ length }) => length === 0);
    });
    await this.#endSessions();
    if (this.#settings.naive) return;
    const open = [...this.book.accounts, ...WEIGHED];
    await this.#until("every outcome is acknowledged", async () => {
      while (open.length > 0 && (await this.server.get(`/lab/accounts/${open[0]}/semel`)).records === 0) open.shift();
      return open.length === 0;
    });
  }

  /** Takes each session over once more, and acknowledges everything in it. What a key keeps of it then must not depend on what it was. */
  async #endSessions() {
    const { tills, memory } = this.#settings.parts;
    const weighed = tills && memory ? [WEIGHED_IN_SESSION] : [];
    for (const account of [...this.#tillAccounts, ...weighed]) this.#lastSeqs.set(account, await this.server.endSession(account, SESSION));
  }

  get #tillAccounts() {
    return this.#tillBooks.flatMap(({ accounts }) => accounts);
  }

  /** Stops the server. Resolves to everything that does not hold, a line each. */
  async check() {
    const { naive, durationMs, parts } = this.#settings;
    const balances = new Map();
    for (const id of this.#tillAccounts) balances.set(id, await this.server.get(`/accounts/${id}`));
    for (const id of this.book.accounts) balances.set(id, await this.server.get(`${naive ? "/naive" : ""}/accounts/${id}`));
    await this.server.kill();
    const files = await inspect(this.state.objects);
    const violations = this.book.violations({ balances, sent: this.proxy.deposits });
    const isSeen = (client) => this.#callers.find(({ name }) => name === client).isSeen;
    for (const book of this.#tillBooks) violations.push(...book.violations({ balances, lastSeqs: this.#lastSeqs, sent: this.proxy.deposits, isSeen }));
    violations.push(...missing(this.figures(), { durationMs, parts, isSmallDisk: this.state.isSmall }));
    violations.push(...this.server.deaths, ...[...this.#callers, this.#tabs].flatMap((caller) => caller?.errors ?? []));
    const closed = this.#tillBooks.flatMap((book) => [...book.deposits.values()]).filter(({ abortMs }) => abortMs !== undefined).length;
    for (const file of files) violations.push(...wrongWithFile(file, closed));
    const told = [...balances.values()].map(({ balance, entries }) => `${balance} ${entries}`);
    const stored = new Set(files.filter(({ account }) => account).map(({ account }) => account.join(" ")));
    for (const account of told.filter((account) => !account.endsWith(" 0") && !stored.has(account))) violations.push(`no file has the account that was told as ${account}`);
    return { violations, files: files.length, takeOvers: files.reduce((all, { kept }) => all + kept.epoch, 0) };
  }

  /** What has happened so far. */
  figures() {
    const kills = (name) => this.#callers.filter((caller) => caller.name.startsWith(name)).reduce((all, { counts }) => all + counts.kills, 0);
    const answered = Object.fromEntries(this.#callers.map(({ name, counts }) => [name, counts.answered]));
    return {
      ...this.proxy.counts,
      ...this.#tillBooks.reduce((all, { counts }) => ({ madeInSessions: all.madeInSessions + counts.made, fenced: all.fenced + counts.fenced }), { madeInSessions: 0, fenced: 0 }),
      serverKills: this.server.counts.kills,
      browserKills: kills("page") + (this.#tabs?.kills ?? 0),
      tabKills: this.#tabs?.killsAlone ?? 0,
      nodeKills: kills("node"),
      fills: this.state.fills,
      refusedByFullDisk: this.server.counts.fullDisk,
      deposits: this.book.deposits.length,
      accounts: this.book.accounts.length,
      answered,
      statuses: Object.fromEntries(this.proxy.statuses),
    };
  }

  /** Ends everything, even if some of it fails to end. `work`: what may be starting something at this moment. */
  async end(work) {
    this.#ending.abort();
    await Promise.race([work, delay(LAST_WORK_MS, undefined, { ref: false })]).catch(() => {});
    const failures = [];
    for (const end of this.#ends.splice(0)) await Promise.resolve(end()).catch((error) => failures.push(error));
    if (failures.length > 0) throw new AggregateError(failures, "something did not end");
  }

  async #restart(caller, afterMs) {
    await caller.kill();
    await this.#pause(afterMs);
    await caller.start();
  }

  #pause(ms) {
    return delay(ms, undefined, { signal: this.#ending.signal });
  }

  async #until(what, condition) {
    const { settleMs, say } = this.#settings;
    const boundMs = this.#isStuck ? Math.min(settleMs, SETTLE_AFTER_FAULT_MS) : settleMs;
    const deadline = Date.now() + boundMs;
    while (!(await condition())) {
      if (Date.now() > deadline) {
        this.#isStuck = true;
        const waiting = this.#callers.filter(({ underWay }) => underWay.length > 0).map(({ name, underWay }) => `${name} waits for ${underWay.join(" ")}`);
        const fault = `in ${boundMs} ms it did not come to this: ${what} (${waiting.join(", ")})`;
        // Said at once, because what comes next may hang, and then nobody would read it.
        say(fault);
        this.book.faults.push(fault);
        return;
      }
      await this.#pause(LOOK_MS);
    }
  }
}

/** Clients that contend for a session are left out, because they wait most of the time. */
const isWeighed = (name) => name === "page" || /^node-(solo-)?\d+$/.test(name);

function* wrongWithFile({ file, integrity, unacknowledged, kept: { epoch, sessions } }, closed) {
  if (integrity !== "ok") yield `${file}: ${integrity}`;
  // Taking a session over, and closing a place, are records that nobody acknowledges.
  if (unacknowledged > (epoch > 0 ? epoch + closed : 0)) yield `${file}: ${unacknowledged} records that nobody has acknowledged, with ${epoch} take-overs`;
  // The last place is kept, with its outcome.
  for (const [places] of sessions.filter(([places]) => places > 1)) yield `${file}: a session keeps ${places} places of which all but one are acknowledged`;
}

/** Makes a run from start to end. Resolves to `{ violations, figures, files, takeOvers }`. `signal` ends it early. */
export async function runChaos({ signal, ...settings }) {
  const run = new Run(settings);
  const { parts = EVERYTHING } = settings;
  const stopped = new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
  const work = (async () => {
    await run.start();
    await run.rage();
    if (parts.memory) await run.weigh();
    await run.settle();
    const checked = await run.check();
    return { ...checked, figures: run.figures() };
  })();
  try {
    return await Promise.race([work, stopped]);
  } finally {
    await run.end(work);
  }
}
