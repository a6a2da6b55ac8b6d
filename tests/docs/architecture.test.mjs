// `ARCHITECTURE.md` says of each file of the core but those of its smaller rooms, of the SDK's host and of the worker's what it is for, and of none that isn't there. It and
// `CONTRIBUTING.md` have each folder of tests.

import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";

const text = await readFile(join(ROOT, "ARCHITECTURE.md"), "utf8");
const section = (title) => text.split(`\n${title}\n`)[1].split(/\n##+ /)[0];
const namesIn = (part) => [...part.matchAll(/`([^`]+)`/g)].map(([, name]) => name);

/** The files and folders right in a folder, a folder with its slash. What only leads to the others is no part. */
async function partsOf(folder) {
  const entries = await readdir(join(ROOT, folder), { withFileTypes: true });
  return entries.map((entry) => (entry.isDirectory() ? `${entry.name}/` : entry.name)).filter((name) => !["lib.rs", "mod.rs", "tests/"].includes(name));
}

test("each part of the core is in its tables, once, and all that is in them is there", async () => {
  const [shared, server, client] = section("### The core, by file").split(/\| in `(?:server|client)\/` \|/);
  const isMeant = (name) => /\.rs$|\/$/.test(name);
  const first = (table) => table.split("\n").filter((line) => line.startsWith("| `")).flatMap((line) => namesIn(line.split("|")[1]).filter(isMeant));
  const parts = async (folder) => (await partsOf(folder)).filter(isMeant).sort();
  assert.deepEqual(first(server).sort(), await parts("core/src/server"));
  assert.deepEqual(first(client).sort(), await parts("core/src/client"));
  for (const [, room, what] of server.matchAll(/^\| `(\w+)\/` \| (.*) \|$/gm)) {
    const named = namesIn(what).filter(isMeant);
    if (named.length > 0) assert.deepEqual(named.sort(), await parts(`core/src/server/${room}`), room);
  }
  const own = namesIn(shared).filter((name) => name.endsWith(".rs"));
  assert.deepEqual([...own, "client/", "server/"].sort(), await parts("core/src"));
});

test("each file of the SDK's host, and of the worker's, is named", async () => {
  const host = section("## The way of a request through the client").split("\n").filter((line) => line.startsWith("| `")).join("\n");
  const worker = text.split("\n").find((line) => line.startsWith("| `worker/` |"));
  for (const [folder, part] of [["sdk/js", host], ["worker", worker]]) {
    const files = (await partsOf(folder)).filter((name) => name.endsWith(".js") && name !== "index.js");
    const named = namesIn(part);
    assert.deepEqual(files.filter((name) => !named.includes(name)), [], folder);
  }
});

for (const document of ["ARCHITECTURE.md", "CONTRIBUTING.md"]) {
  test(`each folder of tests is named in ${document}`, async () => {
    const content = await readFile(join(ROOT, document), "utf8");
    const folders = (await partsOf("tests")).filter((name) => name.endsWith("/"));
    assert.deepEqual(folders.filter((name) => !content.includes(`\`tests/${name}\``)), []);
  });
}
