// The client of the run that is a Node process: it is told what to do over the channel of `fork`, and ends with it.
//
// Arguments: the file of its journal; `forgets` where the store is to lose at each start all that it had: no client could
// be right then, and the oracle must see it.

import { rmSync } from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";
import { Semel } from "../../sdk/npm/node.js";
import { Client } from "./page/client.js";
import { Journal } from "./journal.mjs";

const COLLECTIONS = 3;

const [path, forgets] = process.argv.slice(2);
if (forgets) rmSync(path, { force: true });

const send = (message) => new Promise((resolve, reject) => process.send(message, (error) => (error ? reject(error) : resolve())));
const client = new Client((n, answer) => send({ told: { n, ...answer } }));

const calls = {
  open: (options) => client.open(Semel, { ...options, store: new Journal(path) }),
  /** What is in use once all garbage is gone. */
  async usedBytes() {
    // What is freed by a callback of one collection is gone after the next.
    for (let time = 0; time < COLLECTIONS; time += 1) {
      globalThis.gc();
      await nextTurn();
    }
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  },
};

process.on("disconnect", () => process.exit());
process.on("message", async ({ number, name, args }) => {
  try {
    const call = calls[name] ?? client[name].bind(client);
    await send({ number, result: await call(...args) });
  } catch (error) {
    await send({ number, error: String(error) });
  }
});
