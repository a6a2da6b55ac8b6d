// Adds sessions to what an outbox shows: their requests are in its counts and in `pending`, and `resume` resumes them too.
//
// Invariant: the outbox does not know of this. Applications without sessions don't load it.

/** The open sessions, by the setup of their outbox. */
const opened = new WeakMap();

/** The open sessions of `outbox`. */
export function sessionsOf(outbox, setup, closing) {
  if (!opened.has(setup)) opened.set(setup, new Together(outbox, setup, closing));
  return opened.get(setup);
}

class Together {
  /** `[pending, paused]` of the outbox, which is the first, and of each session. */
  #counts = new Map();
  #sessions = new Set();
  #outbox;
  #show;

  /** `closing` aborts when the outbox is closed. It gets one listener, however many sessions there are. */
  constructor(outbox, { host }, closing) {
    const { pending, paused } = outbox.getSnapshot();
    const own = { pending: outbox.pending, resume: outbox.resume };
    this.#counts.set(outbox, [pending, paused]);
    this.#outbox = outbox;
    this.#show = host.count;
    host.count = (...counts) => this.count(outbox, counts);
    // Without the outbox, which is the first.
    const sessions = () => [...this.#counts.keys()].slice(1);
    // A session that is closed meanwhile is left out.
    const pendingOf = (each) => each.pending().catch((error) => (this.#counts.has(each) ? Promise.reject(error) : []));
    outbox.pending = async () => (await Promise.all([own.pending.call(outbox), ...sessions().map(pendingOf)])).flat();
    outbox.resume = () => {
      own.resume.call(outbox);
      for (const each of sessions()) each.resume();
    };
    closing.addEventListener("abort", () => this.#sessions.forEach((each) => each.close()));
  }

  /** Adds a session. It will be closed with the outbox. */
  join(one) {
    this.#sessions.add(one);
  }

  /** Sets the counts of a session or of the outbox. */
  count(one, counts) {
    const [pending, paused] = this.#counts.get(one) ?? [];
    if (pending === counts[0] && paused === counts[1]) return;
    this.#counts.set(one, counts);
    this.#sum();
  }

  /** Dispatches an event about an attempt of a session. */
  tell(type, detail) {
    this.#outbox.dispatchEvent(new CustomEvent(type, { detail }));
  }

  /** Removes a session that was closed. */
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
