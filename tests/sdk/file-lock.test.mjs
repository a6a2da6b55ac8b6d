// Tests the lock of the file store's folder: stores that stop between two system calls while others take the lock or die, and locks that can't be
// released. `file-lock-removed.test.mjs` has locks that somebody removes.

import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { Identity, isDead, readIdentity } from "../../sdk/npm/file/life.js";
import { broken, child, failure, faultyFs, folderOf, holder, locks, look, put, storeIn, textsIn, told } from "./file-support.mjs";
import { clock, rejection, until } from "./stub.mjs";

/** Holds the next call `name` for the path `lock.{number}` until `go`. */
function stopAt(disk, name, number) {
  let go;
  const stopped = new Promise((resolve) => {
    disk.faults[name] = async ({ args, real }) => {
      if (basename(args.at(-1)) !== `lock.${number}`) return undefined;
      disk.faults[name] = undefined;
      await new Promise((done) => ((go = done), resolve()));
      return (await real()) ?? true;
    };
  });
  return { stopped, go: () => go() };
}

const dies = (t, folder) => child(t, "signal", folder, "SIGKILL").ended;

/** A store that is stopped right before it takes the name `lock.1`. Meanwhile `deaths` holders die, and then a third store holds the folder. */
async function tooSlow(t, deaths) {
  const folder = folderOf(t);
  const disk = faultyFs({});
  const slow = storeIn(t, folder, { fs: disk.fs, busyMs: 60_000 });
  await put(slow, "a", "1");
  const stop = stopAt(disk, "link", 1);
  let hasRun = false;
  const changed = slow.change("a", (row) => ((hasRun = true), row));
  await stop.stopped;
  for (let n = 0; n < deaths; n += 1) {
    await dies(t, folder);
    await look(folder);
  }
  const third = await holder(t, folder);
  assert.deepEqual(locks(folder), [`lock.${deaths}`, `lock.${deaths + 1}`]);
  return { folder, disk, stop, changed, third, hasRun: () => hasRun };
}

/** Checks that the slow store goes on only after the holder has let go. */
async function mustWithdraw({ folder, disk, stop, changed, third, hasRun }) {
  const before = disk.calls.link;
  stop.go();
  // The slow store has tried to take the lock, and now waits.
  await until(() => disk.calls.link > before && readdirSync(folder).some((name) => name.startsWith("want.")), "it waits");
  assert.equal(hasRun(), false);
  assert.equal(existsSync(join(folder, "lock.1")), false, "it took its name back");
  await third.go();
  await changed;
  assert.deepEqual(await look(folder), { a: "1", "by-the-holder": "1" });
}

test("a store that was stopped before it took a lock name that others have passed gives it back, and waits", { timeout: 30_000 }, async (t) => {
  await mustWithdraw(await tooSlow(t, 2));
  await mustWithdraw(await tooSlow(t, 3));
});

test("a store gives a passed lock name back even if a listing of the folder hides the higher names", { timeout: 30_000 }, async (t) => {
  const slow = await tooSlow(t, 2);
  slow.disk.faults.readdir = async ({ real }) => {
    slow.disk.faults.readdir = undefined;
    return (await real()).filter((name) => !["lock.2", "lock.3"].includes(name));
  };
  await mustWithdraw(slow);
});

test("a store waits for the holder even if it takes the lower lock file of a dead store for the base", { timeout: 30_000 }, async (t) => {
  const folder = folderOf(t);
  await dies(t, folder);
  const dead = readFileSync(join(folder, "lock.1"), "utf8");
  for (let n = 0; n < 4; n += 1) {
    await look(folder);
    await dies(t, folder);
  }
  await look(folder);
  const third = await holder(t, folder);
  assert.deepEqual(locks(folder), ["lock.5", "lock.6"]);
  // A process left this file: it died before it could take its name back.
  writeFileSync(join(folder, "lock.0"), dead);
  const disk = faultyFs({
    readdir: async ({ n, real }) => (n === 1 ? (await real()).filter((name) => !/^lock\.[56]$/.test(name)) : undefined),
  });
  const slow = storeIn(t, folder, { fs: disk.fs, busyMs: 60_000 });
  let hasRun = false;
  const changed = put(slow, "a", "1").then(() => (hasRun = true));
  await until(() => readdirSync(folder).filter((name) => name.startsWith("want.")).length === 1, "it waits");
  assert.deepEqual([hasRun, locks(folder)], [false, ["lock.0", "lock.5", "lock.6"]]);
  await third.go();
  await changed;
  assert.deepEqual(await look(folder), { a: "1", "by-the-holder": "1" });
});

test("a lock that can't be released is released by the next call", async (t) => {
  const folder = folderOf(t);
  const disk = faultyFs({});
  const [store, other] = [storeIn(t, folder, { fs: disk.fs }), storeIn(t, folder, { busyMs: 100 })];
  await put(store, "a", "1");
  disk.faults.unlink = () => {
    throw failure("EIO");
  };
  await put(store, "a", "2");
  await until(() => other.load().then(() => false, ({ code }) => code === "store-blocked"), "it is held");
  disk.faults.unlink = undefined;
  await put(store, "a", "3");
  assert.deepEqual(await textsIn(other), { a: "3" });
});

test("a lock that can't be released, fully taken or seen is released by itself once the file system works", { timeout: 30_000 }, async (t) => {
  const given = {
    released: (disk) => (disk.faults.unlink = broken),
    // The store makes the name, but then can't find out that it holds the lock.
    taken: (disk) => (disk.faults.link = async ({ real }) => (await real(), (disk.faults.readdir = broken), true)),
    // While the store writes the log anew, it can't see whether its name is still there.
    seen: (disk) => (disk.faults.sync = () => ((disk.faults.stat = disk.faults.readFile = broken), undefined)),
  };
  for (const [name, fails] of Object.entries(given)) {
    const folder = folderOf(t);
    const disk = faultyFs({});
    const [store, other] = [storeIn(t, folder, { fs: disk.fs }), storeIn(t, folder, { busyMs: 100 })];
    await put(store, "a", "1".repeat(600_000));
    fails(disk);
    await put(store, "a", "2".repeat(600_000)).catch(() => {});
    await until(() => other.load().then(() => false, ({ code }) => code === "store-blocked"), `not ${name}`);
    for (const each of Object.keys(disk.faults)) disk.faults[each] = undefined;
    await until(() => other.load().then(() => true, () => false), `let go of, not ${name}`);
  }
});

test("a lock that its store lost sight of is released by itself, even if the first try can't read whose it is", { timeout: 30_000 }, async (t) => {
  const folder = folderOf(t);
  const disk = faultyFs({});
  const [store, other] = [storeIn(t, folder, { fs: disk.fs }), storeIn(t, folder, { busyMs: 100 })];
  await put(store, "a", "1");
  // The log has changed, so the store's next turn begins by reading it, which fails.
  await put(other, "a", "2");
  const isLock = (path) => /lock\.\d+$/.test(String(path));
  disk.faults.read = () => {
    disk.faults.read = undefined;
    disk.faults.stat = disk.faults.readFile = ({ args }) => (isLock(args[0]) ? broken() : undefined);
    throw failure("EIO");
  };
  assert.equal(told(await rejection(store.load())), "store-failed EIO");
  const before = disk.calls.readFile;
  await until(() => disk.calls.readFile > before, "it is tried");
  disk.faults.stat = disk.faults.readFile = undefined;
  await until(() => other.load().then(() => true, () => false), "it is let go of");
});

test("a lock that a store made although link reported EEXIST is released by itself", { timeout: 30_000 }, async (t) => {
  const folder = folderOf(t);
  const disk = faultyFs({});
  const [store, other] = [storeIn(t, folder, { fs: disk.fs, busyMs: 0 }), storeIn(t, folder, { busyMs: 100 })];
  await put(store, "a", "1");
  // A network may deliver a call twice: the second finds the name that the first has made.
  disk.faults.link = async ({ real }) => {
    disk.faults.link = undefined;
    await real();
    throw failure("EEXIST");
  };
  assert.equal(told(await rejection(put(store, "a", "2"))), "store-blocked");
  await until(() => other.load().then(() => true, () => false), "it is let go of");
  assert.deepEqual(await textsIn(other), { a: "1" });
});

test("a store is not blocked by a lock that it made before its call failed", async (t) => {
  const folder = folderOf(t);
  const disk = faultyFs({});
  const store = storeIn(t, folder, { fs: disk.fs, busyMs: 0 });
  await put(store, "a", "1");
  disk.faults.readdir = () => {
    disk.faults.readdir = undefined;
    throw failure("EIO");
  };
  await assert.rejects(put(store, "a", "2"), (error) => told(error) === "store-failed EIO");
  await put(store, "b", "2");
  assert.deepEqual(await look(folder), { a: "1", b: "2" });
  assert.deepEqual(locks(folder), ["lock.1"]);
});

test("a lock file that names no process is store-damaged", async (t) => {
  const folder = folderOf(t);
  await look(folder);
  for (const text of ["", "nonsense", '{"pid":"1"}', '{"pid":-1,"instance":"x"}']) {
    writeFileSync(join(folder, "lock.1"), text);
    const message = "store-damaged: lock.1 is damaged: it names no process. Remove it once no process uses the folder";
    await assert.rejects(storeIn(t, folder).load(), { code: "store-damaged", message });
  }
});

test("a store in another realm of this thread counts as alive while it listens", async (t) => {
  const folder = folderOf(t);
  const identity = new Identity(folder);
  await identity.listen();
  const known = globalThis[Symbol.for("semel.file.open")];
  // Another realm has a `globalThis` of its own, which doesn't know the instance.
  known.delete(identity.instance);
  const read = readIdentity(identity.text, "self");
  assert.equal(await isDead(read, folder), read.listens !== true);
  identity.end();
  await until(() => !existsSync(join(folder, `socket.${identity.instance}`)), "it listens no more");
  assert.equal(await isDead(read, folder), true);
});

test("a process that was stopped while it read the lock looks once more before it is store-blocked", async (t) => {
  const folder = folderOf(t);
  const held = await holder(t, folder);
  const disk = faultyFs({});
  const later = clock(t);
  const store = storeIn(t, folder, { fs: disk.fs, busyMs: 60_000 });
  disk.faults.readFile = async ({ args, real }) => {
    if (!basename(args[0]).startsWith("lock.")) return undefined;
    disk.faults.readFile = undefined;
    const text = await real();
    // Before the store goes on, the holder has let go.
    await held.go();
    await until(() => locks(folder).length === 1, "only the base is left");
    later(60_000);
    return text;
  };
  await put(store, "a", "1");
  assert.deepEqual(await look(folder), { "by-the-holder": "1", a: "1" });
});
