// The script of a process that uses the package: it imports the package, makes a round trip, and prints the result. The process ends by itself.

import { fileURLToPath } from "node:url";
import { importedQuietly } from "./quietly.js";
import { roundTrip } from "./round-trip.js";

/** Its arguments are the entry, the server and the account. */
export async function run(importEntry) {
  const [entry, url, account] = process.argv.slice(2);
  const module = fileURLToPath(new URL("node_modules/semel/semel.wasm", import.meta.url));
  const { exports, touched } = await importedQuietly(() => importEntry(entry), module);
  const result = await roundTrip(exports, { url, account, durability: "memory" });
  console.log(JSON.stringify({ exports: Object.keys(exports).sort(), touched, ...result }));
}
