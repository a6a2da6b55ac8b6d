// Correct stores in memory, which the checks of stores must pass. Wrong ones override their methods.

export const turn = () => new Promise((resolve) => setTimeout(resolve, 0));

/** A correct store in memory. Storages have names, so a store can be reopened and shared. The mutants override its methods. */
export class Memory {
  static storages = new Map();
  isClosed = false;

  constructor(storages, name) {
    if (!storages.has(name)) storages.set(name, new Map());
    this.rows = storages.get(name);
  }

  check() {
    if (this.isClosed) throw new Error("closed");
  }

  async load() {
    this.check();
    return [...this.rows].map(([id, row]) => [id, row.slice()]);
  }

  async change(id, to) {
    this.check();
    const row = to(this.rows.get(id)?.slice());
    if (row === undefined) this.rows.delete(id);
    else if (row !== null) this.rows.set(id, row.slice());
    await turn();
  }

  async remove(ids, isDone) {
    this.check();
    for (const id of ids) if (this.rows.has(id) && isDone(this.rows.get(id))) this.rows.delete(id);
  }

  async close() {
    this.isClosed = true;
  }
}

/** A correct store in memory that tells which owners are alive. */
export class Present extends Memory {
  static owners = new WeakMap();

  get owners() {
    if (!Present.owners.has(this.rows)) Present.owners.set(this.rows, new Set());
    return Present.owners.get(this.rows);
  }

  presence(owner) {
    this.owners.add(owner);
    return { alive: async () => [...this.owners], leave: () => void this.owners.delete(owner) };
  }
}
