// A process that uses a file store until it is killed: `node file-child.mjs WHAT FOLDER …`.

import { rmSync, writeSync } from "node:fs";
import * as fs from "node:fs/promises";
import { fileStore } from "../../sdk/npm/file.js";
import { FileStore } from "../../sdk/npm/file/store.js";
import { Semel } from "../../sdk/npm/node.js";

const [what, folder, ...args] = process.argv.slice(2);
const store = fileStore(folder);
// Written synchronously, so that everything printed before a SIGKILL arrives.
const say = (line) => writeSync(1, `${line}\n`);

const does = {
  /** Writes rows as fast as it can, in four lanes, with numbers from `first` on. Prints each that is stored. */
  async write(first, rowBytes) {
    await Promise.all([0, 1, 2, 3].map(async (lane) => {
      for (let n = Number(first); ; n += 1) {
        await store.change(`lane-${lane}`, () => Buffer.from(`${n}:`.repeat(Math.ceil(Number(rowBytes) / `${n}:`.length))));
        say(`${lane} ${n}`);
      }
    }));
  },

  /** Counts up `times` in one row, in two lanes together, under its own name and in a total. Prints each count that is stored. */
  async count(name, times) {
    let left = Number(times);
    const increment = (row) => {
      const counts = row === undefined ? { total: 0 } : JSON.parse(Buffer.from(row));
      return Buffer.from(JSON.stringify({ ...counts, total: counts.total + 1, [name]: (counts[name] ?? 0) + 1 }));
    };
    await Promise.all([0, 1].map(async () => {
      while (left > 0) {
        left -= 1;
        await store.change("counter", increment);
        say(name);
      }
    }));
    await store.close();
  },

  /** Gets a signal while it holds the lock. */
  async signal(name) {
    await store.change("held", () => {
      say("holds");
      process.kill(process.pid, name);
      return Buffer.from("by the child");
    });
    say("stored");
    await store.close();
  },

  /** Loses its folder while it stores, and prints the error that it gets. It closes nothing. */
  async lose() {
    await store.change("a", () => {
      rmSync(folder, { recursive: true });
      return Buffer.from("1");
    }).catch(({ code, cause }) => say(`${code} ${cause.code}`));
  },

  /** Announces an owner, prints that, and stays alive until it is killed. */
  async presence(owner) {
    await store.presence(owner).alive();
    say("lives");
    setInterval(() => {}, 1_000);
  },

  /** Begins to open the folder, and stays where its name there is written but is not there yet. Prints that. */
  begin() {
    const rename = () => {
      say("begins");
      return new Promise(() => setInterval(() => {}, 1_000));
    };
    new FileStore(folder, { busyMs: 10_000, fs: { ...fs, rename } }).load();
  },

  /** Makes deposits, all at once, and prints each that is answered. It closes nothing. */
  async deposit(url, ...accounts) {
    const semel = await Semel.open({ url, store, headers: { "x-process": "child" } });
    await Promise.all(accounts.map(async (account) => {
      const { status } = await semel.fetch(`/accounts/${account}/deposit`, { method: "POST", body: '{"amount":5}' });
      say(`${account} ${status}`);
    }));
  },
};

await does[what](...args);
