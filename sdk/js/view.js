// What an application can show: events, and a snapshot of how many changes are waiting.
//
// Invariants:
// - A snapshot is immutable; a change makes a new one.
// - Subscribers are never called from within a call of the module, and only once for all changes of a turn.

export class View extends EventTarget {
  #snapshot = Object.freeze({ pending: 0, paused: 0, online: true });
  #listeners = new Set();
  #isDue;

  /** Calls `listener` with the snapshot, now and after each change. Returns a function that ends this. */
  subscribe = (listener) => {
    const own = () => listener(this.#snapshot);
    this.#listeners.add(own);
    own();
    return () => this.#listeners.delete(own);
  };

  getSnapshot = () => this.#snapshot;

  /** For the outbox: sets some members of the snapshot. */
  static show(view, changed) {
    if (Object.entries(changed).every(([name, value]) => view.#snapshot[name] === value)) return;
    view.#snapshot = Object.freeze({ ...view.#snapshot, ...changed });
    if (view.#isDue || !view.#listeners.size) return;
    view.#isDue = true;
    queueMicrotask(() => {
      view.#isDue = false;
      // In a microtask each, so that one that throws does not keep the others from being called.
      for (const listener of view.#listeners) queueMicrotask(() => view.#listeners.has(listener) && listener());
    });
  }
}
