// Tests that `ARCHITECTURE.md` names each folder of tests, and each file of the core (except in its smallest rooms), of the SDK's host and of the
// Worker's edge, and no file that isn't there. A room is a part of the server: the table lists them so that none uses a later one.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";

const text = await readFile(join(ROOT, "ARCHITECTURE.md"), "utf8");
const section = (title) => text.split(`\n${title}\n`)[1].split(/\n##+ /)[0];
const namesIn = (part) => [...part.matchAll(/`([^`]+)`/g)].map(([, name]) => name);

/** The files and folders directly in a folder; a folder's name ends in a slash. Files that only lead to the others don't count. */
async function partsOf(folder) {
  const entries = await readdir(join(ROOT, folder), { withFileTypes: true });
  return entries.map((entry) => (entry.isDirectory() ? `${entry.name}/` : entry.name)).filter((name) => !["lib.rs", "mod.rs", "tests/"].includes(name));
}

test("ARCHITECTURE.md names each part of the core once in its tables, and no part that does not exist", async () => {
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

/** The paths below `crate::server` that a file of the server names, in the parts that are compiled into the product. */
function named(file, source) {
  const code = source.split(/^#\[cfg\(test\)\]$/m)[0].replaceAll(/\/\/.*$/gm, "").replaceAll(/\s+/g, " ");
  const here = file.replace(/(?:\/?mod)?\.rs$/, "").split("/").filter(Boolean);
  const leaves = (path) => {
    const [, before, within] = /^([^{]*)\{(.*)\}$/s.exec(path.trim()) ?? [];
    if (within === undefined) return [path.trim()];
    // Only commas of this level separate parts; commas of an inner level are within its braces.
    let depth = 0;
    const parts = [...within].map((each) => ((depth += { "{": 1, "}": -1 }[each] ?? 0), each === "," && depth === 0 ? "\n" : each)).join("").split("\n");
    return parts.filter((part) => part.trim() !== "").flatMap((part) => leaves(before + part.trim()));
  };
  const imported = [...code.matchAll(/\buse ([^;]+);/g)].flatMap(([, path]) => leaves(path));
  const inline = [...code.replaceAll(/\buse [^;]+;/g, "").matchAll(/\b(?:crate::server|super)(?:::\w+)+/g)].map(([path]) => path);
  return [...imported, ...inline].flatMap((path) => {
    const steps = path.replace(/ as .*/, "").split("::");
    if (steps[0] === "crate") return steps[1] === "server" ? [steps.slice(2)] : [];
    const up = steps.findIndex((step) => step !== "super");
    return up > 0 && up <= here.length ? [[...here.slice(0, here.length - up), ...steps.slice(up)]] : [];
  });
}

test("each room of the server uses only rooms that stand before it in the table", async () => {
  const root = join(ROOT, "core/src/server");
  const table = section("### The core, by file").split("| in `server/` |")[1].split("| in `client/` |")[0];
  const rows = table.split("\n").filter((line) => line.startsWith("| `"));
  const rooms = rows.map((line) => namesIn(line.split("|")[1]).map((name) => name.replace(/\/$|\.rs$/, "")));
  const place = (room) => rooms.findIndex((names) => names.includes(room));
  // The names that the server re-exports, without the room they come from.
  const shown = new Map(named("mod.rs", (await readFile(join(root, "mod.rs"), "utf8")).replaceAll(/pub use /g, "use crate::server::")).map((path) => [path.at(-1), path[0]]));
  const files = (await readdir(root, { recursive: true })).filter((file) => file.endsWith(".rs") && file !== "mod.rs" && !file.endsWith("tests.rs"));
  const wrong = [];
  let found = 0;
  for (const file of files) {
    const own = file.split("/")[0].replace(/\.rs$/, "");
    for (const [first, ...rest] of named(file, await readFile(join(root, file), "utf8"))) {
      const room = shown.get(first) ?? first;
      found += room === own ? 0 : 1;
      if (room !== own && (place(room) === -1 || place(room) >= place(own) && !rooms[place(own)].includes(room))) wrong.push(`${file}: ${[first, ...rest].join("::")}`);
    }
  }
  assert.deepEqual(wrong, []);
  assert.ok(found > 200, "what files name of other rooms is found");
});

test("ARCHITECTURE.md names each file of the SDK's host and of the Worker, and no other", async () => {
  for (const [folder, title] of [["sdk/js", "## The way of a request through the client"], ["worker", "### The Worker, by file"]]) {
    const rows = section(title).split("\n").filter((line) => line.startsWith("| `"));
    const files = (await partsOf(folder)).filter((name) => name.endsWith(".js") && name !== "index.js");
    assert.deepEqual(rows.flatMap((row) => namesIn(row.split("|")[1])).filter((name) => name.endsWith(".js")).sort(), files.sort(), folder);
  }
});

test("ARCHITECTURE.md names each folder of tests", async () => {
  const folders = (await partsOf("tests")).filter((name) => name.endsWith("/"));
  assert.deepEqual(folders.filter((name) => !section("### The tests").includes(`\`tests/${name}\``)), []);
});

test("each path that ARCHITECTURE.md names exists", () => {
  const paths = [...text.matchAll(/`((?:core|sdk|worker|www|tests|scripts|docs|examples)\/[\w./-]*)`/g)].map(([, path]) => path);
  assert.deepEqual(paths.filter((path) => !existsSync(join(ROOT, path))), []);
  assert.ok(paths.length > 50, String(paths.length));
});
