// The folder's lock, where somebody is too slow: stopped between two calls of the system while others take turns and die.

import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { Identity, isDead, readIdentity } from "../../sdk/npm/file/life.js";
import { child, failure, faultyFs, folderOf, look, put, storeIn, textsIn, told } from "./file-support.mjs";
import { rejection, until } from "./stub.mjs";

const locks = (folder) => readdirSync(folder).filter((name) => name.startsWith("lock.")).sort();

/** Holds every call `name` to the path `lock.{number}` until `go`. */
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

/** A store that holds the folder until `go`. */
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

/** A store that is stopped right before it takes the name `lock.1`, while so many holders die; then somebody else holds the folder. */
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

/** That the slow one goes on only after the holder. */
async function mustWithdraw({ folder, disk, stop, changed, third, hasRun }) {
  const before = disk.calls.link;
  stop.go();
  // It has tried, and has begun to wait.
  await until(() => disk.calls.link > before && readdirSync(folder).some((name) => name.startsWith("want.")), "it waits");
  assert.equal(hasRun(), false);
  assert.equal(existsSync(join(folder, "lock.1")), false, "it took its name back");
  await third.go();
  await changed;
  assert.deepEqual(await look(folder), { a: "1", "by-the-holder": "1" });
}

test("who was stopped before it took a name that others have left behind withdraws", { timeout: 30_000 }, async (t) => {
  await mustWithdraw(await tooSlow(t, 2));
  await mustWithdraw(await tooSlow(t, 3));
});

test("it withdraws though a look at the folder hides what is higher", { timeout: 30_000 }, async (t) => {
  const slow = await tooSlow(t, 2);
  slow.disk.faults.readdir = async ({ real }) => {
    slow.disk.faults.readdir = undefined;
    return (await real()).filter((name) => !["lock.2", "lock.3"].includes(name));
  };
  await mustWithdraw(slow);
});

test("it withdraws though it takes what a dead one left below for the base", { timeout: 30_000 }, async (t) => {
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
  // Left by one that died before it could take its name back.
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

test("a name that was made before something failed is no lock against oneself", async (t) => {
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

test("a lock file that names nobody is an error, and nobody is robbed", async (t) => {
  const folder = folderOf(t);
  await look(folder);
  for (const text of ["", "nonsense", '{"pid":"1"}', '{"pid":-1,"instance":"x"}']) {
    writeFileSync(join(folder, "lock.1"), text);
    const message = "store-damaged: lock.1 is damaged: it names no process. Remove it once no process uses the folder";
    await assert.rejects(storeIn(t, folder).load(), { code: "store-damaged", message });
  }
});

test("a lock that somebody has removed is held no more: nothing is done in a folder that is gone, and another's turn is seen", async (t) => {
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
  // Whether this one is in a file that was removed, nobody can tell.
  await change(() => rmSync(folder, { recursive: true })).catch(() => {});
  for (const store of [one, other]) for (let time = 0; time < 2; time += 1) assert.equal(told(await rejection(put(store, "d", "1"))), "store-failed ENOENT");
  assert.equal(existsSync(folder), false);
});

test("a store of another realm of this thread lives while it listens", async (t) => {
  const folder = folderOf(t);
  const identity = new Identity(folder);
  await identity.listen();
  const known = globalThis[Symbol.for("semel.file.open")];
  // As another realm has it, which has a `globalThis` of its own.
  known.delete(identity.instance);
  const read = readIdentity(identity.text, "self");
  assert.equal(await isDead(read, folder), read.listens !== true);
  identity.end();
  await until(() => !existsSync(join(folder, `socket.${identity.instance}`)), "it listens no more");
  assert.equal(await isDead(read, folder), true);
});
