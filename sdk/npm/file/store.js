// The store: what is asked of it waits in line, and goes in batches: one taking of the lock, one append and one sync for all that waits.
//
// Invariants:
// - Calls take effect in the order they were made. None settles before its batch is durable, and a batch is all or nothing.
// - The lock is not released while an append that failed can't be undone: then all calls reject until it is. Those of the append itself settle
//   only then: should this process end before, whoever comes next may find what they wrote, so that nobody may be told that it is not there.
// - Where the lock turns out to be lost after a batch, its calls settle once the lock is taken anew and the log is read from its beginning: what
//   is in there is stored. Until then nothing is written or cut off.
// - A call that is not in a batch yet waits for the lock no longer than it may, and rejects having changed nothing.
// - What goes wrong is a StoreError, but wrong arguments and what `to` throws.

import { join, resolve } from "node:path";
import { StoreError } from "semel";
import { isMissing, makeFolder, removeName, writeDurable } from "./disk.js";
import { storeErrorOf } from "./errors.js";
import { entryBytes } from "./frames.js";
import { Identity } from "./life.js";
import { Lock, lockLost } from "./lock.js";
import { Log } from "./log.js";
import { announce, bury, checkOwner, livingOwners, retire } from "./owners.js";

export const ROW_BYTES_MAX = 16 << 20;
const ROWS_BYTES_MAX = 512 << 20;
const ID_BYTES_MAX = 1024;
/** A batch is closed once it is longer. */
const BATCH_BYTES = 4 << 20;
/** So long the lock is kept from batch to batch, where nobody else is known to wait. */
const HOLD_MS_MAX = 20;
/** So often it is tried to undo an append, or to learn what became of it, or to let go of the lock, whether anybody calls or not. */
const MEND_MS = 1_000;

export class FileStore {
  #fs;
  #folder;
  #busyMs;
  #rowsBytesMax;
  #identity;
  #lock;
  #log;
  #opening;
  #calls = [];
  #working;
  #closing;
  /** What takes back an owner that is announced; undefined of one that is still to be. */
  #owners = new Map();
  #isBuried = false;
  /** The calls of a batch that is not settled yet, with what its append failed with; and what tries to, where it could not be. */
  #doubtful;
  #mending;

  /** `fs` is `node:fs/promises`, or what a test puts in its place. */
  constructor(folder, { busyMs, fs, rowsBytesMax = ROWS_BYTES_MAX }) {
    this.#fs = fs;
    this.#folder = resolve(folder);
    this.#busyMs = busyMs;
    this.#rowsBytesMax = rowsBytesMax;
  }

  load() {
    return this.#call((view) => [...view.rows()]);
  }

  async change(id, to) {
    checkId(id);
    if (typeof to !== "function") throw new TypeError("semel: `to` is a function");
    return this.#call((view) => view.change(id, to));
  }

  async remove(ids, isDone) {
    const all = [...ids];
    all.forEach(checkId);
    if (typeof isDone !== "function") throw new TypeError("semel: `isDone` is a function");
    return this.#call((view) => all.forEach((id) => view.change(id, (row) => (row !== undefined && isDone(row) ? undefined : null))));
  }

  presence(owner) {
    checkOwner(owner);
    if (this.#closing !== undefined) throw closed();
    if (this.#owners.has(owner)) throw new StoreError("store-failed", `the owner ${owner} is there already`);
    // It is announced before any change that is called from now on: so whoever sees a row of this owner sees that it lives.
    this.#owners.set(owner, undefined);
    this.#open().catch(() => {});
    return {
      alive: async () => {
        if (this.#closing !== undefined) throw closed();
        try {
          await this.#open();
          return await livingOwners(this.#fs, this.#folder);
        } catch (error) {
          throw storeErrorOf(error);
        }
      },
      leave: () => {
        this.#owners.get(owner)?.();
        this.#owners.delete(owner);
      },
    };
  }

  close() {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close() {
    await this.#working;
    await this.#opening?.catch(() => {});
    if (this.#identity === undefined) return;
    for (const takeBack of this.#owners.values()) takeBack?.();
    clearTimeout(this.#mending);
    // Where it can't be learnt even now what became of a batch, its calls never settle.
    if (this.#doubtful !== undefined || this.#lock.isLeft) {
      this.#calls.push({ run: () => {}, done: () => {}, failed: () => {}, untilMs: performance.now() + this.#busyMs });
      await this.#work();
    }
    if (await this.#lock.look()) await this.#release();
    await this.#log.close();
    // Where the lock could not be released, whoever comes next in this process sees that its holder is gone; another process does once this one is.
    await removeName(this.#fs, this.#path(`self.${this.#identity.instance}`)).catch(() => {});
    this.#identity.end();
  }

  #call(run) {
    if (this.#closing !== undefined) return Promise.reject(closed());
    return new Promise((done, failed) => {
      this.#calls.push({ run, done, failed, untilMs: performance.now() + this.#busyMs });
      this.#working ??= this.#work().finally(() => (this.#working = undefined));
    });
  }

  async #work() {
    // What is called in one turn goes in one batch.
    await undefined;
    while (this.#calls.length > 0) {
      try {
        await this.#open();
        await this.#turn();
      } catch (error) {
        const told = storeErrorOf(error);
        if (await this.#isOver(told)) this.#settle(told);
        this.#reject(told);
      }
    }
    if (this.#lock?.isLeft) this.#mendLater();
  }

  /** Takes the lock, and works until nothing waits or others should have their turn. */
  async #turn() {
    try {
      await this.#begin();
    } catch (error) {
      if (await this.#lock.look()) await this.#release();
      throw error;
    }
    const keptUntilMs = performance.now() + (this.#lock.isWanted ? 0 : HOLD_MS_MAX);
    try {
      do await this.#batch();
      while (this.#lock.isHeld && this.#calls.length > 0 && performance.now() < keptUntilMs);
      if (this.#lock.isHeld) await this.#log.compact();
    } finally {
      await this.#release();
    }
    if (this.#lock.isWanted) await this.#lock.yield();
  }

  /** Takes the lock, unless it could not be released, and brings the log up to date. */
  async #begin() {
    const taken = (await this.#lock.look()) ? undefined : await this.#lock.take(this.#calls[0].untilMs);
    if (taken === undefined && this.#log.isOpen) return;
    const { names, isBroken, isLost } = taken ?? { names: await this.#fs.readdir(this.#folder), isBroken: true };
    if (isLost) await this.#log.close();
    await this.#log.catchUp(names, isBroken);
    if (isBroken) await this.#lock.settle();
    await this.#bury(isBroken);
  }

  /** Where that fails it is no call's fault: the lock is held on, and the next turn ends with another try. One comes by itself, for others may wait. */
  async #release() {
    if (this.#lock.isHeld && !this.#log.isInDoubt) await this.#lock.release().catch(() => {});
  }

  /** Removes what the dead left: when this store begins, and when somebody has died. */
  async #bury(isBroken) {
    if (this.#isBuried && !isBroken) return;
    await bury(this.#fs, this.#folder);
    this.#isBuried = true;
  }

  /** One commit. Calls are taken off the line only once there is nothing more to reject them all for. */
  async #batch() {
    await this.#mend();
    if (!this.#lock.isHeld) return;
    const view = new View(this.#log, this.#rowsBytesMax);
    const calls = [];
    while (this.#calls.length > 0 && view.bytes < BATCH_BYTES) {
      const { run, done, failed } = this.#calls.shift();
      try {
        const value = run(view);
        calls.push({ settle: () => done(value), failed });
      } catch (error) {
        calls.push({ settle: () => failed(error), failed });
      }
    }
    this.#doubtful = { calls };
    try {
      await this.#log.append([...view.changes]);
    } catch (error) {
      this.#doubtful.told = storeErrorOf(error);
    }
    // Last of all, so that the lock is let go of before anybody has called again.
    if (await this.#isMended().catch(() => false)) this.#settle();
    else if (this.#lock.isHeld) this.#mendLater();
    // Before all else that waits.
    else this.#calls.unshift({ run: () => {}, done: () => {}, failed: () => this.#mendLater(), untilMs: performance.now() + this.#busyMs });
  }

  /** Settles the batch before, if that is still to be done. */
  async #mend() {
    if ((this.#doubtful !== undefined || this.#log.isInDoubt) && (await this.#isMended())) this.#settle();
  }

  /** Undoes an append that failed. False where the lock turns out to be lost: then nothing is touched before it is taken anew. */
  async #isMended() {
    if (!(await this.#lock.look())) return false;
    await this.#log.mend();
    return true;
  }

  /** Tells the calls of the last batch what became of it: what the log says, unless that is over with `error`. */
  #settle(error = this.#log.isAppended ? undefined : (this.#doubtful?.told ?? lockLost())) {
    clearTimeout(this.#mending);
    const calls = this.#doubtful?.calls ?? [];
    this.#doubtful = undefined;
    for (const { settle, failed } of calls) error === undefined ? settle() : failed(error);
  }

  #mendLater() {
    if (this.#closing !== undefined || (this.#doubtful === undefined && !this.#lock.isLeft)) return;
    clearTimeout(this.#mending);
    // Any call mends what is there to mend, before all else.
    this.#mending = setTimeout(() => this.#call(() => {}).catch(() => this.#mendLater()), MEND_MS);
    // The lock of a process that has ended is nobody's.
    if (this.#doubtful === undefined) this.#mending.unref();
  }

  /** Whether it can't be learnt any more what became of a batch: of a folder that is gone, or a log that can't be read, nobody will find it. */
  async #isOver({ code, cause }) {
    if (this.#doubtful === undefined || this.#lock.isHeld) return false;
    // A name that this store gave another may also be said to be missing.
    return code === "store-damaged" || (cause?.code === "ENOENT" && (await isMissing(this.#fs, this.#path(`self.${this.#identity.instance}`))));
  }

  /** Of what waits, rejects those that have waited too long, or all where it is no matter of time. */
  #reject(error) {
    const nowMs = performance.now();
    const [rejected, kept] = [[], []];
    for (const call of this.#calls) (error.code === "store-blocked" && call.untilMs > nowMs ? kept : rejected).push(call);
    this.#calls = kept;
    rejected.forEach((call) => call.failed(error));
  }

  /** Makes what is missing: the folder, this store's name in it, its owners. What fails is tried again at the next call. */
  async #open() {
    const isComplete = () => this.#identity !== undefined && [...this.#owners.values()].every((takeBack) => takeBack !== undefined);
    while (!isComplete()) {
      this.#opening ??= this.#makeIdentity()
        .then(() => this.#announce())
        .finally(() => (this.#opening = undefined));
      await this.#opening;
    }
  }

  async #announce() {
    for (const [owner, takeBack] of this.#owners) {
      if (takeBack !== undefined) continue;
      await announce(this.#fs, this.#folder, this.#identity, owner);
      // It may have left meanwhile.
      if (this.#owners.has(owner)) this.#owners.set(owner, () => retire(this.#folder, owner));
      else retire(this.#folder, owner);
    }
  }

  async #makeIdentity() {
    if (this.#identity !== undefined) return;
    await makeFolder(this.#fs, this.#folder);
    this.#folder = await this.#fs.realpath(this.#folder);
    const identity = new Identity(this.#folder);
    const temporary = this.#path(`tmp.${identity.instance}`);
    try {
      await identity.listen();
      await writeDurable(this.#fs, temporary, identity.text);
      await this.#fs.rename(temporary, this.#path(`self.${identity.instance}`));
    } catch (error) {
      identity.end();
      // The next try makes another, and nobody would know whose this is.
      await removeName(this.#fs, temporary).catch(() => {});
      throw error;
    }
    this.#identity = identity;
    this.#lock = new Lock(this.#fs, this.#folder, identity);
    this.#log = new Log(this.#fs, this.#folder, this.#lock);
  }

  #path(name) {
    return join(this.#folder, name);
  }
}

/** The rows as a batch sees them: with its own changes, which are not durable yet. */
class View {
  changes = new Map();
  /** What the changes take in the log, and what all rows take with them. */
  bytes = 0;
  #liveBytes;
  #log;
  #rowsBytesMax;

  constructor(log, rowsBytesMax) {
    this.#log = log;
    this.#rowsBytesMax = rowsBytesMax;
    this.#liveBytes = log.liveBytes;
  }

  *rows() {
    for (const [id, row] of this.#log.rows) {
      if (!this.changes.has(id)) yield [id, new Uint8Array(row)];
    }
    for (const [id, row] of this.changes) {
      if (row !== undefined) yield [id, new Uint8Array(row)];
    }
  }

  change(id, to) {
    const before = this.#get(id);
    // Copies: what others hold may change.
    const row = to(before && new Uint8Array(before));
    if (row !== null) this.set(id, row === undefined ? undefined : this.#checked(id, row));
  }

  set(id, row) {
    this.#liveBytes += this.#growth(id, row);
    if (row === undefined && !this.#log.rows.has(id)) {
      this.changes.delete(id);
      return;
    }
    this.changes.set(id, row);
    this.bytes += entryBytes(id, row);
  }

  #get(id) {
    return this.changes.has(id) ? this.changes.get(id) : this.#log.rows.get(id);
  }

  #growth(id, row) {
    const before = this.#get(id);
    return (row === undefined ? 0 : entryBytes(id, row)) - (before === undefined ? 0 : entryBytes(id, before));
  }

  #checked(id, row) {
    if (!(row instanceof Uint8Array)) throw new TypeError("semel: a row is a Uint8Array");
    if (row.length > ROW_BYTES_MAX) throw new StoreError("store-full", `a row of ${row.length} bytes; the most is ${ROW_BYTES_MAX}`);
    if (this.#liveBytes + this.#growth(id, row) > this.#rowsBytesMax) {
      throw new StoreError("store-full", `the rows would take more than ${this.#rowsBytesMax} bytes`);
    }
    return Buffer.from(row);
  }
}

function checkId(id) {
  if (typeof id !== "string") throw new TypeError("semel: an id is a string");
  if (Buffer.byteLength(id) > ID_BYTES_MAX) throw new StoreError("store-full", `an id of more than ${ID_BYTES_MAX} bytes`);
}

const closed = () => new StoreError("store-failed", "the store is closed");
