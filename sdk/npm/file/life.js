// Who lives: each open store has an identity, and others can tell for certain that it is gone.
//
// Invariants:
// - Dead is only who is certainly dead. Whoever can't be judged, is stopped, or only slow, is alive: no time ever makes anybody dead.
// - An identity is whole wherever its text can be read, since it gets its names by `link` and `rename`.
//
// A process is known by its number, and on Linux also by the instant it started at, the boot, and the namespace that numbers it.
// A number of another namespace says nothing here, so there is a second sign on Linux: each store listens at a socket in the
// folder, which the kernel closes with it. Where no such socket can be had, who is in another container counts as alive.

import { randomUUID } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { threadId } from "node:worker_threads";
import { StoreError } from "semel";

const IS_LINUX = process.platform === "linux";
/** A socket's whole path must fit into 108 bytes with a zero behind it; beyond, the system cuts it off. */
const SOCKET_PATH_BYTES_MAX = 107;
const PROBE_MS_MAX = 100;

/** The stores that are open in this realm of this thread, in whichever copy of this module. A test runner may have more realms. */
const open = (globalThis[Symbol.for("semel.file.open")] ??= new Set());

function readOr(read, otherwise) {
  try {
    return read();
  } catch {
    return otherwise;
  }
}

/** State, number of threads and start of a process, or undefined where Linux does not tell. */
function stat(pid) {
  const text = readOr(() => readFileSync(`/proc/${pid}/stat`, "latin1"));
  if (text === undefined) return undefined;
  // The name before may hold blanks and parentheses: fields are counted from the last one, which ends the second.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return { state: fields[0], threads: Number(fields[17]), start: fields[19] };
}

function thisProcess() {
  const base = { pid: process.pid, thread: threadId };
  if (!IS_LINUX) return base;
  return {
    ...base,
    start: stat("self")?.start,
    boot: readOr(() => readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim()),
    space: readOr(() => readlinkSync("/proc/self/ns/pid")),
  };
}

/** The identity of a store in `folder`. It lives until `end`. */
export class Identity {
  #server;

  constructor(folder) {
    this.folder = folder;
    this.instance = randomUUID();
    this.text = JSON.stringify({ instance: this.instance, ...thisProcess() });
    open.add(this.instance);
  }

  /** Starts to listen; resolves also where that can't be. To be called before others can read `text`. */
  async listen() {
    const path = socketOf(this.folder, this.instance);
    if (path === undefined) return;
    // `exclusive`: in a cluster, its primary would listen instead, and live on.
    const server = createServer((connection) => connection.destroy()).unref();
    const listens = await new Promise((resolve) => server.once("error", () => resolve(false)).listen({ path, exclusive: true }, () => resolve(true)));
    if (!listens) return;
    server.removeAllListeners("error").on("error", () => {});
    this.#server = server;
    this.text = JSON.stringify({ ...JSON.parse(this.text), listens: true });
  }

  end() {
    open.delete(this.instance);
    this.#server?.close();
  }
}

/** Where a store listens. Node removes the socket when it closes. */
function socketOf(folder, instance) {
  const path = join(folder, `socket.${instance}`);
  return IS_LINUX && Buffer.byteLength(path) <= SOCKET_PATH_BYTES_MAX ? path : undefined;
}

/** Reads an identity from the file `name`. */
export function readIdentity(text, name) {
  const identity = readOr(() => JSON.parse(text));
  if (!Number.isSafeInteger(identity?.pid) || identity.pid <= 0 || typeof identity.instance !== "string") {
    throw new StoreError("store-damaged", `${name} is damaged: it names no process. Remove it once no process uses the folder`);
  }
  return identity;
}

/** Whether the store with this identity is certainly gone. */
export async function isDead(identity, folder) {
  const { pid, start, boot, space, thread, instance, listens } = identity;
  const here = thisProcess();
  // Another boot, or another container of this one: LXC and systemd-nspawn give each an id of its own. What listens says which.
  if (boot !== here.boot) return boot !== undefined && here.boot !== undefined && (listens !== true || (await isDeaf(folder, instance)));
  const isSame = pid === here.pid && start === here.start && space === here.space;
  // What listens is asked, for it may be another realm's.
  if (isSame && thread === here.thread && (open.has(instance) || listens !== true)) return !open.has(instance);
  // A thread can end without its process; a number of another namespace is nobody's here.
  if (isSame || space !== here.space) return listens === true && (await isDeaf(folder, instance));
  return isProcessDead(pid, start);
}

function isProcessDead(pid, start) {
  try {
    process.kill(pid, 0);
  } catch (error) {
    // EPERM: it is there, and another user's.
    return error.code === "ESRCH";
  }
  if (!IS_LINUX) return false;
  const now = stat(pid);
  // A zombie whose other threads still end may still be within a write.
  return now !== undefined && ((start !== undefined && now.start !== start) || ("ZX".includes(now.state) && now.threads <= 1));
}

/**
 * Whether nobody listens at a socket that somebody listened at: it refuses, or it left when its thread ended. The kernel answers for a
 * process that is stopped.
 */
function isDeaf(folder, instance) {
  const path = socketOf(folder, instance);
  if (path === undefined) return false;
  return new Promise((resolve) => {
    const connection = connect(path);
    const settle = (answer) => {
      connection.destroy();
      resolve(answer);
    };
    connection.once("connect", () => settle(false)).once("error", ({ code }) => settle(code === "ECONNREFUSED" || code === "ENOENT"));
    connection.setTimeout(PROBE_MS_MAX, () => settle(false));
  });
}
