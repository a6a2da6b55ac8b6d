// The script of a process that uses the store on disk: it checks the store with the package's conformance suite, makes a round trip with it,
// and prints the result. The process ends by itself.

import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { importedQuietly } from "./quietly.js";
import { roundTrip } from "./round-trip.js";

/** Its arguments are the server, the account and a folder. */
export async function runStore(importEntry) {
  const [url, account, folder] = process.argv.slice(2);
  const module = fileURLToPath(new URL("node_modules/semel/semel.wasm", import.meta.url));
  const imported = await importedQuietly(() => Promise.all(["semel", "semel/file", "semel/conformance"].map(importEntry)), module);
  const [semel, { fileStore }, { conformance }] = imported.exports;
  const failures = [];
  const checks = conformance((name) => fileStore(join(folder, name)));
  for (const { name, run } of checks) await run().catch((error) => failures.push(`${name}: ${error.message}`));
  const store = fileStore(join(folder, "outbox"));
  const result = await roundTrip(semel, { url, account, store, sessionStore: fileStore(join(folder, "sessions")) });
  const refused = await store.load().catch((error) => error);
  const isStoreError = refused instanceof semel.StoreError && refused.code === "store-failed";
  console.log(JSON.stringify({ checks: checks.length, failures, isStoreError, touched: imported.touched, ...result }));
}
