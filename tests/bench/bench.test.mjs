// Tests the benchmark itself: it measures every row of its table, and the document has what was measured. These tests judge no speeds.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { collected } from "./collections.mjs";
import { deposit } from "./load.mjs";
import { paced } from "./paced.mjs";
import { PLOTS, measuredOf, plotOf } from "./report.mjs";
import { ROWS, judged, markdownOf } from "./table.mjs";

const run = promisify(execFile);
const LITTLE = ["--rounds", "1", "--seconds", "0.05", "--sdk-requests", "100", "--records", "10000"];
const LIMIT = { timeout: 300_000 };

const bench = (...args) => run(process.execPath, ["scripts/bench.mjs", ...args], { cwd: ROOT, timeout: LIMIT.timeout });
const read = (name) => readFile(join(ROOT, name), "utf8");
const ids = (rows) => rows.map(({ id }) => id);

test("a short run of the whole benchmark reports every row, every curve and the handlers as JSON", LIMIT, async () => {
  const { stdout } = await bench("--json", ...LITTLE);
  const { rows, curves, handlers, bound, inMemory, disk } = JSON.parse(stdout);
  assert.deepEqual(ids(rows), ids(ROWS));
  for (const { id, value, result } of rows) assert.ok(Number.isFinite(value) && ["goal", "met", "missed"].includes(result), `${id}: ${value}, ${result}`);
  assert.deepEqual(Object.keys(curves).sort(), Object.keys(PLOTS).sort());
  for (const [name, curve] of Object.entries(curves)) assert.ok(curve.length >= 2 && curve.every(({ at, semel }) => at > 0 && semel > 0), name);
  assert.deepEqual(handlers.map(({ connections }) => connections), [1, 16, 64]);
  for (const found of [...handlers, ...bound]) for (const value of Object.values(found)) assert.ok(typeof value === "string" || value > 0, JSON.stringify(found));
  assert.equal(bound.length, 3);
  if (existsSync("/dev/shm")) assert.deepEqual(ids(inMemory), ["connections-1", "connections-16", "cpu", "connections-64", "keys-64"]);
  assert.ok(disk.fileSystem !== "" && disk.durableMs > 0);
});

test("a profile reports each side and load, the garbage collections, and the calls of a page", LIMIT, async () => {
  const { stdout } = await bench("--profile", "--seconds", "0.05");
  for (const name of ["floor", "bound", "Semel"]) {
    for (const work of ["1 connection", "64 connections on 64 keys", "16 connections"]) assert.match(stdout, new RegExp(`^${name}, ${work}: [1-9]\\d* µs a request`, "m"));
  }
  for (const name of ["floor", "Semel"]) {
    assert.match(stdout, new RegExp(`^${name}, [1-9]\\d* requests a second:\\n  \\d+ full of [\\d.]+ ms, of which V8's own work is [\\d.]+: [\\d.]+ µs a request\\n  \\d+ young of`, "m"));
  }
  assert.match(stdout, /^ +[\d.]+ µs {2}the module, in Rust$/m);
  for (const what of ["a write of the store, and then fetch", "semel.fetch"]) assert.match(stdout, new RegExp(`^in Chromium, ${what}: [\\d.]+ ms a call`, "m"));
  for (const part of ["the store, in JavaScript", "the SDK, in JavaScript", "the SDK, in Rust"]) assert.match(stdout, new RegExp(`^ +[\\d.]+ µs  ${part}$`, "m"));
});

test("V8's log of garbage collections is added up by kind, without the lines that can't be read", () => {
  const line = (told) => `[1:0x1]     12 ms: GC: ${JSON.stringify(told)}\n`;
  const full = { pause: 100, gc: "mc", mark: 4, "mark.roots": 3, clear: 2, nodes_died_in_new: 9 };
  const young = { pause: 10, gc: "s", scavenge: 9, nodes_died_in_new: 3 };
  const log = `${line(full)}a line of the log\n${line(young)}${line({ ...full, pause: 50 })}${line(full).replace(":4", ":a line of the log\n4")}${line({ ...young, pause: 20 })}`;
  assert.deepEqual(collected(log, 1_000), [
    "  2 full of 75.0 ms, of which V8's own work is 6.0: 150.0 µs a request",
    "  2 young of 15.0 ms, in which 3.0 of the runtime's objects are let go: 30.0 µs a request",
  ]);
  assert.match(collected("", 1)[0], /^ {2}0 full of 0\.0 ms/);
});

test("an open load goes on over new connections after the server has closed idle ones", LIMIT, async (t) => {
  const [rate, forMs] = [20, 5_500];
  const startedMs = performance.now();
  const sockets = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.setTimeout(4_000, () => socket.destroy());
    socket.on("error", () => {});
    socket.on("data", () => {
      // So few requests need only one connection, until the server holds some up. Then connections are needed that have been idle.
      const isHeldUp = performance.now() - startedMs > forMs - 500;
      setTimeout(() => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), isHeldUp ? 200 : 0);
    });
  });
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const took = await paced(`http://127.0.0.1:${server.address().port}`, { rate, forMs, next: deposit("/accounts/idle/deposit") });
  assert.equal(took.length, Math.floor((forMs * rate) / 1000) + 1);
});

test("wrong arguments are refused with the usage and exit code 2", async () => {
  for (const args of [["--fast"], ["--only", "everything"], ["--rounds", "0"], ["--rounds", "1.5"], ["--seconds", "soon"], ["more"]]) {
    const { code, stderr } = await bench(...args).catch((error) => error);
    assert.ok(code === 2 && stderr.includes("npm run bench -- "), `${args}: ${code} ${stderr}`);
  }
});

test("a figure is judged at the precision of its bounds, and by which direction is better", () => {
  const results = (id, ...values) => values.map((value) => judged(id, { value }).result);
  assert.deepEqual(results("connections-16", 1.194, 1.196, 1.59, 1.6), ["missed", "met", "met", "goal"]);
  assert.deepEqual(results("cpu", 1.21, 1.2, 0.9), ["missed", "met", "goal"]);
  assert.deepEqual(results("rows-plain", 3.04, 3.06, 2.09), ["met", "missed", "goal"]);
});

test("docs/performance.md has the recorded figures of every row, plots for light and dark, and a reason for each miss", async () => {
  const record = JSON.parse(await read("docs/performance.json"));
  const document = await read("docs/performance.md");
  assert.deepEqual(ids(record.rows), ids(ROWS));
  const [, part] = /<!-- measured -->\n([\s\S]*)\n<!-- \/measured -->/.exec(document);
  assert.equal(part, measuredOf(record));
  for (const line of markdownOf(record.rows)) assert.ok(part.includes(line), line);
  for (const name of Object.keys(PLOTS)) {
    assert.ok(part.includes(`images/performance-${name}.svg`), name);
    const svg = await read(plotOf(name));
    assert.ok(svg.startsWith("<svg ") && svg.includes("prefers-color-scheme:dark") && svg.includes("<path "), name);
  }
  // The document explains each row that misses its target.
  const explained = document.split("## What is missed, and why")[1].split("\n## ")[0];
  for (const { id, work, result } of record.rows) if (result === "missed") assert.ok(explained.includes(work), `${id} is missed and not explained`);
});
