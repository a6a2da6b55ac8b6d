// The client of a run that is a Node process. It is told what to do over the channel of `fork`, and ends with it.
//
// Arguments: the file of its journal; `tills` if it makes sessions; `forgets` if its store is to lose everything at each start. No client could be
// right
// then, and the oracle must notice.

import { rmSync } from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";
import { Semel } from "../../sdk/npm/node.js";
import { Client } from "./page/client.js";
import { Tills } from "./page/tills.js";
import { Journal } from "./journal.mjs";

const COLLECTIONS = 3;

const [path, ...words] = process.argv.slice(2);
if (words.includes("forgets")) rmSync(path, { force: true });

const send = (message) => new Promise((resolve, reject) => process.send(message, (error) => (error ? reject(error) : resolve())));
const tell = (n, answer) => send({ told: { n, ...answer } });
const journal = new Journal(path);
/** Sessions open and close stores, but the journal stays open. */
const store = () => ({ load: () => journal.load(), change: (...change) => journal.change(...change), remove: (ids) => journal.remove(ids) });
const rows = async () => (await journal.load()).map(([, row]) => row);
const client = words.includes("tills") ? new Tills(tell, rows) : new Client(tell);

const calls = {
  open(options, settings) {
    if (client instanceof Client) return client.open(Semel, { ...options, store: journal });
    // A Node without WebSocket uses HTTP.
    const transport = globalThis.WebSocket ? settings.transport : "http";
    return client.open(Semel, { ...options, durability: "memory" }, { ...settings, transport, store });
  },
  /** Resolves to the bytes in use once all garbage is collected. */
  async usedBytes() {
    // A later collection frees what callbacks of an earlier one have released.
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
