// Tests the conformance suite for stores: correct stores pass it, and for each kind of mistake the check that is meant for it fails.

import assert from "node:assert/strict";
import { test } from "node:test";
import { memoryStore } from "../../sdk/js/stores.js";
import { conformance } from "../../sdk/npm/conformance.js";
import { Memory, Present, turn } from "./conforming.mjs";

function checksOf(kind, options) {
  const storages = new Map();
  return conformance((name) => new kind(storages, name), options);
}

/** The names and messages of the checks that fail. */
async function failures(kind, options) {
  const found = [];
  for (const { name, run } of checksOf(kind, options)) await run().catch(({ message }) => found.push([name, message]));
  return found;
}

test("a correct store in memory passes every check, with presence and without", async (t) => {
  for (const kind of [Memory, Present]) for (const { name, run } of checksOf(kind)) await t.test(`${kind.name}: ${name}`, run);
});

/** A store that copies each row on its way in and out, so no two holders share bytes. */
function copying(store) {
  const change = (id, to) =>
    store.change(id, (row) => {
      const made = to(row?.slice());
      return made && made.slice();
    });
  return { ...store, change };
}

test("the SDK's own store in memory passes the checks", async (t) => {
  for (const { name, run } of conformance(() => copying(memoryStore()), { reopens: false })) await t.test(name, run);
});

test("a store that answers synchronously and has no close passes the checks", async () => {
  class Plain extends Memory {
    close = undefined;
    load() {
      return [...this.rows].map(([id, row]) => [id, row.slice()]);
    }
    change(id, to) {
      const row = to(this.rows.get(id)?.slice());
      if (row === undefined) this.rows.delete(id);
      else if (row !== null) this.rows.set(id, row.slice());
    }
    remove(ids, isDone) {
      ids.forEach((id) => this.rows.has(id) && isDone(this.rows.get(id)) && this.rows.delete(id));
    }
  }
  assert.deepEqual(await failures(Plain, { reopens: false }), []);
});

test("conformance() throws for a wrong opener or option before any check", () => {
  const open = () => new Memory(new Map(), "unused");
  for (const nothing of [undefined, null, "open", new Memory(new Map(), "unused")]) assert.throws(() => conformance(nothing), /^TypeError: semel: `open` is a function/);
  for (const name of ["reopens", "shares"]) for (const value of ["no", 0, null]) assert.throws(() => conformance(open, { [name]: value }), new TypeError(`semel: \`${name}\` is true or false`));
  assert.throws(() => conformance(open, { reopen: false }), new TypeError("semel: the checks have no option reopen"));
});

test("with reopens or shares false, conformance() leaves out the checks of that", async () => {
  // Each opening gets a new storage.
  class Forgetful extends Memory {
    rows = new Map();
  }
  const names = (options) => checksOf(Forgetful, options).map(({ name }) => name);
  assert.deepEqual(await failures(Forgetful, { reopens: false }), []);
  assert.equal(names().length - names({ shares: false }).length, 6);
  assert.equal(names({ shares: false }).length - names({ reopens: false }).length, 2);
  assert.equal(new Set(names()).size, names().length);
});

const PRESENCE = "`presence` tells every opener which owners are alive, from their first change until they leave";

/** Mistakes: the name of the check that must find each, a part of its message, and the store that makes it. */
const WRONG = [
  ["a new storage is empty", "there are 1 rows, and 0", class extends Memory {
    constructor(storages, name) {
      super(storages, name);
      if (this.rows.size === 0) this.rows.set("made-up", Uint8Array.of(1));
    }
  }],
  ["bytes come back exactly", "has other bytes", class extends Memory {
    async change(id, to) {
      const asText = (row) => row && new TextEncoder().encode(new TextDecoder().decode(row));
      return super.change(id, (row) => asText(to(row)));
    }
  }],
  ["bytes come back exactly", "is missing", class extends Memory {
    async load() {
      return (await super.load()).filter(([, row]) => row.length > 0);
    }
  }],
  ["a row that is a part of a buffer is stored as that part alone", "has other bytes", class extends Memory {
    async change(id, to) {
      return super.change(id, (row) => {
        const next = to(row);
        return next && new Uint8Array(next.buffer);
      });
    }
  }],
  ["`to` gets the stored row, or undefined if there is none", "undefined for a row that is not there", class extends Memory {
    async change(id, to) {
      return super.change(id, (row) => to(row ?? null));
    }
  }],
  ["a `to` that returns undefined deletes the row", "after `to` returned undefined", class extends Memory {
    async change(id, to) {
      return super.change(id, (row) => to(row) ?? null);
    }
  }],
  ["a `to` that returns null leaves the row as it is", "after `to` returned null", class extends Memory {
    async change(id, to) {
      return super.change(id, (row) => to(row) ?? undefined);
    }
  }],
  ["`to` is called once, before the change settles", "was called 2 times", class extends Memory {
    async change(id, to) {
      to(this.rows.get(id)?.slice());
      return super.change(id, to);
    }
  }],
  ["`to` is called once, before the change settles", "was called 0 times", class extends Memory {
    async change(id, to) {
      this.check();
      turn().then(() => super.change(id, to)).catch(() => {});
    }
  }],
  ["a `to` that throws changes nothing and rejects", "must reject", class extends Memory {
    async change(id, to) {
      this.check();
      return super.change(id, to).catch(() => {});
    }
  }],
  ["a `to` that throws changes nothing and rejects", "after a `to` that threw", class extends Memory {
    async change(id, to) {
      const before = this.rows.get(id);
      this.check();
      this.rows.delete(id);
      return super.change(id, () => to(before?.slice()));
    }
  }],
  ["concurrent changes of one row are all made", "are not one transaction", class extends Memory {
    async change(id, to) {
      this.check();
      const before = this.rows.get(id)?.slice();
      await turn();
      return super.change(id, () => to(before));
    }
  }],
  ["changes of one row keep their order", "in the order in which they were called", class extends Memory {
    #n = 0;
    async change(id, to) {
      if ((this.#n += 1) % 3 === 0) await turn();
      return super.change(id, to);
    }
  }],
  ["concurrent changes of many rows do not mix", "has other bytes", class extends Memory {
    #row;
    async change(id, to) {
      this.check();
      this.#row = to(this.rows.get(id)?.slice());
      await undefined;
      return super.change(id, () => this.#row);
    }
  }],
  ["ids may have any characters", "has other bytes", class extends Memory {
    async change(id, to) {
      return super.change(id.normalize().trim(), to);
    }
  }],
  ["ids may have any characters", "is missing", class extends Memory {
    constructor(storages, name) {
      super(storages, name);
      this.rows = storages.has(`${name}.object`) ? storages.get(`${name}.object`) : objectAsMap();
      storages.set(`${name}.object`, this.rows);
    }
  }],
  ["`remove` deletes the rows of the given ids, and ignores ids without a row", "no such row", class extends Memory {
    async remove(ids, isDone) {
      for (const id of ids) if (!this.rows.has(id)) throw new Error("no such row");
      return super.remove(ids, isDone);
    }
  }],
  ["`remove` deletes the rows of the given ids, and ignores ids without a row", "after some rows were removed", class extends Memory {
    async remove(ids, isDone) {
      return super.remove(ids.slice(0, 1), isDone);
    }
  }],
  ["`remove` asks `isDone` once for each row, and leaves the rows that are not done", "after the row that is done was removed", class extends Memory {
    async remove(ids, isDone) {
      return super.remove(ids, (row) => isDone(row) || true);
    }
  }],
  ["`remove` asks `isDone` once for each row, and leaves the rows that are not done", "asked once for each row", class extends Memory {
    async remove(ids, isDone) {
      for (const id of ids) isDone(this.rows.get(id) ?? new Uint8Array([98]));
      return super.remove(ids, isDone);
    }
  }],
  ["`load` gives every change that had resolved before it was called", "whose change had resolved before", class extends Memory {
    #cached;
    async load() {
      return (this.#cached ??= await super.load());
    }
    async remove(ids, isDone) {
      this.#cached = await super.load();
      return super.remove(ids, isDone);
    }
  }],
  ["a row stays the same if the caller changes bytes that it gave or got", "that it gave and got", class extends Memory {
    async change(id, to) {
      this.check();
      const row = to(this.rows.get(id));
      if (row === undefined) this.rows.delete(id);
      else if (row !== null) this.rows.set(id, row);
      await turn();
    }
  }],
  ["after `close`, every call rejects, and `to` is not called", "must reject after `close`", class extends Memory {
    check() {}
  }],
  ["every change that has resolved is there after reopening", "after reopening", class extends Memory {
    constructor(storages, name) {
      super(storages, name);
      this.storage = this.rows;
      this.rows = new Map(this.storage);
    }
    async close() {
      // The store writes its rows only now, and loses the first.
      if (!this.isClosed) [...this.rows].slice(1).forEach(([id, row]) => this.storage.set(id, row));
      return super.close();
    }
  }],
  ["a change that is under way at `close` resolves and is stored, or rejects and is not", "while changes were under way", class extends Memory {
    async change(id, to) {
      this.check();
      // For ids that begin with `row-`, the store reports a change as done before it makes it.
      const closedSoon = turn().then(() => super.change(id, to));
      closedSoon.catch(() => {});
      if (!id.startsWith("row-")) await closedSoon;
    }
  }],
  ["two openers see each other's changes", "another opener", class extends Memory {
    constructor(storages, name) {
      super(storages, name);
      this.storage = this.rows;
      this.rows = new Map(this.storage);
    }
    async change(id, to) {
      await super.change(id, to);
      this.storage.set(id, this.rows.get(id));
    }
  }],
  ["concurrent changes of one row by two openers are all made", "not one transaction for all openers", class extends Memory {
    #line = Promise.resolve();
    change(id, to) {
      // Changes run one after the other within this opener, but not across openers.
      const changed = this.#line.then(async () => {
        this.check();
        const before = this.rows.get(id)?.slice();
        await undefined;
        return super.change(id, () => to(before));
      });
      this.#line = changed.catch(() => {});
      return changed;
    }
  }],
  ["concurrent changes of many rows by two openers are all made", "after two openers had put 200 rows at once", class extends Memory {
    // The changes of one row run one after the other. But each change writes all rows, like a store that keeps them in one file.
    async change(id, to) {
      this.check();
      const turns = (this.rows.turns ??= new Map());
      const changed = Promise.resolve(turns.get(id)).then(async () => {
        const all = new Map(this.rows);
        await undefined;
        const row = to(all.get(id)?.slice());
        if (row === undefined) all.delete(id);
        else if (row !== null) all.set(id, row.slice());
        this.rows.clear();
        for (const [each, its] of all) this.rows.set(each, its);
      });
      turns.set(id, changed.catch(() => {}));
      return changed;
    }
  }],
  ["no change of another opener comes between `isDone` and the removal of the row", "after a row was put anew while it was removed", class extends Memory {
    async remove(ids, isDone) {
      this.check();
      const done = [...ids].filter((id) => this.rows.has(id) && isDone(this.rows.get(id)));
      await turn();
      for (const id of done) this.rows.delete(id);
    }
  }],
  [PRESENCE, "every owner that has made a change", class extends Present {
    presence(owner) {
      return { ...super.presence(owner), alive: async () => [owner] };
    }
  }],
  [PRESENCE, "left 3000 ms ago", class extends Present {
    presence(owner) {
      return { ...super.presence(owner), leave() {} };
    }
  }],
  [PRESENCE, "after another one has left", class extends Present {
    presence(owner) {
      return { ...super.presence(owner), leave: () => this.owners.clear() };
    }
  }],
  ["closing a store leaves its other openers working", "after another opener was closed", class extends Memory {
    async close() {
      if (!this.isClosed) this.rows.clear();
      return super.close();
    }
  }],
];

/** A plain object in the role of a Map, a common mistake. */
function objectAsMap() {
  const object = {};
  return {
    get: (id) => (object[id] instanceof Uint8Array ? object[id] : undefined),
    set: (id, row) => void (object[id] = row),
    has: (id) => id in object,
    delete: (id) => delete object[id],
    [Symbol.iterator]: () => Object.entries(object)[Symbol.iterator](),
  };
}

for (const [name, sentence, kind] of WRONG) {
  test(`a wrong store fails the check: ${name}: ${sentence}`, async () => {
    const found = await failures(kind);
    const messages = found.filter(([failed]) => failed === name).map(([, message]) => message);
    assert.equal(messages.length, 1, JSON.stringify(found));
    assert.ok(messages[0].includes(sentence), messages[0]);
  });
}

test("every check has a wrong store that fails it", () => {
  const found = new Set(WRONG.map(([name]) => name));
  assert.deepEqual(checksOf(Memory).map(({ name }) => name).filter((name) => !found.has(name)), []);
});

test("a check of a store that never answers fails after 10 s, and does not hang", { timeout: 60_000 }, async (t) => {
  class Hanging extends Memory {
    load() {
      return new Promise(() => {});
    }
  }
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const [{ run }] = checksOf(Hanging);
  const ran = run();
  const failed = assert.rejects(ran, { message: "`load` did not settle within 10000 ms" });
  for (let n = 0; n < 20; n += 1) await new Promise((resolve) => setImmediate(resolve));
  t.mock.timers.tick(10_000);
  await failed;
});
