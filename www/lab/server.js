// What the server says: the two accounts, the dedup set, and its own log of the attempts that reached it.
//
// Invariants:
// - It is asked directly, not through the lab's network: it is the referee.
// - One answer is of one instant: balance, entries and log agree in it.

/** So many rows of its log the server gives at once. */
const PAGE_ROWS = 1_000;
const ASK_TIMEOUT_MS = 4_000;

export class Referee {
  /** By lane: `{ balance, entries, records, tombstones }`. */
  accounts = { naive: undefined, semel: undefined };
  /** By the id of an attempt: the status that the server gave it. */
  logged = new Map();
  isDown = false;
  /** What it says is of this instant or later. */
  asOfMs = 0;
  #account;
  #last = { naive: 0, semel: 0 };
  #asking;

  constructor(account) {
    this.#account = account;
  }

  /** Asks for what is new in both accounts. Resolves to whether the server answered. */
  ask() {
    this.#asking ??= this.#ask().finally(() => (this.#asking = undefined));
    return this.#asking;
  }

  async #ask() {
    const startMs = Date.now();
    try {
      await Promise.all([this.#read("naive"), this.#read("semel")]);
      this.isDown = false;
      this.asOfMs = startMs;
    } catch {
      this.isDown = true;
    }
    return !this.isDown;
  }

  async #read(lane) {
    for (;;) {
      const response = await fetch(`/lab/accounts/${this.#account}/${lane}?after=${this.#last[lane]}`, { signal: AbortSignal.timeout(ASK_TIMEOUT_MS) });
      if (!response.ok) throw new Error(`the log answers ${response.status}`);
      const { attempts, last, ...account } = await response.json();
      for (const { attempt, status } of attempts) this.logged.set(attempt, status);
      this.accounts[lane] = account;
      this.#last[lane] = last;
      if (attempts.length < PAGE_ROWS) return;
    }
  }

  /** Whether this server can be killed from the page: one that `npm start` watches over. */
  async canBeKilled() {
    try {
      return (await (await fetch("/lab/server")).json()).canKill === true;
    } catch {
      return false;
    }
  }

  async kill() {
    const response = await fetch("/lab/server/kill", { method: "POST" });
    if (!response.ok) throw new Error(`the server answers ${response.status}`);
  }
}
