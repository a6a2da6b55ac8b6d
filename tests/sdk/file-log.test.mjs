// Tests damaged logs of the file store: cut off at any byte, with any byte changed, half written, or of another version.

import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { HEADER_BYTES, makeFrame, makeHeader, readFrames, readHeader } from "../../sdk/npm/file/frames.js";
import { COMPACTED_BYTES_MIN } from "../../sdk/npm/file/log.js";
import { folderOf, logIn, look, put, storeIn, textsIn } from "./file-support.mjs";
import { rejection } from "./stub.mjs";

const damaged = { name: "StoreError", code: "store-damaged" };

/** A log of a few commits: its bytes, and after each commit its length and the stored rows. */
async function smallLog(t) {
  const folder = folderOf(t);
  const store = storeIn(t, folder);
  const states = [];
  const note = async () => states.push({ bytes: statSync(logIn(folder)).size, rows: await textsIn(store) });
  await store.load();
  await note();
  for (const change of [() => put(store, "a", "one"), () => put(store, "b", "two"), () => put(store, "a", "three"), () => store.remove(["b"], () => true), () => put(store, "c", "four")]) {
    await change();
    await note();
  }
  await store.close();
  return { folder, name: logIn(folder).slice(folder.length + 1), bytes: readFileSync(logIn(folder)), states };
}

/** A folder that contains only this log. */
function folderWith(folder, name, bytes) {
  const made = join(folder, `copy-${readdirSync(folder).length}`);
  mkdirSync(made);
  writeFileSync(join(made, name), bytes);
  return made;
}

test("a log that is cut off at any byte after its header opens with all whole commits, and can be appended to", { timeout: 120_000 }, async (t) => {
  const { folder, name, bytes, states } = await smallLog(t);
  assert.equal(states[0].bytes, HEADER_BYTES);
  for (let cut = HEADER_BYTES; cut <= bytes.length; cut += 1) {
    const copy = folderWith(folder, name, bytes.subarray(0, cut));
    const { bytes: whole, rows } = states.findLast((state) => state.bytes <= cut);
    const store = storeIn(t, copy);
    assert.deepEqual(await textsIn(store), rows, `cut at ${cut}`);
    assert.equal(statSync(logIn(copy)).size, whole);
    await put(store, "z", "more");
    await store.close();
    assert.deepEqual(await look(copy), { ...rows, z: "more" }, `after ${cut}`);
  }
});

test("a log that is cut off within its header or its first rows is store-damaged, not empty", async (t) => {
  const { folder, name, bytes } = await smallLog(t);
  for (let cut = 0; cut < HEADER_BYTES; cut += 1) await assert.rejects(look(folderWith(folder, name, bytes.subarray(0, cut))), damaged, String(cut));
  // The rows that a new generation begins with are durable before the log gets its name, so a log without them is damaged.
  const rows = Array.from({ length: 30 }, (_, index) => [`row-${index}`, Buffer.alloc(50)]);
  const { seed } = makeHeader(0, Buffer.alloc(12));
  const length = HEADER_BYTES + makeFrame(rows, seed, HEADER_BYTES).length;
  const header = makeHeader(length, Buffer.alloc(12));
  const log = Buffer.concat([header.bytes, makeFrame(rows, header.seed, HEADER_BYTES)]);
  assert.equal(Object.keys(await look(folderWith(folder, name, log))).length, 30);
  for (const cut of [HEADER_BYTES, HEADER_BYTES + 1, length - 1]) await assert.rejects(look(folderWith(folder, name, log.subarray(0, cut))), damaged);
});

test("a byte that is changed anywhere, even in the last record, is damage and not a shorter log", async (t) => {
  const { folder, name, bytes } = await smallLog(t);
  const read = (log) => readFrames(log.subarray(HEADER_BYTES), readHeader(log, "log").seed, HEADER_BYTES, "log");
  assert.equal(read(bytes).end, bytes.length);
  for (let at = 0; at < bytes.length; at += 1) {
    for (const bit of [1, 2, 4, 8, 16, 32, 64, 128, 255]) {
      const changed = Buffer.from(bytes);
      changed[at] ^= bit;
      assert.throws(() => read(changed), ({ name: kind, code }) => kind === "StoreError" && (code === "store-damaged" || (code === "store-newer" && at >= 8 && at < 12)), `byte ${at}, bit ${bit}`);
    }
  }
  for (const at of [HEADER_BYTES, HEADER_BYTES + 30, bytes.length - 1]) {
    const changed = Buffer.from(bytes);
    changed[at] ^= 1;
    const copy = folderWith(folder, name, changed);
    const store = storeIn(t, copy);
    for (let time = 0; time < 2; time += 1) {
      const error = await rejection(put(store, "a", "1"));
      assert.deepEqual([error.code, /^store-damaged: semel\.1\.log is damaged at byte \d+$/.test(error.message)], ["store-damaged", true], error.message);
    }
    assert.deepEqual(readFileSync(join(copy, name)), changed, "what is damaged is left as it is");
  }
});

test("zeros at the end of a log are cut off, and a hole in the middle is store-damaged", async (t) => {
  const { folder, name, bytes, states } = await smallLog(t);
  const [before, last] = [states.at(-2), states.at(-1)];
  const zeros = Buffer.alloc(4096);
  assert.deepEqual(await look(folderWith(folder, name, Buffer.concat([bytes, zeros]))), last.rows);
  for (let from = before.bytes; from < last.bytes; from += 1) {
    assert.deepEqual(await look(folderWith(folder, name, Buffer.concat([bytes.subarray(0, from), zeros]))), from === last.bytes ? last.rows : before.rows);
  }
  // The first sector of the last record was not written, but a later one was.
  const seed = readHeader(bytes, name).seed;
  const long = makeFrame([["long", Buffer.alloc(5000, 1)]], seed, bytes.length);
  const torn = Buffer.concat([bytes, long]).fill(0, bytes.length, 1024);
  assert.deepEqual(await look(folderWith(folder, name, torn)), last.rows);
  const followed = Buffer.concat([torn, makeFrame([["more", Buffer.from("1")]], seed, torn.length)]);
  await assert.rejects(look(folderWith(folder, name, followed)), damaged);
});

test("a log with frames of another log or of another place is store-damaged", async (t) => {
  const { folder, name, bytes, states } = await smallLog(t);
  const [first, second] = states.slice(1, 3).map(({ bytes: end }, index) => bytes.subarray(states[index].bytes, end));
  const other = await smallLog(t);
  const header = bytes.subarray(0, HEADER_BYTES);
  for (const parts of [[header, second, first], [header, first, first], [header, second], [other.bytes.subarray(0, HEADER_BYTES), first]]) {
    await assert.rejects(look(folderWith(folder, name, Buffer.concat(parts))), damaged);
  }
});

test("a log of a newer version is refused, and left as it is", async (t) => {
  const { folder, name, bytes } = await smallLog(t);
  const newer = Buffer.from(bytes);
  newer.writeUInt32LE(2, 8);
  const copy = folderWith(folder, name, newer);
  const error = await rejection(storeIn(t, copy).load());
  assert.deepEqual([error.code, error.message], ["store-newer", "store-newer: semel.1.log is of version 2, and this is made for 1: a newer semel wrote it"]);
  assert.deepEqual(readFileSync(join(copy, name)), newer);
});

test("a log that is truncated or removed under an open store is store-damaged", async (t) => {
  const folder = folderOf(t);
  const store = storeIn(t, folder);
  await put(store, "a", "1");
  truncateSync(logIn(folder), HEADER_BYTES);
  assert.equal((await rejection(store.load())).code, "store-damaged");
  const other = folderOf(t);
  const one = storeIn(t, other);
  await put(one, "a", "1");
  copyFileSync(logIn(other), join(other, "kept"));
  rmSync(logIn(other));
  for (let time = 0; time < 2; time += 1) assert.equal((await rejection(one.load())).code, "store-damaged");
  copyFileSync(join(other, "kept"), join(other, "semel.1.log"));
  assert.deepEqual(await textsIn(one), { a: "1" });
});

test("an unfinished new log is removed, and of two logs the newer one counts", async (t) => {
  const { folder, name, bytes, states } = await smallLog(t);
  const copy = folderWith(folder, name, bytes);
  writeFileSync(join(copy, "semel.2.tmp"), "half");
  assert.deepEqual(await look(copy), states.at(-1).rows);
  assert.deepEqual(readdirSync(copy).sort(), ["lock.0", "semel.1.log"]);
  const { bytes: header, seed } = makeHeader(HEADER_BYTES);
  writeFileSync(join(copy, "semel.10.log"), Buffer.concat([header, makeFrame([["new", Buffer.from("1")]], seed, HEADER_BYTES)]));
  assert.deepEqual(await look(copy), { new: "1" });
  assert.deepEqual(readdirSync(copy).sort(), ["lock.0", "semel.10.log"]);
});

test("a long log of mostly dead rows is written anew, and other stores read the new log", async (t) => {
  const folder = folderOf(t);
  const [one, other] = [storeIn(t, folder), storeIn(t, folder)];
  await put(one, "kept", "for good");
  await other.load();
  for (let n = 0; n < 40; n += 1) await put(one, "big", `${n}`.repeat(50_000));
  assert.ok(Number(/semel\.(\d+)\.log$/.exec(logIn(folder))[1]) > 1);
  assert.ok(statSync(logIn(folder)).size < COMPACTED_BYTES_MIN + 100_000);
  assert.deepEqual(await textsIn(other), { kept: "for good", big: "39".repeat(50_000) });
  // Rows that are still stored are not written anew each time, however long the log is.
  for (let n = 0; n < 30; n += 1) await put(one, `live-${n}`, "x".repeat(100_000));
  const log = logIn(folder);
  await put(one, "more", "1");
  assert.equal(logIn(folder), log);
});
