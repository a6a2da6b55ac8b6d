// What an application shows: events, and a snapshot of how many changes wait.
//
// Invariants:
// - A snapshot never changes; what has changed is another one.
// - Who has subscribed is called from no call of the module, and once for all that changed in one go.

export class View extends EventTarget {
  #snapshot = Object.freeze({ pending: 0, paused: 0, online: true });
  #listeners = new Set();
  #isDue;

  /** Calls `listener` with the snapshot, now and whenever it has changed. Returns what ends that. */
  subscribe = (listener) => {
    const own = () => listener(this.#snapshot);
    this.#listeners.add(own);
    own();
    return () => this.#listeners.delete(own);
  };

  getSnapshot = () => this.#snapshot;

  /** For the outbox: some of it is as follows now. */
  static show(view, changed) {
    if (Object.entries(changed).every(([name, value]) => view.#snapshot[name] === value)) return;
    view.#snapshot = Object.freeze({ ...view.#snapshot, ...changed });
    if (view.#isDue || !view.#listeners.size) return;
    view.#isDue = true;
    queueMicrotask(() => {
      view.#isDue = false;
      // Each by itself: one that throws keeps nobody else from being told.
      for (const listener of view.#listeners) queueMicrotask(() => view.#listeners.has(listener) && listener());
    });
  }
}
