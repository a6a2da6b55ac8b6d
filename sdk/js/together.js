// What an outbox shows once it has sessions: they count with its own requests, are pending with them, and go on with them after a pause.
//
// Invariant: the outbox knows of none of this. Who opens no session loads none of it.

/** The sessions that are open, by the setup of their outbox. */
const opened = new WeakMap();

/** Those of `outbox`. */
export function sessionsOf(outbox, setup, closing) {
  if (!opened.has(setup)) opened.set(setup, new Together(outbox, setup, closing));
  return opened.get(setup);
}

class Together {
  /** How many requests of each have no answer, and at how many of them it pauses; of the outbox too. */
  #counts = new Map();
  #sessions = new Set();
  #outbox;
  #show;

  /** `closing` aborts when the outbox is closed: it has one listener, however many sessions there are. */
  constructor(outbox, { host }, closing) {
    const { pending, paused } = outbox.getSnapshot();
    const own = { pending: outbox.pending, resume: outbox.resume };
    this.#counts.set(outbox, [pending, paused]);
    this.#outbox = outbox;
    this.#show = host.count;
    host.count = (...counts) => this.count(outbox, counts);
    // Its own came first.
    const sessions = () => [...this.#counts.keys()].slice(1);
    // One that is closed meanwhile is left out.
    const pendingOf = (each) => each.pending().catch((error) => (this.#counts.has(each) ? Promise.reject(error) : []));
    outbox.pending = async () => (await Promise.all([own.pending.call(outbox), ...sessions().map(pendingOf)])).flat();
    outbox.resume = () => {
      own.resume.call(outbox);
      for (const each of sessions()) each.resume();
    };
    closing.addEventListener("abort", () => this.#sessions.forEach((each) => each.close()));
  }

  /** `one` is closed with the outbox. */
  join(one) {
    this.#sessions.add(one);
  }

  /** Of `one` there are so many now. */
  count(one, counts) {
    const [pending, paused] = this.#counts.get(one) ?? [];
    if (pending === counts[0] && paused === counts[1]) return;
    this.#counts.set(one, counts);
    this.#sum();
  }

  /** What became of an attempt of one of them. */
  tell(type, detail) {
    this.#outbox.dispatchEvent(new CustomEvent(type, { detail }));
  }

  /** `one` is closed. */
  leave(one) {
    this.#sessions.delete(one);
    this.#counts.delete(one);
    this.#sum();
  }

  #sum() {
    const all = [...this.#counts.values()];
    this.#show(...[0, 1].map((which) => all.reduce((sum, counts) => sum + counts[which], 0)));
  }
}
