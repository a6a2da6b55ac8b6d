// What the tests of the file store share: folders and their locks, child processes that use a store, and a file system that fails on demand.
//
// Invariant: after the test that made them, a folder is removed and a child has ended.

import { spawn } from "node:child_process";
import * as fs from "node:fs/promises";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { FileStore } from "../../sdk/npm/file/store.js";
import { StoreError } from "../../sdk/npm/node.js";
import { until } from "./stub.mjs";

export function folderOf(t) {
  const folder = mkdtempSync(join(tmpdir(), "semel-"));
  t.after(() => until(() => isRemoved(folder), "the folder is gone"));
  return folder;
}

/** Removes a folder. Returns false if a store that is still closing makes a file in it meanwhile. */
function isRemoved(folder) {
  try {
    rmSync(folder, { recursive: true, force: true });
    return true;
  } catch (error) {
    if (error.code !== "ENOTEMPTY") throw error;
    return false;
  }
}

/** A store that is closed after the test. */
export function storeIn(t, folder, options) {
  const store = new FileStore(folder, { busyMs: 10_000, fs, ...options });
  t.after(() => store.close());
  return store;
}

export const text = (row) => (row === undefined ? undefined : Buffer.from(row).toString());

/** Resolves to the rows, as texts by id. */
export async function textsIn(store) {
  return Object.fromEntries((await store.load()).map(([id, row]) => [id, text(row)]));
}

export const put = (store, id, row) => store.change(id, () => Buffer.from(row));

/** Resolves to what a store finds that is opened just for this. */
export async function look(folder) {
  const store = new FileStore(folder, { busyMs: 10_000, fs });
  try {
    return await textsIn(store);
  } finally {
    await store.close();
  }
}

/** The names of its lock files, in order. */
export const locks = (folder) => readdirSync(folder).filter((name) => name.startsWith("lock.")).sort();

/** The path of the log. */
export function logIn(folder) {
  const logs = readdirSync(folder).filter((name) => name.endsWith(".log"));
  if (logs.length !== 1) throw new Error(`one log is expected in ${readdirSync(folder)}`);
  return join(folder, logs[0]);
}

/** Starts a process that does `what` of file-child.mjs, and collects the lines that it prints. */
export function child(t, what, folder, ...args) {
  const path = fileURLToPath(new URL("./file-child.mjs", import.meta.url));
  const started = spawn(process.execPath, [path, what, folder, ...args.map(String)], { stdio: ["ignore", "pipe", "inherit"] });
  const lines = [];
  const listeners = new Set();
  const ended = new Promise((resolve) => started.once("close", (code, signal) => resolve({ code, signal })));
  createInterface(started.stdout).on("line", (line) => {
    lines.push(line);
    listeners.forEach((each) => each());
  });
  t.after(() => {
    started.kill("SIGKILL");
    return ended;
  });
  return {
    pid: started.pid,
    lines,
    ended,
    signal: (name) => started.kill(name),
    /** Ends it at once. All lines that it had printed are in `lines` then. */
    async kill() {
      started.kill("SIGKILL");
      await ended;
    },
    /** Resolves once it has printed `count` lines. */
    said(count) {
      return new Promise((resolve, reject) => {
        const look = () => {
          if (lines.length < count) return;
          listeners.delete(look);
          resolve();
        };
        listeners.add(look);
        look();
        ended.then(() => reject(new Error(`the child ended after ${lines.length} lines`)));
      });
    },
  };
}

/** The code of a store's error, and that of the system's error behind it. */
export function told(error) {
  if (!(error instanceof StoreError)) return `no StoreError: ${error}`;
  return [error.code, ...(error.cause ? [error.cause.code] : [])].join(" ");
}

/** The error of a failed system call. */
export const failure = (code) => Object.assign(new Error(`${code}: made by the test`), { code });

/** A fault of the file system that fails with this code. */
export const fail = (code) => () => {
  throw failure(code);
};
export const broken = fail("EIO");

/**
 * The file system with faults. `faults` has functions by the names of `node:fs/promises` and of a file's methods; each call first asks its function.
 * What that throws is the call's error, and what it returns, if anything, is the call's result. `calls` counts the calls.
 */
export function faultyFs(faults) {
  const calls = {};
  const asked = (name, real) =>
    async (...args) => {
      calls[name] = (calls[name] ?? 0) + 1;
      return (await faults[name]?.({ args, n: calls[name], real: () => real(...args), with: real })) ?? real(...args);
    };
  const wrap = (target) =>
    new Proxy(target, {
      get(_, name) {
        const value = target[name];
        return typeof value === "function" ? asked(name, value.bind(target)) : value;
      },
    });
  const all = wrap({ ...fs });
  return { calls, faults, fs: new Proxy(all, { get: (_, name) => (name === "open" ? async (...args) => wrap(await all.open(...args)) : all[name]) }) };
}

/** A store that holds the folder's lock until `go`. */
export async function holder(t, folder) {
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
