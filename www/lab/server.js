// What the server says: the two accounts, the dedup set, and its own log of the attempts that reached it.
//
// Invariants:
// - The page asks it directly, not through the lab's network: it is the referee.
// - Each answer describes one instant: its balance, entries and log agree.

/** How many rows of its log the server gives at once. */
const PAGE_ROWS = 1_000;
const ASK_TIMEOUT_MS = 4_000;
/** The pause before a server that did not answer is asked again. */
const ASKED_MS = 250;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Referee {
  /** By lane: `{ balance, entries, records, tombstones }`. */
  accounts = { naive: undefined, semel: undefined };
  /** By attempt id: the status that the server gave it. */
  logged = new Map();
  isDown = false;
  /** What is known was true at this instant or later. */
  asOfMs = 0;
  #account;
  #fetch;
  #now;
  #sleep;
  #last = { naive: 0, semel: 0 };
  #asking;

  constructor(account, { fetch = (...request) => globalThis.fetch(...request), now = Date.now, sleep = pause } = {}) {
    this.#account = account;
    this.#fetch = fetch;
    this.#now = now;
    this.#sleep = sleep;
  }

  /** Whether a log takes no more entries. Then an attempt that is not in it may have arrived all the same. */
  get isFull() {
    return Object.values(this.accounts).some((account) => account?.full === true);
  }

  /** Asks for what is new in both accounts, unless that is under way. Resolves to whether the server answered. */
  ask() {
    this.#asking ??= this.#ask().finally(() => (this.#asking = undefined));
    return this.#asking;
  }

  /** Asks for what is new from now on: a call that is under way may have missed it. */
  async askAnew() {
    await this.#asking;
    return this.ask();
  }

  async #ask() {
    const startMs = this.#now();
    // Waits for both, even if one fails. Otherwise a late answer could overwrite what the next call has read.
    const read = await Promise.allSettled([this.#read("naive"), this.#read("semel")]);
    this.isDown = read.some(({ status }) => status === "rejected");
    if (!this.isDown) this.asOfMs = startMs;
    return !this.isDown;
  }

  async #read(lane) {
    for (;;) {
      const response = await this.#fetch(`/lab/accounts/${this.#account}/${lane}?after=${this.#last[lane]}`, { signal: AbortSignal.timeout(ASK_TIMEOUT_MS) });
      if (!response.ok) throw new Error(`the log answers ${response.status}`);
      const { attempts, last, ...account } = await response.json();
      for (const { attempt, status } of attempts) this.logged.set(attempt, status);
      this.accounts[lane] = account;
      this.#last[lane] = last;
      if (attempts.length < PAGE_ROWS) return;
    }
  }

  /** Resolves to whether this server can be killed from the page: one that `npm start` supervises can. Waits until the server answers. */
  async canBeKilled() {
    for (;;) {
      const answer = await this.#fetch("/lab/server").catch(() => undefined);
      if (!answer) await this.#sleep(ASKED_MS);
      else return answer.json().then(({ canKill }) => canKill === true, () => false);
    }
  }

  /** Resolves once there is a server to load the page from. Calls `wait` while there is none. */
  async whenUp(wait) {
    const isUp = () => this.#fetch("/", { method: "HEAD", cache: "no-store" }).then(({ ok }) => ok, () => false);
    while (!(await isUp())) {
      wait();
      await this.#sleep(ASKED_MS);
    }
  }

  async kill() {
    const response = await this.#fetch("/lab/server/kill", { method: "POST" });
    if (!response.ok) throw new Error(`the server answers ${response.status}`);
  }
}
