// The client of a run that is a page: with an outbox in IndexedDB, or contending for sessions. It tells the run by a request that it awaits.

import { Semel } from "semel";
import { Client } from "./client.js";
import { Tills } from "./tills.js";

const tell = async (n, answer) => {
  const response = await fetch("/tell", { method: "POST", body: JSON.stringify({ n, ...answer }) });
  if (response.status !== 204) throw new Error(`/tell: ${response.status}`);
};

/** Resolves to the rows of all sessions of this origin. */
async function rows() {
  const all = [];
  for (const { name } of await indexedDB.databases()) {
    if (!name.startsWith("semel sessions ")) continue;
    const database = await settled(indexedDB.open(name));
    if (database.objectStoreNames.contains("rows")) all.push(...(await settled(database.transaction("rows").objectStore("rows").getAll())));
    database.close();
  }
  return all;
}

function settled(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

window.chaos = {
  open(options) {
    chaos.calls = new Client(tell);
    return chaos.calls.open(Semel, options);
  },
  openTills(options, settings) {
    chaos.calls = new Tills(tell, rows);
    return chaos.calls.open(Semel, options, settings);
  },
};
