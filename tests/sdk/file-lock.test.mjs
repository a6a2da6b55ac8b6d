// Tests the lock of the file store's folder: stores that stop between two system calls while others take the lock or die, locks that can't be released,
// and locks that somebody removes.

import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { Identity, isDead, readIdentity } from "../../sdk/npm/file/life.js";
import { child, failure, faultyFs, folderOf, logIn, look, put, storeIn, textsIn, told } from "./file-support.mjs";
import { clock, rejection, until } from "./stub.mjs";

const locks = (folder) => readdirSync(folder).filter((name) => name.startsWith("lock.")).sort();

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

const broken = () => {
  throw failure("EIO");
};

/** A store that holds the folder's lock until `go`. */
async function holder(t, folder) {
  const disk = faultyFs({});
  const store = storeIn(t, folder, { fs: disk.fs });
  await store.load();
  let go;
  const holds = new Promise((resolve) => {
    disk.faults.datasync = async () => {
      disk.faults.datasync = undefined;
      await new Promise((done) => ((go = done), resolve()));
    };
  });
  const changed = put(store, "by-the-holder", "1");
  await holds;
  return { go: () => (go(), changed) };
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

test("a store whose lock was removed sees the changes of others, and fails with ENOENT once its folder is gone", async (t) => {
  const folder = folderOf(t);
  const [one, other] = [storeIn(t, folder), storeIn(t, folder)];
  await put(one, "a", "1");
  const change = (remove) =>
    one.change("b", () => {
      remove();
      return Buffer.from("1");
    });
  await change(() => rmSync(join(folder, locks(folder).at(-1))));
  await put(other, "c", "1");
  assert.deepEqual(await textsIn(one), { a: "1", b: "1", c: "1" });
  assert.equal(told(await rejection(change(() => rmSync(folder, { recursive: true })))), "store-failed ENOENT");
  for (const store of [one, other]) for (let time = 0; time < 2; time += 1) assert.equal(told(await rejection(put(store, "d", "1"))), "store-failed ENOENT");
  assert.equal(existsSync(folder), false);
});

/** A store with one row. `lose(name, meanwhile)` removes the names of its locks when it next calls `name`, and then awaits `meanwhile`. */
async function losing(t, options) {
  const folder = folderOf(t);
  const disk = faultyFs({});
  const store = storeIn(t, folder, { fs: disk.fs, ...options });
  await put(store, "a", "1");
  const lose = (name, meanwhile) => {
    disk.faults[name] = async (call) => {
      disk.faults[name] = undefined;
      removeLocks(folder);
      return meanwhile(call);
    };
  };
  return { folder, disk, store, other: storeIn(t, folder), lose };
}

const removeLocks = (folder) => locks(folder).forEach((name) => rmSync(join(folder, name)));

test("a store that loses its lock during an append waits for the new holder, and its append is stored", { timeout: 30_000 }, async (t) => {
  const { folder, store, lose } = await losing(t, { busyMs: 50 });
  let third;
  lose("datasync", async () => {
    third = await holder(t, folder);
  });
  let isSettled = false;
  const changed = put(store, "b", "1").finally(() => (isSettled = true));
  await until(() => third !== undefined, "somebody else holds it");
  for (let time = 0; time < 3; time += 1) assert.equal(told(await rejection(put(store, "c", "1"))), "store-blocked");
  assert.deepEqual([isSettled, locks(folder)], [false, ["lock.0", "lock.1"]]);
  await third.go();
  await changed;
  assert.deepEqual([await textsIn(store), await look(folder)], Array(2).fill({ a: "1", b: "1", "by-the-holder": "1" }));
});

test("a failed append of a store that lost its lock does not cut off what another store has appended", async (t) => {
  const { folder, store, other, lose } = await losing(t);
  lose("write", async ({ with: real, args: [bytes, from, , position] }) => {
    await real(bytes, from, 10, position);
    await put(other, "c", "1");
    throw failure("EIO");
  });
  assert.equal(told(await rejection(put(store, "b", "1"))), "store-failed EIO");
  assert.deepEqual([await textsIn(store), await look(folder)], [{ a: "1", c: "1" }, { a: "1", c: "1" }]);
});

test("a failed append of a store that lost its lock is stored if another store has read it and gone on", async (t) => {
  const { folder, store, other, lose } = await losing(t);
  lose("datasync", async () => {
    await put(other, "c", "1");
    throw failure("EIO");
  });
  await put(store, "b", "1");
  assert.deepEqual([await textsIn(store), await look(folder)], Array(2).fill({ a: "1", b: "1", c: "1" }));
});

test("an append is not stored if the log was replaced while the lock was lost", async (t) => {
  const { folder, store, lose } = await losing(t);
  lose("datasync", async ({ real }) => {
    await real();
    rmSync(logIn(folder));
    // The new log is as long as the one before, and has the same name.
    const fresh = storeIn(t, folder);
    for (const id of ["a", "b"]) await put(fresh, id, "1");
  });
  const calls = [put(store, "b", "1"), store.load(), store.change("c", () => null)];
  for (const call of calls) {
    assert.equal((await rejection(call)).message, "store-failed: the folder's lock was removed while it was held");
  }
  assert.deepEqual([await textsIn(store), await look(folder)], Array(2).fill({ a: "1", b: "1" }));
});

test("a process whose folder is gone ends by itself", { timeout: 30_000 }, async (t) => {
  const lost = child(t, "lose", folderOf(t));
  assert.deepEqual([await lost.ended, lost.lines], [{ code: 0, signal: null }, ["store-failed ENOENT"]]);
});

test("an append is store-damaged if the log is unreadable or gone after the lock was lost", async (t) => {
  for (const harm of [(log) => writeFileSync(log, "x".repeat(100)), (log) => rmSync(log)]) {
    const { folder, store, lose } = await losing(t);
    lose("datasync", async ({ real }) => {
      await real();
      harm(logIn(folder));
    });
    assert.equal(told(await rejection(put(store, "b", "1"))), "store-damaged");
  }
});

test("a call does not settle while its store can't see what became of the append", async (t) => {
  const { folder, disk, store, lose } = await losing(t);
  lose("datasync", () => {
    disk.faults.readdir = () => {
      throw failure("EIO");
    };
  });
  let isSettled = false;
  const changed = put(store, "b", "1").finally(() => (isSettled = true));
  await until(() => disk.faults.readdir !== undefined, "it is lost");
  assert.equal(told(await rejection(put(store, "c", "1"))), "store-failed EIO");
  assert.equal(isSettled, false);
  disk.faults.readdir = undefined;
  // The store finds out by itself.
  await changed;
  assert.deepEqual(await look(folder), { a: "1", b: "1" });
});

test("a store that is closed while its lock is removed settles the calls before that", async (t) => {
  const { folder, store, other, lose } = await losing(t);
  lose("datasync", () => put(other, "c", "1"));
  const changed = put(store, "b", "1");
  await Promise.all([store.close(), changed]);
  assert.deepEqual(await textsIn(other), { a: "1", b: "1", c: "1" });
  await other.close();
  assert.deepEqual(readdirSync(folder).sort(), ["lock.0", "semel.1.log"]);
});

test("close waits until the store can see what became of an append, whose call then resolves", { timeout: 30_000 }, async (t) => {
  const { folder, disk, store, lose } = await losing(t);
  lose("datasync", () => {
    disk.faults.readdir = broken;
  });
  const changed = put(store, "b", "1");
  await until(() => disk.faults.readdir !== undefined, "it is lost");
  assert.equal(told(await rejection(put(store, "c", "1"))), "store-failed EIO");
  disk.faults.readdir = undefined;
  await Promise.all([store.close(), changed]);
  assert.deepEqual(await look(folder), { a: "1", b: "1" });
});

test("a store that loses its lock does not write the log anew without the change of another store", async (t) => {
  const { folder, store, other, lose } = await losing(t);
  for (let n = 0; n < 11; n += 1) await put(store, "big", `${n % 10}`.repeat(90_000));
  // The other store has the log open already, and its row is so long that it doesn't write the log anew itself.
  await other.load();
  const long = "c".repeat(1_200_000);
  let changed;
  lose("sync", () => (changed = put(other, "c", long)));
  await put(store, "big", "x".repeat(90_000));
  await until(() => changed !== undefined, "it is written anew");
  await changed;
  assert.deepEqual([await textsIn(store), await look(folder)], Array(2).fill({ a: "1", big: "x".repeat(90_000), c: long }));
});

/**
 * Like `losing`, but the store failed to release a lock, which was removed then. From now on the store could release it: it tries that each second,
 * and would keep a name that it makes meanwhile.
 */
async function unreleased(t) {
  const lost = await losing(t);
  const { folder, disk, store } = lost;
  disk.faults.unlink = () => {
    throw failure("EIO");
  };
  const before = disk.calls.unlink;
  await put(store, "a", "2");
  await until(() => disk.calls.unlink > before, "it could not be released");
  removeLocks(folder);
  disk.faults.unlink = undefined;
  return lost;
}

test("a store whose unreleased lock was removed waits for the new holder", async (t) => {
  const { folder, store, other } = await unreleased(t);
  await put(other, "c", "1");
  const third = await holder(t, folder);
  const changed = put(store, "b", "1");
  await until(() => readdirSync(folder).some((name) => name.startsWith("want.")), "it waits");
  await third.go();
  await changed;
  assert.deepEqual(await look(folder), { a: "2", b: "1", c: "1", "by-the-holder": "1" });
});

test("a store that finds its lock name gone when it releases it reads the log anew", async (t) => {
  const { folder, store, lose } = await losing(t);
  let isMade = false;
  lose("unlink", async () => {
    rmSync(logIn(folder));
    const fresh = storeIn(t, folder);
    for (const id of ["c", "d"]) await put(fresh, id, "1");
    // The fresh store may hold the folder for a moment longer. Then the name that goes would be its own.
    await fresh.close();
    isMade = true;
  });
  await put(store, "b", "1");
  await until(() => isMade, "the log is made anew");
  await put(store, "e", "1");
  assert.deepEqual([await textsIn(store), await look(folder)], Array(2).fill({ c: "1", d: "1", e: "1" }));
});

test("a store that has lost its lock and closes or fails leaves the lock name of the new holder", async (t) => {
  for (const isClosed of [true, false]) {
    const { folder, disk, store } = await unreleased(t);
    let third;
    if (isClosed) {
      third = await holder(t, folder);
      await store.close();
    } else {
      disk.faults.read = async () => {
        disk.faults.read = undefined;
        removeLocks(folder);
        third = await holder(t, folder);
        throw failure("EIO");
      };
      assert.equal(told(await rejection(store.load())), "store-failed EIO");
    }
    assert.deepEqual(locks(folder), ["lock.0", "lock.1"]);
    await third.go();
    assert.deepEqual(await look(folder), { a: "2", "by-the-holder": "1" });
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
