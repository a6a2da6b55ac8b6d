// Tests the file store on a disk that fails: a change that rejects has changed nothing, for this process and for others, and a change that
// resolved stays. The file system of a test fails where the test says so. `file-full.test.mjs` has disks that are full.

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { child, fail, failure, faultyFs, folderOf, logIn, look, put, storeIn, textsIn, told } from "./file-support.mjs";
import { rejection, until } from "./stub.mjs";

/** A store with one row, on a file system that fails on demand, and a second store on the same folder whose file system works. */
async function faulty(t, options) {
  const folder = folderOf(t);
  const disk = faultyFs({});
  const store = storeIn(t, folder, { fs: disk.fs, ...options });
  await put(store, "a", "1");
  const other = storeIn(t, folder, { busyMs: 200 });
  assert.deepEqual(await textsIn(other), { a: "1" });
  return { folder, disk, store, other };
}

/** Starts an append that fails and can't be undone. Resolves once the store has called `last`, the last call of its attempt to undo it. */
async function inDoubt(disk, store, last) {
  const before = disk.calls[last] ?? 0;
  let isSettled = false;
  // The append may never settle.
  const appended = put(store, "a", "2").then(() => "made", (error) => error).finally(() => (isSettled = true));
  await until(() => disk.calls[last] > before, "it is tried to undo it");
  return { appended, isSettled: () => isSettled };
}

const generation = (folder) => Number(/semel\.(\d+)\.log$/.exec(logIn(folder))[1]);

test("changes that wait go into one append with one sync", async (t) => {
  const { disk, store } = await faulty(t);
  const before = disk.calls.datasync;
  await Promise.all(Array.from({ length: 100 }, (_, n) => put(store, `row-${n}`, "1")));
  assert.equal(disk.calls.datasync - before, 1);
  // Changes that are made while a sync is under way all go into the next append.
  let called = [];
  disk.faults.datasync = () => {
    if (called.length === 0) called = Array.from({ length: 50 }, (_, n) => put(store, `more-${n}`, "1"));
  };
  await put(store, "first", "1");
  await Promise.all(called);
  assert.equal(called.length, 50);
  assert.equal(disk.calls.datasync - before, 3);
  assert.equal((await store.load()).length, 152);
  assert.equal(disk.calls.datasync - before, 3, "a look writes nothing");
});

test("no change resolves before it is synced", async (t) => {
  const { disk, store } = await faulty(t);
  let sync;
  const reached = new Promise((resolve) => {
    disk.faults.datasync = ({ real }) => new Promise((done) => ((sync = () => real().then(done)), resolve()));
  });
  let isDone = false;
  const changed = put(store, "b", "2").then(() => (isDone = true));
  await reached;
  // This gives the change time to resolve too early.
  await new Promise((resolve) => setTimeout(resolve, 30));
  assert.equal(isDone, false);
  disk.faults.datasync = undefined;
  sync();
  await changed;
  assert.deepEqual(await textsIn(store), { a: "1", b: "2" });
});

test("a short write is continued until all bytes are written", async (t) => {
  const { folder, disk, store } = await faulty(t);
  disk.faults.write = ({ with: real, args: [bytes, from, length, position] }) => real(bytes, from, Math.min(length, 7), position);
  await put(store, "b", "x".repeat(1_000));
  assert.deepEqual(await look(folder), { a: "1", b: "x".repeat(1_000) });
});

test("a write that fails halfway is cut off, and every call of its batch rejects as store-full", async (t) => {
  const { folder, disk, store, other } = await faulty(t);
  disk.faults.write = ({ n, with: real, args: [bytes, from, length, position] }) => (n % 2 ? fail("ENOSPC")() : real(bytes, from, 10, position));
  disk.calls.write = 1;
  const all = await Promise.allSettled([put(store, "a", "2"), store.change("a", () => null), put(store, "b", "3"), store.remove(["a"], () => true), store.load()]);
  assert.deepEqual(all.map(({ reason }) => told(reason)), Array(5).fill("store-full ENOSPC"));
  disk.faults.write = undefined;
  assert.deepEqual([await textsIn(other), await textsIn(store), generation(folder)], [{ a: "1" }, { a: "1" }, 1]);
  await put(store, "b", "2");
  assert.deepEqual([await textsIn(other), await look(folder)], [{ a: "1", b: "2" }, { a: "1", b: "2" }]);
});

test("after a failed sync the change rejects, and the log is written anew without it", async (t) => {
  const { folder, disk, store, other } = await faulty(t);
  disk.faults.datasync = () => {
    disk.faults.datasync = undefined;
    throw failure("EIO");
  };
  assert.equal(told(await rejection(put(store, "a", "2"))), "store-failed EIO");
  assert.equal(generation(folder), 2);
  assert.deepEqual([await textsIn(other), await textsIn(store)], [{ a: "1" }, { a: "1" }]);
  await put(other, "b", "2");
  assert.deepEqual([await textsIn(store), await look(folder)], [{ a: "1", b: "2" }, { a: "1", b: "2" }]);
});

test("while a failed append can't be undone nobody gets the folder, and its call rejects once it can", async (t) => {
  for (const broken of [["datasync", "sync"], ["datasync", "sync", "truncate"], ["write", "truncate"], ["datasync", "rename"]]) {
    const { folder, disk, store, other } = await faulty(t);
    for (const name of broken) disk.faults[name] = fail("EIO");
    const { appended, isSettled } = await inDoubt(disk, store, broken.at(-1));
    for (const call of [() => put(store, "c", "3"), () => store.load()]) assert.equal(told(await rejection(call())), "store-failed EIO", String(broken));
    assert.equal(told(await rejection(other.load())), "store-blocked", String(broken));
    assert.equal(isSettled(), false, `who comes next may find it: ${broken}`);
    for (const name of broken) disk.faults[name] = undefined;
    await put(store, "b", "2");
    assert.equal(told(await appended), "store-failed EIO", String(broken));
    assert.deepEqual([await textsIn(store), await textsIn(other), await look(folder)], Array(3).fill({ a: "1", b: "2" }), String(broken));
  }
});

test("a log that a dead holder left is synced before it is used, and written anew if that sync fails", { timeout: 30_000 }, async (t) => {
  const { folder, disk, store, other } = await faulty(t);
  const before = disk.calls.datasync;
  await store.load();
  assert.equal(disk.calls.datasync, before, "a holder that released it left nothing to sync");
  for (const [isFailing, expected] of [[false, 1], [true, 2]]) {
    await child(t, "signal", folder, "SIGKILL").ended;
    let syncs = 0;
    disk.faults.datasync = () => {
      syncs += 1;
      if (isFailing) throw failure("EIO");
    };
    assert.deepEqual(await textsIn(store), { a: "1" });
    assert.deepEqual([syncs, generation(folder)], [1, expected]);
  }
  disk.faults.datasync = undefined;
  // If the new log can't be synced either, nobody gets the folder until it can.
  await child(t, "signal", folder, "SIGKILL").ended;
  disk.faults.datasync = disk.faults.sync = fail("EIO");
  assert.equal(told(await rejection(store.load())), "store-failed EIO");
  assert.equal(told(await rejection(other.load())), "store-blocked");
  disk.faults.datasync = disk.faults.sync = undefined;
  assert.deepEqual([await textsIn(store), await textsIn(other)], [{ a: "1" }, { a: "1" }]);
});

test("a store tries again by itself to undo a failed append, without another call", async (t) => {
  const { disk, store, other } = await faulty(t);
  disk.faults.datasync = disk.faults.sync = fail("EIO");
  const { appended, isSettled } = await inDoubt(disk, store, "sync");
  const before = disk.calls.sync;
  await until(() => disk.calls.sync > before, "it is tried again");
  assert.equal(isSettled(), false);
  disk.faults.datasync = disk.faults.sync = undefined;
  assert.equal(told(await appended), "store-failed EIO");
  assert.deepEqual(await textsIn(other), { a: "1" });
});

test("a store closed while it can't undo an append does not settle its call, and leaves the folder to others", async (t) => {
  const { folder, disk, store, other } = await faulty(t);
  disk.faults.datasync = disk.faults.sync = fail("EIO");
  const { isSettled } = await inDoubt(disk, store, "sync");
  await store.close();
  assert.equal(isSettled(), false);
  await put(other, "b", "2");
  // The store cut the append off at once, although it could not make that durable.
  assert.deepEqual(await look(folder), { a: "1", b: "2" });
});

test("while the name of a new log can't be synced the folder is blocked, and then the failed change is gone", async (t) => {
  const { folder, disk, store, other } = await faulty(t);
  disk.faults.datasync = fail("EIO");
  // The first sync is of the new log, the second of the folder.
  let syncs = 0;
  disk.faults.sync = () => {
    syncs += 1;
    if (syncs > 1) throw failure("EIO");
  };
  const { appended } = await inDoubt(disk, store, "sync");
  await until(() => syncs > 1, "of the folder");
  assert.deepEqual(readdirSync(folder).filter((name) => name.endsWith(".log")).sort(), ["semel.1.log", "semel.2.log"]);
  assert.equal(told(await rejection(other.load())), "store-blocked");
  disk.faults.datasync = disk.faults.sync = undefined;
  await put(store, "b", "2");
  assert.equal(told(await appended), "store-failed EIO");
  assert.deepEqual([generation(folder), await textsIn(other)], [2, { a: "1", b: "2" }]);
});

test("a compaction that fails loses no change, and is tried again later", async (t) => {
  const { folder, disk, store } = await faulty(t);
  disk.faults.rename = fail("EIO");
  for (let n = 0; n < 15; n += 1) await put(store, "big", `${n % 10}`.repeat(100_000));
  const renames = disk.calls.rename;
  assert.equal(generation(folder), 1);
  await put(store, "small", "1");
  assert.equal(disk.calls.rename, renames, "not at each change");
  assert.deepEqual(readdirSync(folder).filter((name) => name.endsWith(".tmp")), []);
  disk.faults.rename = undefined;
  for (let n = 0; n < 15; n += 1) await put(store, "big", "y".repeat(100_000));
  assert.equal(generation(folder), 2);
  assert.deepEqual(await look(folder), { a: "1", small: "1", big: "y".repeat(100_000) });
});

/**
 * Makes a call of the file system and reports it as failed, as over a network whose answers are lost. This happens once, to the first call
 * that `isMeant` accepts.
 */
const madeAndFailed = (disk, name, code, isMeant = () => true) => {
  disk.faults[name] = async ({ args, real }) => {
    if (!isMeant(...args)) return undefined;
    disk.faults[name] = undefined;
    await real();
    throw failure(code);
  };
};

test("a new log whose rename is reported as failed but was made is used by every store", async (t) => {
  for (const code of ["EIO", "ENOENT"]) {
    const { folder, disk, store, other } = await faulty(t);
    madeAndFailed(disk, "rename", code);
    // Releasing the lock fails too. Otherwise the store would look at the folder anew when it next takes the lock, and find the generation.
    disk.faults.unlink = ({ args }) => (disk.faults.rename === undefined && /lock\.\d+$/.test(args[0]) ? ((disk.faults.unlink = undefined), fail("EIO")()) : undefined);
    for (let n = 0; n < 11; n += 1) await put(store, "big", "x".repeat(100_000));
    await until(() => disk.faults.rename === undefined, "it is compacted");
    await put(store, "b", "1");
    const expected = { a: "1", b: "1", big: "x".repeat(100_000) };
    assert.deepEqual([await textsIn(store), await textsIn(other), await look(folder)], Array(3).fill(expected), code);
  }
});

test("while a store can't see whether its rename was made, it does not append to the old log", async (t) => {
  const { folder, disk, store, other } = await faulty(t);
  madeAndFailed(disk, "rename", "EIO");
  const isLog = (path) => path.endsWith(".log");
  disk.faults.stat = ({ args }) => (isLog(String(args[0])) ? fail("EIO")() : undefined);
  for (let n = 0; n < 11; n += 1) await put(store, "big", "x".repeat(100_000));
  await until(() => disk.faults.rename === undefined, "it is compacted");
  disk.faults.rename = fail("EIO");
  assert.equal(told(await rejection(put(store, "b", "1"))), "store-failed EIO");
  assert.equal(told(await rejection(other.load())), "store-blocked");
  disk.faults.rename = disk.faults.stat = undefined;
  await put(store, "b", "2");
  assert.deepEqual([await textsIn(other), await look(folder)], Array(2).fill({ a: "1", b: "2", big: "x".repeat(100_000) }));
});

test("while the folder can't be synced, writing the log anew again and again leaves only two log files", { timeout: 30_000 }, async (t) => {
  const { folder, disk, store } = await faulty(t);
  // For each generation, the store syncs the file and then the folder. The second sync fails.
  let syncs = 0;
  disk.faults.sync = () => ((syncs += 1) % 2 ? undefined : fail("EIO")());
  disk.faults.datasync = () => {
    disk.faults.datasync = undefined;
    throw failure("EIO");
  };
  const appended = rejection(put(store, "b", "1"));
  await until(() => syncs >= 6, "it is written again and again");
  assert.deepEqual(readdirSync(folder).filter((name) => name.startsWith("semel.") && name.endsWith(".log")), ["semel.1.log", "semel.2.log"]);
  disk.faults.sync = undefined;
  assert.equal(told(await appended), "store-failed EIO");
  await put(store, "c", "1");
  assert.deepEqual([await textsIn(store), await look(folder)], Array(2).fill({ a: "1", c: "1" }));
});

test("an owner whose link is reported as failed but was made counts as alive", async (t) => {
  const { disk, store } = await faulty(t);
  const presence = store.presence("owner");
  madeAndFailed(disk, "link", "EIO", (_, path) => path.endsWith("owner.owner"));
  // This change is made in the turn in which the owner is announced, so it waits for that.
  assert.equal(told(await rejection(put(store, "b", "1"))), "store-failed EIO");
  await put(store, "b", "1");
  assert.deepEqual(await presence.alive(), ["owner"]);
});

/** Makes the store fail once to see whether it still has its lock. */
const unseen = (disk) => {
  for (const name of ["stat", "readFile"]) disk.faults[name] = ({ args }) => (/lock\.\d+$/.test(String(args[0])) ? ((disk.faults[name] = undefined), fail("EIO")()) : undefined);
};

test("after a failed sync a store that loses sight of its lock writes the log anew, and only once", { timeout: 30_000 }, async (t) => {
  const { folder, disk, store } = await faulty(t);
  disk.faults.datasync = () => {
    disk.faults.datasync = undefined;
    unseen(disk);
    throw failure("EIO");
  };
  await put(store, "b", "1");
  assert.equal(generation(folder), 2);
  assert.deepEqual([await textsIn(store), await look(folder)], Array(2).fill({ a: "1", b: "1" }));
  await put(store, "c", "1");
  // The store reads the log again, this time with nothing in doubt.
  disk.faults.datasync = () => {
    disk.faults.datasync = undefined;
    unseen(disk);
  };
  await put(store, "d", "1");
  assert.equal(disk.faults.readFile, undefined);
  assert.equal(generation(folder), 2, "once is enough");
});

test("an append that was found in the log is kept when the log is written anew before its call settles", { timeout: 30_000 }, async (t) => {
  const { folder, disk, store } = await faulty(t);
  const before = disk.calls.datasync;
  let syncs = 0;
  disk.faults.datasync = ({ n }) => {
    if (n === before + 1) unseen(disk);
    // The store reads the log and writes it anew. Then it can't make the name of the new log durable, or see whether it still has its lock.
    if (n !== before + 2) return;
    disk.faults.sync = () => {
      syncs += 1;
      if (syncs < 2) return;
      disk.faults.sync = undefined;
      unseen(disk);
      throw failure("EIO");
    };
    throw failure("EIO");
  };
  await put(store, "b", "1");
  assert.deepEqual([syncs, generation(folder)], [2, 3]);
  assert.deepEqual([await textsIn(store), await look(folder)], Array(2).fill({ a: "1", b: "1" }));
});

test("a rename reported as ENOENT but made does not make the folder count as gone: the append is kept", { timeout: 30_000 }, async (t) => {
  const { folder, disk, store } = await faulty(t);
  disk.faults.datasync = () => {
    disk.faults.datasync = undefined;
    unseen(disk);
    madeAndFailed(disk, "rename", "ENOENT");
  };
  await put(store, "b", "1");
  assert.equal(disk.faults.rename, undefined);
  assert.deepEqual([await textsIn(store), await look(folder)], Array(2).fill({ a: "1", b: "1" }));
});

test("a store that failed to open its folder tries again at the next call", async (t) => {
  const folder = folderOf(t);
  for (const name of ["mkdir", "open", "sync", "link", "rename", "readdir"]) {
    const disk = faultyFs({ [name]: fail("EACCES") });
    const store = storeIn(t, join(folder, name), { fs: disk.fs });
    const presence = store.presence("owner");
    assert.equal(told(await rejection(store.load())), "store-failed EACCES", name);
    disk.faults[name] = undefined;
    await put(store, "a", "1");
    assert.deepEqual([await textsIn(store), await presence.alive()], [{ a: "1" }, ["owner"]], name);
  }
});

test("a folder without hard links is store-unavailable", async (t) => {
  const disk = faultyFs({ link: fail("ENOTSUP") });
  const [bare, announced] = [storeIn(t, folderOf(t), { fs: disk.fs }), storeIn(t, folderOf(t), { fs: disk.fs })];
  announced.presence("owner");
  for (const store of [bare, announced]) {
    const error = await rejection(store.load());
    assert.equal(told(error), "store-unavailable ENOTSUP");
    assert.equal(error.message, "store-unavailable: the folder's file system has no hard links");
  }
});
