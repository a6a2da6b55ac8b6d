// Tests the lock of the file store's folder when somebody removes it, alone or with the log or the folder: what was appended is neither lost nor
// reported wrongly.

import assert from "node:assert/strict";
import { existsSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { broken, child, failure, faultyFs, folderOf, holder, locks, logIn, look, put, storeIn, textsIn, told } from "./file-support.mjs";
import { deposit, outbox, rejection, until } from "./stub.mjs";

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

test("an append is not said to be undone if another store may have taken it over into a new log while the lock was lost", { timeout: 30_000 }, async (t) => {
  const { folder, store, other, lose } = await losing(t);
  const before = logIn(folder);
  lose("datasync", async ({ real }) => {
    await real();
    for (let n = 0; logIn(folder) === before; n += 1) await put(other, "big", `${n % 10}`.repeat(90_000));
  });
  const error = await rejection(put(store, "b", "1"));
  assert.equal((await look(folder)).b, "1");
  assert.deepEqual([told(error), error.name], ["store-failed", "UnknownError"]);
});

test("an append is not said to be undone if its folder was moved away, or a name of its lock can't be read", async (t) => {
  const { folder, store, lose } = await losing(t);
  lose("datasync", async ({ real }) => {
    await real();
    writeFileSync(join(folder, "lock.7"), "");
  });
  const damaged = await rejection(put(store, "b", "1"));
  rmSync(join(folder, "lock.7"));
  assert.equal((await look(folder)).b, "1");
  assert.deepEqual([told(damaged), damaged.name], ["store-damaged", "UnknownError"]);

  const [moved, disk] = [folderOf(t), faultyFs({})];
  const { semel, server } = await outbox(t, { store: storeIn(t, moved, { fs: disk.fs }) });
  disk.faults.datasync = async ({ real }) => {
    disk.faults.datasync = undefined;
    await real();
    renameSync(moved, `${moved}-away`);
  };
  const error = await rejection(deposit(semel, "a"));
  renameSync(`${moved}-away`, moved);
  assert.deepEqual([Object.keys(await look(moved)).length, server.attempts.length], [1, 0]);
  assert.deepEqual([error.code, error.executed, told(error.cause)], ["store-failed", "unknown", "store-failed ENOENT"]);
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
