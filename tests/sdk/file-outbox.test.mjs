// Tests an outbox on the file store: another process, running or started later, goes on with the requests that a process left, and each happens once.

import assert from "node:assert/strict";
import { appendFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileStore } from "../../sdk/npm/file.js";
import { HEADER_BYTES, makeHeader } from "../../sdk/npm/file/frames.js";
import { Semel, StoreError } from "../../sdk/npm/node.js";
import { child, failure, faultyFs, folderOf, logIn, put, storeIn } from "./file-support.mjs";
import { serveStub } from "./http-stub.mjs";
import { Stub, deposit, hang, outbox, rejection, until, within } from "./stub.mjs";

const LIMIT = { timeout: 30_000 };
/** How often an outbox looks for requests that other processes left. */
const LOOK_MS = 5_000;

const isChilds = ({ headers }) => headers.get("x-process") === "child";

/** A server whose answers never reach the child process. It runs the child's request to `accounts/ran`; the other requests never arrive. */
async function unanswered(t) {
  const { stub, url } = await serveStub(t);
  stub.each = (call, serve) => {
    if (call.kind !== "change" || !isChilds(call)) return serve();
    if (call.key === "accounts/ran") serve();
    return hang();
  };
  return { stub, url };
}

/** An outbox of this process, the answers that it recovered, and how often it has looked which owners live. */
async function opened(t, url, folder) {
  const store = fileStore(folder);
  const own = { recovered: [], looks: 0, presence: store.presence };
  store.presence = (owner) => {
    const presence = own.presence.call(store, owner);
    return {
      alive: () => presence.alive().finally(() => (own.looks += 1)),
      leave: () => presence.leave(),
    };
  };
  const onrecovered = async ({ response }) => void own.recovered.push({ ...(await response.json()), replayed: response.headers.get("semel-status") === "replayed" });
  const { semel } = await outbox(t, { url, fetch: globalThis.fetch, store, onrecovered });
  return Object.assign(own, { semel });
}

/** Checks that both requests of the child have run once, and that this process got both answers. */
async function isTakenOver({ semel, recovered }, stub) {
  await until(() => recovered.length === 2, "both answers are here");
  assert.deepEqual(recovered.sort((one, other) => (one.path < other.path ? -1 : 1)), [
    { ran: 1, path: "/accounts/lost/deposit", replayed: false },
    { ran: 1, path: "/accounts/ran/deposit", replayed: true },
  ]);
  assert.deepEqual([...stub.runs.values()], [1, 1]);
  const ids = (attempts) => attempts.map(({ id }) => id).sort();
  assert.deepEqual(ids(stub.attempts.filter((call) => !isChilds(call))), ids(stub.attempts.filter(isChilds)));
  await until(async () => (await semel.pending()).length === 0, "nothing is left");
}

test("requests of another process are taken over after kill -9, not while it is stopped, and each runs once", LIMIT, async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const { stub, url } = await unanswered(t);
  const folder = folderOf(t);
  const own = await opened(t, url, folder);
  const other = child(t, "deposit", folder, url, "ran", "lost");
  await until(() => stub.attempts.length === 2, "both are sent");
  other.signal("SIGSTOP");
  t.mock.timers.tick(LOOK_MS);
  await until(() => own.looks === 2, "it has looked");
  assert.deepEqual((await own.semel.pending()).map(({ state }) => state), ["elsewhere", "elsewhere"]);
  assert.equal(stub.attempts.length, 2);
  await other.kill();
  t.mock.timers.tick(LOOK_MS);
  await isTakenOver(own, stub);
});

test("a process that starts after kill -9 goes on at once with the requests that were left, and each runs once", LIMIT, async (t) => {
  const { stub, url } = await unanswered(t);
  const folder = folderOf(t);
  const before = child(t, "deposit", folder, url, "ran", "lost");
  await until(() => stub.attempts.length === 2, "both are sent");
  await before.kill();
  const own = await opened(t, url, folder);
  await isTakenOver(own, stub);
  assert.equal(own.looks, 1, "the first look found it");
});

test("a request that a closed outbox left is taken over by another outbox on the folder", LIMIT, async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const { stub, url } = await serveStub(t);
  const folder = folderOf(t);
  const own = await opened(t, url, folder);
  stub.each = (call, serve) => (call.kind === "change" ? hang() : serve());
  const { semel } = await outbox(t, { url, fetch: globalThis.fetch, store: fileStore(folder) });
  const answer = rejection(deposit(semel));
  await until(() => stub.attempts.length === 1, "it is sent");
  await semel.close();
  assert.equal((await answer).code, "closed");
  stub.each = (_call, serve) => serve();
  await until(() => readdirSync(folder).filter((name) => name.startsWith("owner.")).length === 1, "it has left");
  t.mock.timers.tick(LOOK_MS);
  await until(() => own.recovered.length === 1, "the answer is here");
  assert.deepEqual([...stub.runs.values()], [1]);
});

test("two processes on one folder leave each other's requests alone, and one that never closes ends by itself", LIMIT, async (t) => {
  const { stub, url } = await serveStub(t);
  const folder = folderOf(t);
  let release;
  const isReleased = new Promise((resolve) => (release = resolve));
  stub.each = async (call, serve) => {
    if (call.kind === "change" && isChilds(call)) await isReleased;
    return serve();
  };
  const other = child(t, "deposit", folder, url, "a", "b");
  await until(() => stub.attempts.length === 2, "both are sent");
  const own = await opened(t, url, folder);
  assert.deepEqual((await own.semel.pending()).map(({ state }) => state), ["elsewhere", "elsewhere"]);
  await Promise.all(["a", "c"].map((account) => deposit(own.semel, account)));
  assert.equal(stub.attempts.length, 4);
  release();
  assert.deepEqual(await within(other.ended, "it ends", 15_000), { code: 0, signal: null });
  assert.deepEqual([other.lines.sort(), own.recovered], [["a 200", "b 200"], []]);
  assert.deepEqual([...stub.runs.values()], [1, 1, 1, 1]);
});

/** The code that `open` rejects with on this store. Nothing may have been sent. */
async function refused(store) {
  const server = new Stub();
  const error = await rejection(Semel.open({ url: "https://worker.test", fetch: server.fetch, store }));
  assert.deepEqual([error instanceof StoreError, server.calls], [true, []]);
  return error.code;
}

test("open rejects with the store error of its folder before anything is sent", LIMIT, async (t) => {
  const damaged = folderOf(t);
  const holder = storeIn(t, damaged);
  await put(holder, "a", "1");
  await holder.close();
  appendFileSync(logIn(damaged), "x".repeat(100));
  assert.equal(await refused(fileStore(damaged)), "store-damaged");

  const newer = folderOf(t);
  const { bytes: header } = makeHeader(HEADER_BYTES);
  header.writeUInt32LE(2, 8);
  writeFileSync(join(newer, "semel.1.log"), header);
  assert.equal(await refused(fileStore(newer)), "store-newer");

  const held = folderOf(t);
  const other = child(t, "signal", held, "SIGSTOP");
  await other.said(1);
  assert.equal(await refused(fileStore(held, { busyMs: 100 })), "store-blocked");

  for (const [code, told] of [["ENOSPC", "store-full"], ["EDQUOT", "store-full"], ["EROFS", "store-failed"]]) {
    const mkdir = () => {
      throw failure(code);
    };
    assert.equal(await refused(storeIn(t, folderOf(t), { fs: faultyFs({ mkdir }).fs })), told);
  }
});

test("a request whose failed append can't be undone is unknown, and the next outbox sends it", LIMIT, async (t) => {
  const folder = folderOf(t);
  const disk = faultyFs({});
  const store = storeIn(t, folder, { fs: disk.fs });
  const { semel, server } = await outbox(t, { store });
  await deposit(semel, "first");
  for (const name of ["datasync", "sync", "truncate"]) {
    disk.faults[name] = () => {
      throw failure("EROFS");
    };
  }
  const before = disk.calls.truncate ?? 0;
  const failed = rejection(deposit(semel));
  await until(() => disk.calls.truncate > before, "it is tried to undo it");
  await rejection(put(store, "another", "1"));
  await semel.close();
  const { executed, retry, requestId } = await failed;
  assert.deepEqual([executed, retry], ["unknown", "same-id"]);
  const recovered = [];
  await outbox(t, { store: storeIn(t, folder), server, onrecovered: (one) => void recovered.push(one.requestId) });
  await until(() => recovered.includes(requestId), "who comes next has sent it");
});
