// Runs a whole comparison: every library in turn. Makes the record of it.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { COMPARE } from "../../../scripts/setup/packages.mjs";
import { ROOT } from "../../../scripts/setup/paths.mjs";
import { browse } from "../../e2e/browser.mjs";
import { serve } from "../../e2e/server.mjs";
import { plainBackend, replicacheBackend, semelBackend } from "./backends.mjs";
import { bytesOf, filesOf, siteOf } from "./bundle.mjs";
import { faultsOfRun } from "./control.mjs";
import { LIBRARIES } from "./libraries.mjs";
import { DOUBLE_CLICKED, ORDERS, scripted } from "./orders.mjs";
import { runLibrary } from "./run.mjs";
import { tallyOf } from "./tally.mjs";

/** Resolves to `{ record, wrong }`. `wrong`: sentences that say why the record is worthless. `each`: runs the work for one library, and reports it. */
export async function compare({ chromium, each }) {
  const cleanUps = [];
  const after = (cleanUp) => cleanUps.unshift(cleanUp);
  try {
    const browser = await browse(after);
    const server = await serve(after, "ledger");
    const orders = [...Object.values(ORDERS).flat(), ...DOUBLE_CLICKED];
    const backends = { plain: plainBackend, replicache: replicacheBackend, semel: () => semelBackend(server, orders) };
    const [rows, runs] = [[], []];
    for (const library of LIBRARIES) {
      await each(library.id, async () => {
        const files = await filesOf(library);
        const row = { id: library.id, name: library.name, versions: await versionsOf(library), bytes: bytesOf(files) };
        rows.push(row);
        if (!library.backend) return `${row.bytes} bytes, not run`;
        const run = await runLibrary({ browser, library, files: await siteOf(files), backend: backends[library.backend]() });
        row.tally = tallyOf(run);
        runs.push({ library, tally: row.tally, ...run });
        return `${row.bytes} bytes, ${row.tally.repeated} repeated, ${row.tally.lost} lost`;
      });
    }
    const date = new Date().toISOString().slice(0, 10);
    return { record: { date, chromium, orders: orders.length - DOUBLE_CLICKED.length, faults: scripted(), rows }, wrong: faultsOfRun(runs) };
  } finally {
    for (const cleanUp of cleanUps) await cleanUp();
  }
}

async function versionsOf({ id, packages }) {
  const read = async (folder) => JSON.parse(await readFile(join(folder, "package.json"), "utf8")).version;
  if (id === "semel") return { semel: await read(join(ROOT, "sdk/npm")) };
  return Object.fromEntries(await Promise.all(packages.map(async (name) => [name, await read(join(COMPARE, "node_modules", name))])));
}
