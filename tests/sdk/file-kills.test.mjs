// Tests the file store with several processes: processes that are killed at any moment, and holders of the folder that are dead or stopped.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { isDead } from "../../sdk/npm/file/life.js";
import { child, folderOf, logIn, look, put, storeIn, text, textsIn } from "./file-support.mjs";
import { clock, rejection } from "./stub.mjs";

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Kills a writer again and again. After each kill, every row that it reported is there, and no row is half written. A writer is killed at a random
 * moment after it has reported some rows: each writer reports one more than the one before, up to `most`. So the number of rows doesn't depend on
 * how fast the machine is.
 */
async function killWriters(t, { kills, rowBytes, most, aliveMs }) {
  const folder = folderOf(t);
  const stored = [-1, -1, -1, -1];
  let reported = 0;
  for (let kill = 0; kill < kills; kill += 1) {
    const first = Math.max(...stored) + 1;
    const writer = child(t, "write", folder, first, rowBytes);
    await writer.said(1 + (kill % most));
    await pause(Math.random() * aliveMs);
    await writer.kill();
    reported += writer.lines.length;
    const rows = await look(folder);
    for (const line of writer.lines) {
      const [lane, n] = line.split(" ").map(Number);
      stored[lane] = Math.max(stored[lane], n);
    }
    for (const [lane, n] of stored.entries()) {
      const row = rows[`lane-${lane}`];
      if (row === undefined) {
        assert.equal(n, -1, `lane ${lane}`);
        continue;
      }
      const is = Number.parseInt(row, 10);
      assert.ok(is === n || (is === n + 1 || (n < first && is === first)), `lane ${lane} is at ${is}, and ${n} was reported (from ${first})`);
      assert.equal(row, `${is}:`.repeat(Math.ceil(rowBytes / `${is}:`.length)));
      stored[lane] = is;
    }
  }
  return { folder, reported };
}

test("after a kill every row that was reported is there, and none is half written: 120 kills", { timeout: 180_000 }, async (t) => {
  const { folder, reported } = await killWriters(t, { kills: 120, rowBytes: 500, most: 20, aliveMs: 10 });
  assert.ok(reported > 1_000, String(reported));
  // The killed processes leave only the log and the base of the lock.
  assert.deepEqual(readdirSync(folder).map((name) => name.replace(/\d+/, "N")).sort(), ["lock.N", "semel.N.log"]);
});

test("after a kill amid compactions every row that was reported is there, and none is half written: 30 kills", { timeout: 120_000 }, async (t) => {
  const { folder } = await killWriters(t, { kills: 30, rowBytes: 60_000, most: 20, aliveMs: 10 });
  const [, generation] = /semel\.(\d+)\.log$/.exec(logIn(folder));
  assert.ok(Number(generation) > 20, generation);
});

test("two processes that count in one row lose no step", { timeout: 60_000 }, async (t) => {
  const folder = folderOf(t);
  const children = ["a", "b"].map((name) => child(t, "count", folder, name, 300));
  for (const each of children) assert.deepEqual(await each.ended, { code: 0, signal: null });
  assert.deepEqual(JSON.parse((await look(folder)).counter), { total: 600, a: 300, b: 300 });
});

test("four processes that count in one row, two of them killed again and again, lose no step", { timeout: 120_000 }, async (t) => {
  const folder = folderOf(t);
  const lasting = ["a", "b"].map((name) => child(t, "count", folder, name, 400));
  const killed = [];
  let isOver = false;
  const done = Promise.all(lasting.map(({ ended }) => ended)).then((all) => ((isOver = true), all));
  const lane = async (name) => {
    for (let n = 0; !isOver || n < 5; n += 1) {
      const each = child(t, "count", folder, `${name}${n}`, 1e9);
      await each.said(1);
      await pause(Math.random() * 40);
      await each.kill();
      killed.push({ name: `${name}${n}`, reported: each.lines.length });
    }
  };
  await Promise.all([lane("x"), lane("y")]);
  assert.deepEqual(await done, [{ code: 0, signal: null }, { code: 0, signal: null }]);
  const { total, ...counts } = JSON.parse((await look(folder)).counter);
  assert.deepEqual([counts.a, counts.b], [400, 400]);
  for (const { name, reported } of killed) assert.ok(counts[name] >= reported && counts[name] <= reported + 2, `${name}: ${counts[name]}, reported ${reported}`);
  assert.equal(Object.values(counts).reduce((sum, each) => sum + each, 0), total);
  assert.ok(killed.length >= 10, String(killed.length));
});

test("a store gets the folder of a killed holder at once, and the change of that holder is not stored", async (t) => {
  const folder = folderOf(t);
  const holder = child(t, "signal", folder, "SIGKILL");
  assert.equal((await holder.ended).signal, "SIGKILL");
  assert.deepEqual(holder.lines, ["holds"]);
  const store = storeIn(t, folder, { busyMs: 0 });
  await put(store, "a", "1");
  assert.deepEqual(await textsIn(store), { a: "1" });
});

test("processes that are killed while they begin to open a folder leave nothing in it for good", { timeout: 60_000 }, async (t) => {
  const folder = folderOf(t);
  await look(folder);
  const before = readdirSync(folder);
  for (let n = 0; n < 3; n += 1) {
    const dying = child(t, "begin", folder);
    await dying.said(1);
    await dying.kill();
  }
  const living = child(t, "begin", folder);
  await living.said(1);
  await look(folder);
  // Only what the living one has begun.
  assert.deepEqual(readdirSync(folder).filter((name) => !before.includes(name)).map((name) => name.split(".")[0]).sort(), ["socket", "tmp"]);
  await living.kill();
  await look(folder);
  assert.deepEqual(readdirSync(folder), before);
});

test("a stopped holder keeps the folder: the calls of others are store-blocked until it goes on", async (t) => {
  const folder = folderOf(t);
  const holder = child(t, "signal", folder, "SIGSTOP");
  await holder.said(1);
  const store = storeIn(t, folder, { busyMs: 300 });
  for (const call of [() => put(store, "a", "1"), () => store.load(), () => store.remove(["held"], () => true)]) {
    const error = await rejection(call());
    assert.deepEqual([error.name, error.code, error.message], ["StoreError", "store-blocked", `store-blocked: the folder is busy: process ${holder.pid} holds it`]);
  }
  holder.signal("SIGCONT");
  assert.deepEqual(await holder.ended, { code: 0, signal: null });
  await put(store, "b", "2");
  assert.deepEqual(await textsIn(store), { held: "by the child", b: "2" });
});

test("each call waits its own busyMs for the holder, however long an earlier call has waited", async (t) => {
  const folder = folderOf(t);
  const holder = child(t, "signal", folder, "SIGSTOP");
  await holder.said(1);
  const later = clock(t);
  const store = storeIn(t, folder, { busyMs: 60_000 });
  const first = rejection(put(store, "a", "1"));
  later(40_000);
  const second = put(store, "b", "2");
  later(20_001);
  assert.equal((await first).code, "store-blocked");
  holder.signal("SIGCONT");
  await second;
  assert.deepEqual(await look(folder), { held: "by the child", b: "2" });
});

test("six stores that find a dead holder at the same time take turns, and lose no change", { timeout: 60_000 }, async (t) => {
  const folder = folderOf(t);
  for (let round = 0; round < 10; round += 1) {
    await child(t, "signal", folder, "SIGKILL").ended;
    const stores = Array.from({ length: 6 }, () => storeIn(t, folder));
    await Promise.all(stores.map((store) => store.change("n", (row) => Buffer.from(String(Number(text(row) ?? 0) + 1)))));
    await Promise.all(stores.map((store) => store.close()));
  }
  assert.deepEqual(await look(folder), { n: "60" });
});

test("a store gets the folder of a thread that was terminated while it held it, though its process lives", { timeout: 30_000 }, async (t) => {
  const folder = folderOf(t);
  const source = `
    import { parentPort, workerData } from "node:worker_threads";
    import { fileStore } from ${JSON.stringify(new URL("../../sdk/npm/file.js", import.meta.url).href)};
    fileStore(workerData).change("a", () => {
      parentPort.postMessage("holds");
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    });`;
  const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(source)}`), { workerData: folder });
  await new Promise((resolve) => worker.once("message", resolve));
  const patient = storeIn(t, folder, { busyMs: 200 });
  assert.equal((await rejection(put(patient, "b", "1"))).code, "store-blocked");
  await worker.terminate();
  await put(patient, "b", "2");
  assert.deepEqual(await textsIn(patient), { b: "2" });
});

test("an owner that can't be judged counts as alive, and one of another namespace as dead once its socket is", async (t) => {
  const folder = folderOf(t);
  const other = child(t, "presence", folder, "owner-1");
  await other.said(1);
  const [name] = readdirSync(folder).filter((each) => each.startsWith("self."));
  const identity = JSON.parse(readFileSync(join(folder, name), "utf8"));
  assert.equal(identity.pid, other.pid);
  const elsewhere = { ...identity, pid: 999_999, space: "pid:[1]" };
  const deaf = { ...elsewhere, listens: undefined };
  // In a container of LXC or systemd-nspawn, the boot id differs too.
  const contained = { ...elsewhere, boot: "another" };
  const judged = () => Promise.all([identity, elsewhere, contained, deaf].map((each) => isDead(each, folder)));
  assert.deepEqual(await judged(), [false, false, false, false]);
  other.signal("SIGSTOP");
  assert.deepEqual(await judged(), [false, false, false, false]);
  await other.kill();
  assert.deepEqual(await judged(), [true, true, true, false]);
  // The first one's process id is in use again, by another process. The second one is from before this boot.
  assert.deepEqual(await Promise.all([{ ...identity, pid: process.ppid }, { ...deaf, boot: "another" }].map((each) => isDead(each, folder))), [true, true]);
});

test("owners of several processes live as long as their stores, and dead ones are forgotten", async (t) => {
  const folder = folderOf(t);
  const [other, store] = [child(t, "presence", folder, "owner-1"), storeIn(t, folder)];
  await other.said(1);
  const presence = store.presence("owner-2");
  assert.deepEqual((await presence.alive()).sort(), ["owner-1", "owner-2"]);
  other.signal("SIGSTOP");
  assert.deepEqual((await presence.alive()).sort(), ["owner-1", "owner-2"]);
  await other.kill();
  assert.deepEqual(await presence.alive(), ["owner-2"]);
  assert.deepEqual(readdirSync(folder).filter((name) => name.startsWith("owner.")), ["owner.owner-2"]);
  presence.leave();
  presence.leave();
  assert.deepEqual(await presence.alive(), []);
});
