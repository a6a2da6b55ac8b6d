// Tests the file store as an application uses it: the contract of a store, its files, its limits.

import assert from "node:assert/strict";
import { chmodSync, readdirSync, statSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { conformance } from "../../sdk/npm/conformance.js";
import { fileStore } from "../../sdk/npm/file.js";
import { ROW_BYTES_MAX } from "../../sdk/npm/file/store.js";
import { StoreError } from "../../sdk/npm/node.js";
import { folderOf, look, put, storeIn, text, textsIn, told } from "./file-support.mjs";
import { rejection } from "./stub.mjs";

test("the file store passes every check of the conformance suite", async (t) => {
  const folder = folderOf(t);
  for (const { name, run } of conformance((storage) => fileStore(join(folder, storage)))) await t.test(name, run);
});

test("fileStore() throws for a wrong folder or option, and names it", (t) => {
  for (const folder of [undefined, null, 5, "", new URL("file:///tmp")]) assert.throws(() => fileStore(folder), /^TypeError: semel: `folder` is a path/);
  for (const options of [null, 5, "1000"]) assert.throws(() => fileStore("unused", options), /^TypeError: semel: the options of a store are an object/);
  for (const busyMs of [null, "5", -1, Number.NaN, 3_600_001]) assert.throws(() => fileStore("unused", { busyMs }), /^RangeError: semel: `busyMs` is/);
  assert.throws(() => fileStore("unused", { busyMS: 5 }), new TypeError("semel: a store has no option busyMS"));
  for (const options of [undefined, {}, { busyMs: undefined }, { busyMs: 0 }]) fileStore(join(folderOf(t), "unused"), options);
});

test("files and folders that the store makes are accessible to their user alone", async (t) => {
  const folder = join(folderOf(t), "made", "here");
  const before = process.umask(0);
  t.after(() => process.umask(before));
  const store = storeIn(t, folder);
  await put(store, "a", "private");
  store.presence("owner");
  await store.load();
  const modes = (paths) => paths.map((path) => (statSync(path).mode & 0o777).toString(8));
  assert.deepEqual(modes([join(folder, ".."), folder]), ["700", "700"]);
  const files = readdirSync(folder).filter((name) => !name.startsWith("socket."));
  assert.deepEqual(new Set(modes(files.map((name) => join(folder, name)))), new Set(["600"]));
  assert.ok(files.length >= 4, files.join());
  // A folder that was there before keeps its mode.
  const open = folderOf(t);
  chmodSync(open, 0o755);
  await storeIn(t, open).load();
  assert.deepEqual(modes([open]), ["755"]);
});

test("a closed store leaves the log and the base of the lock, and nothing else", async (t) => {
  const folder = folderOf(t);
  const stores = [storeIn(t, folder), storeIn(t, folder)];
  stores[0].presence("owner");
  await Promise.all(stores.map((store, n) => put(store, `row-${n}`, "1")));
  await Promise.all(stores.map((store) => store.close()));
  assert.deepEqual(readdirSync(folder).sort(), ["lock.0", "semel.1.log"]);
  // A store that was never used makes no files.
  const unused = join(folder, "unused");
  await storeIn(t, unused).close();
  assert.deepEqual(readdirSync(folder).sort(), ["lock.0", "semel.1.log"]);
});

test("close finishes the calls made before it, and calls made after it are refused", async (t) => {
  const folder = folderOf(t);
  const store = storeIn(t, folder);
  const changes = [put(store, "a", "1"), put(store, "b", "2")];
  const closed = store.close();
  const late = await rejection(put(store, "c", "3"));
  assert.ok(late instanceof StoreError);
  assert.deepEqual([late.code, late.message], ["store-failed", "store-failed: the store is closed"]);
  await Promise.all([...changes, closed, store.close()]);
  assert.throws(() => store.presence("owner"), { name: "StoreError", code: "store-failed" });
  assert.deepEqual(await look(folder), { a: "1", b: "2" });
});

test("several stores on one folder, also by another path, take turns and lose no change", { timeout: 30_000 }, async (t) => {
  const folder = folderOf(t);
  const link = join(folderOf(t), "link");
  symlinkSync(folder, link);
  const stores = [folder, link, folder].map((path) => storeIn(t, path));
  let isOver = false;
  const increment = (row) => Buffer.from(String(Number(text(row) ?? 0) + 1));
  let count = 0;
  // A store that is always busy doesn't keep the others from their turn.
  const busy = (async () => {
    while (!isOver) {
      await Promise.all([1, 2, 3].map(() => stores[0].change("n", increment)));
      count += 3;
    }
  })();
  for (let n = 0; n < 30; n += 1) {
    await Promise.all([stores[1].change("n", increment), stores[2].change("n", increment)]);
    count += 2;
  }
  isOver = true;
  await busy;
  for (const store of stores) assert.deepEqual(await textsIn(store), { n: String(count) });
});

test("a change beyond the limit of a row, an id or all rows is store-full and changes nothing", { timeout: 60_000 }, async (t) => {
  const store = storeIn(t, folderOf(t), { rowsBytesMax: 3 * ROW_BYTES_MAX });
  const long = Buffer.alloc(ROW_BYTES_MAX + 1, 1);
  await store.change("long", () => long.subarray(1));
  const error = await rejection(store.change("longer", () => long));
  assert.deepEqual([error.code, error.message], ["store-full", "store-full: a row of 16777217 bytes; the most is 16777216"]);
  await put(store, "x".repeat(1_024), "1");
  assert.equal((await rejection(put(store, "x".repeat(1_025), "1"))).code, "store-full");
  await store.change("second", () => long.subarray(1));
  const refused = await rejection(store.change("third", () => long.subarray(1)));
  assert.deepEqual([refused.code, refused.message], ["store-full", "store-full: the rows would take more than 50331648 bytes"]);
  assert.deepEqual((await store.load()).map(([id]) => id), ["long", "x".repeat(1_024), "second"]);
  // Rows that are stored may still change and leave.
  await store.remove(["long"], () => true);
  await store.change("third", () => long.subarray(1));
  await store.change("third", () => long.subarray(1));
});

test("wrong arguments are TypeErrors or RangeErrors, and change nothing", async (t) => {
  for (const folder of [undefined, "", 7, new URL("file:///tmp")]) assert.throws(() => fileStore(folder), TypeError);
  for (const busyMs of [-1, NaN, 3_600_001, "5000", null]) assert.throws(() => fileStore("x", { busyMs }), RangeError);
  const store = storeIn(t, folderOf(t));
  for (const row of ["text", 7, {}, [1], new ArrayBuffer(1), Promise.resolve(null)]) await assert.rejects(store.change("a", () => row), TypeError);
  await assert.rejects(store.change(7, () => null), TypeError);
  await assert.rejects(store.change("a", null), TypeError);
  await assert.rejects(store.remove([7], () => true), TypeError);
  for (const owner of ["", "a/b", "../a", "x".repeat(65), 7]) assert.throws(() => store.presence(owner), TypeError);
  assert.deepEqual(await store.load(), []);
});

test("ids are kept exactly, even lone surrogates and control characters", async (t) => {
  const folder = folderOf(t);
  const ids = ["", "\ud800", "\udc00", "\u0000", "\ufeff"];
  const store = storeIn(t, folder);
  for (const [index, id] of ids.entries()) await put(store, id, String(index));
  await store.close();
  assert.deepEqual(await look(folder), Object.fromEntries(ids.map((id, index) => [id, String(index)])));
});

test("an owner is announced before any later change is stored, and leaves with its store", async (t) => {
  const folder = folderOf(t);
  const [store, other] = [storeIn(t, folder), storeIn(t, folder)];
  const presence = store.presence("owner-1");
  let owners;
  await store.change("a", () => {
    owners = readdirSync(folder).filter((name) => name.startsWith("owner."));
    return null;
  });
  assert.deepEqual(owners, ["owner.owner-1"]);
  assert.throws(() => store.presence("owner-1"), { name: "StoreError", message: /the owner owner-1 is there already/ });
  const second = other.presence("owner-2");
  assert.deepEqual((await second.alive()).sort(), ["owner-1", "owner-2"]);
  await store.close();
  assert.deepEqual(await second.alive(), ["owner-2"]);
  await assert.rejects(presence.alive(), { name: "StoreError", code: "store-failed" });
  // An owner that leaves before it is announced was never there.
  const third = storeIn(t, folder);
  third.presence("owner-3").leave();
  await third.load();
  assert.deepEqual(await second.alive(), ["owner-2"]);
  // If an owner's name is taken, every later call of its store rejects until the owner leaves.
  const fourth = storeIn(t, folder);
  const taken = fourth.presence("owner-2");
  assert.equal(told(await rejection(fourth.load())), "store-failed");
  taken.leave();
  await fourth.load();
  assert.deepEqual(await second.alive(), ["owner-2"]);
});
