// Tells which stores are alive: each open store has an identity, from which other stores can tell for certain that it is gone.
//
// Invariants:
// - A store counts as dead only if it certainly is. One that can't be judged, is stopped, or is only slow, counts as alive. Time alone never
//   makes a store dead.
// - An identity is whole wherever its text can be read, because its files get their names by `link` and `rename`.
//
// A process is known by its number, and on Linux also by its start time, by the boot, and by the namespace that numbers it. A number of another
// namespace says nothing here. So on Linux there is a second sign: each store listens at a socket in the folder, which the kernel closes when the
// process ends. If no socket can be made, a store in another container counts as alive.

import { randomUUID } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { threadId } from "node:worker_threads";
import { StoreError } from "semel";

const IS_LINUX = process.platform === "linux";
/** The path of a socket and its final zero must fit into 108 bytes: the system cuts off a longer one. */
const SOCKET_PATH_BYTES_MAX = 107;
const PROBE_MS_MAX = 100;

/** The stores open in this realm of this thread, across all copies of this module. A test runner may make several realms. */
const open = (globalThis[Symbol.for("semel.file.open")] ??= new Set());

function readOr(read, otherwise) {
  try {
    return read();
  } catch {
    return otherwise;
  }
}

/** The state, number of threads and start time of a process; undefined if Linux does not tell. */
function stat(pid) {
  const text = readOr(() => readFileSync(`/proc/${pid}/stat`, "latin1"));
  if (text === undefined) return undefined;
  // The second field is a name in parentheses that may itself hold blanks and parentheses. So fields are counted from the last parenthesis.
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

/** The identity of a store in `folder`. It is alive until `end` is called. */
export class Identity {
  #server;

  constructor(folder) {
    this.folder = folder;
    this.instance = randomUUID();
    this.text = JSON.stringify({ instance: this.instance, ...thisProcess() });
    open.add(this.instance);
  }

  /** Starts to listen. Resolves even if that fails. Call it before others can read `text`. */
  async listen() {
    const path = socketOf(this.folder, this.instance);
    if (path === undefined) return;
    // `exclusive`: in a cluster, the primary process would listen instead, and outlive this one.
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

/** The path at which a store listens; undefined if it can't. Node removes the socket when the server closes. */
function socketOf(folder, instance) {
  const path = join(folder, `socket.${instance}`);
  return IS_LINUX && Buffer.byteLength(path) <= SOCKET_PATH_BYTES_MAX ? path : undefined;
}

/** The identity that a text is; undefined if it is none. */
export function identityOf(text) {
  const identity = readOr(() => JSON.parse(text));
  return Number.isSafeInteger(identity?.pid) && identity.pid > 0 && typeof identity.instance === "string" ? identity : undefined;
}

/** Reads an identity from the file `name`. */
export function readIdentity(text, name) {
  const identity = identityOf(text);
  if (identity === undefined) throw new StoreError("store-damaged", `${name} is damaged: it names no process. Remove it once no process uses the folder`);
  return identity;
}

/** Resolves to whether the store with this identity is certainly gone. */
export async function isDead(identity, folder) {
  const { pid, start, boot, space, thread, instance, listens } = identity;
  const here = thisProcess();
  // Another boot; or another container of this boot, because LXC and systemd-nspawn give each container its own boot id. The socket tells which.
  if (boot !== here.boot) return boot !== undefined && here.boot !== undefined && (listens !== true || (await isDeaf(folder, instance)));
  const isSame = pid === here.pid && start === here.start && space === here.space;
  // A store that listens is asked at its socket, because it may belong to another realm, which has its own `open`.
  if (isSame && thread === here.thread && (open.has(instance) || listens !== true)) return !open.has(instance);
  // A thread can end before its process, and a process number of another namespace means nothing here. Only the socket can tell.
  if (isSame || space !== here.space) return listens === true && (await isDeaf(folder, instance));
  return isProcessDead(pid, start);
}

function isProcessDead(pid, start) {
  try {
    process.kill(pid, 0);
  } catch (error) {
    // EPERM: the process is there, and belongs to another user.
    return error.code === "ESRCH";
  }
  if (!IS_LINUX) return false;
  const now = stat(pid);
  // A zombie with other threads left is not dead yet: one of them may still be in a write.
  return now !== undefined && ((start !== undefined && now.start !== start) || ("ZX".includes(now.state) && now.threads <= 1));
}

/**
 * Whether nobody listens any more at the socket of a store that did listen: the socket refuses, or is gone because its thread ended. For a stopped
 * process, the kernel still accepts connections.
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
