// The store. Calls wait in a queue and are done in batches: everything that waits takes the lock once, and needs one append and one sync.
//
// Invariants:
// - Calls take effect in the order in which they were made. No call settles before its batch is durable, and a batch is all or nothing.
// - While a failed append can't be undone, the lock is not released, and new calls reject. The calls of the append itself settle only once it is
//   undone: if this process ended before, the next store might find what they wrote, so nobody may have been told that it is not there.
// - If the lock turns out to be lost after a batch, its calls settle once the lock is taken again and the log is read from its beginning: whatever
//   is in the log is stored. Until then nothing is written or cut off. If that does not tell what became of the batch, its calls reject with an
//   `UnknownError`.
// - A call that is not in a batch yet waits for the lock for `busyMs` at most, and then rejects without any change.
// - Every failure is a StoreError, except wrong arguments, and whatever `to` or `isDone` throws.

import { join, resolve } from "node:path";
import { StoreError } from "semel";
import { isMissing, makeFolder, removeName, writeDurable } from "./disk.js";
import { inDoubt, storeErrorOf } from "./errors.js";
import { entryBytes } from "./frames.js";
import { Identity } from "./life.js";
import { Lock, lockLost } from "./lock.js";
import { Log } from "./log.js";
import { announce, bury, checkOwner, livingOwners, retire } from "./owners.js";

export const ROW_BYTES_MAX = 16 << 20;
const ROWS_BYTES_MAX = 512 << 20;
const ID_BYTES_MAX = 1024;
/** A batch takes no further calls once it is longer than this. */
const BATCH_BYTES = 4 << 20;
/** How long the lock is kept from batch to batch while no other store is known to wait. */
const HOLD_MS_MAX = 20;
/** The pause between tries to undo an append, to learn what became of it, or to release the lock. They are made even if nobody calls. */
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
  /** For each owner, the function that takes it back; undefined until it is announced. */
  #owners = new Map();
  #isBuried = false;
  /** `{ calls, told }`: the calls of a batch that is not settled yet, and the error of its append. `#mending`: the timer of the next try to settle it. */
  #doubtful;
  #mending;

  /** `fs`: `node:fs/promises`, or a test's replacement. */
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
    // Announced before any change that is called from now on, so any store that sees a row of this owner also sees that the owner is alive.
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
    // If even this does not tell what became of a batch, its calls never settle.
    if (this.#doubtful !== undefined || this.#lock.isLeft) {
      this.#calls.push({ run: () => {}, done: () => {}, failed: () => {}, untilMs: performance.now() + this.#busyMs });
      await this.#work();
    }
    if (await this.#lock.look()) await this.#release();
    await this.#log.close();
    // If the lock could not be released, other stores of this process see that its holder is gone; other processes see it once this process has ended.
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
    // So that all calls of one turn of the event loop go into one batch.
    await undefined;
    while (this.#calls.length > 0) {
      try {
        await this.#open();
        await this.#turn();
      } catch (error) {
        const told = storeErrorOf(error);
        if (await this.#isOver(told)) this.#settle(inDoubt(told));
        this.#reject(told);
      }
    }
    if (this.#lock?.isLeft) this.#mendLater();
  }

  /** Takes the lock, and works until no call waits, or until it is other stores' turn. */
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

  /** Takes the lock, unless it is still held because it could not be released, and brings the log up to date. */
  async #begin() {
    const taken = (await this.#lock.look()) ? undefined : await this.#lock.take(this.#calls[0].untilMs);
    if (taken === undefined && this.#log.isOpen) return;
    const { names, isBroken, isLost } = taken ?? { names: await this.#fs.readdir(this.#folder), isBroken: true };
    if (isLost) await this.#log.close();
    await this.#log.catchUp(names, isBroken);
    if (isBroken) await this.#lock.settle();
    await this.#bury(isBroken);
  }

  /** A failure here is not the fault of any call: the lock stays held, and the next turn tries again. One comes by itself, because others may wait. */
  async #release() {
    if (this.#lock.isHeld && !this.#log.isInDoubt) await this.#lock.release().catch(() => {});
  }

  /** Removes what dead stores left: once when this store begins, and whenever a holder has died. */
  async #bury(isBroken) {
    if (this.#isBuried && !isBroken) return;
    await bury(this.#fs, this.#folder);
    this.#isBuried = true;
  }

  /** Makes one commit. Calls leave the queue only once nothing can happen any more that must reject them all. */
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
    // Settled last, so that the lock is released before the callers call again.
    if (await this.#isMended().catch(() => false)) this.#settle();
    else if (this.#lock.isHeld) this.#mendLater();
    // Goes ahead of everything that waits.
    else this.#calls.unshift({ run: () => {}, done: () => {}, failed: () => this.#mendLater(), untilMs: performance.now() + this.#busyMs });
  }

  /** Settles the previous batch, if it is not settled yet. */
  async #mend() {
    if ((this.#doubtful !== undefined || this.#log.isInDoubt) && (await this.#isMended())) this.#settle();
  }

  /** Undoes a failed append. Resolves to false if the lock turns out to be lost: then nothing may be touched before it is taken again. */
  async #isMended() {
    if (!(await this.#lock.look())) return false;
    await this.#log.mend();
    return true;
  }

  /** What the log says of the last batch: undefined if it is there, otherwise the error to tell. */
  #became() {
    const told = this.#doubtful?.told ?? lockLost();
    if (this.#log.isAppended) return undefined;
    return this.#log.mayBeAppended ? inDoubt(told) : told;
  }

  /** Tells the calls of the last batch what became of it: what the log says, or `error` if that can't be learnt any more. */
  #settle(error = this.#became()) {
    clearTimeout(this.#mending);
    const calls = this.#doubtful?.calls ?? [];
    this.#doubtful = undefined;
    for (const { settle, failed } of calls) error === undefined ? settle() : failed(error);
  }

  #mendLater() {
    if (this.#closing !== undefined || (this.#doubtful === undefined && !this.#lock.isLeft)) return;
    clearTimeout(this.#mending);
    // Any call first mends whatever there is to mend.
    this.#mending = setTimeout(() => this.#call(() => {}).catch(() => this.#mendLater()), MEND_MS);
    // The timer need not keep the process alive: once a process has ended, its lock counts as free.
    if (this.#doubtful === undefined) this.#mending.unref();
  }

  /**
   * Whether it can't be learnt any more what became of a batch, because the folder is gone or can't be read. Somebody may bring the folder back, or mend it,
   * and then find the batch.
   */
  async #isOver({ code, cause }) {
    if (this.#doubtful === undefined || this.#lock.isHeld) return false;
    // ENOENT alone does not prove that: it may also be about a name that this store has renamed.
    return code === "store-damaged" || (cause?.code === "ENOENT" && (await isMissing(this.#fs, this.#path(`self.${this.#identity.instance}`))));
  }

  /** Rejects the waiting calls that have waited too long; all of them, if the error is not about time. */
  #reject(error) {
    const nowMs = performance.now();
    const [rejected, kept] = [[], []];
    for (const call of this.#calls) (error.code === "store-blocked" && call.untilMs > nowMs ? kept : rejected).push(call);
    this.#calls = kept;
    rejected.forEach((call) => call.failed(error));
  }

  /** Makes what is missing: the folder, this store's name in it, its owners. If that fails, the next call tries again. */
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
      // The owner may have left meanwhile.
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
      // The next try makes another name, and nobody would know whose this one is.
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

/** The rows as a batch sees them: including its own changes, which are not durable yet. */
class View {
  changes = new Map();
  /** How many bytes the changes take in the log; and `#liveBytes`, how many all rows take including the changes. */
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
    // Copies, because the caller may change the bytes that it holds.
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
