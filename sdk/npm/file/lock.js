// The lock of a folder. Only its holder reads and writes the log.
//
// Names: `lock.<N>`. The highest one is the state: `free`, or the identity of the holder. The one below it is the *base*, which is `free` or
// belongs to a dead store. To take the lock is to make the name after the base: `link` succeeds for one store only. To release it is to remove
// that name again, so the base normally stays the same. If a holder dies, its own name becomes the base.
//
// Invariants:
// - Only a store that has read `lock.N` as free, or as a certainly dead store's, makes the name after N. That name counts only if, afterwards,
//   `lock.N` still says the same and no higher name is there. A base is removed only once the name after it has become the base. So a store that
//   was too slow, however long it was stopped, finds its base gone or changed, and withdraws.
// - A living holder is never robbed. Time decides nothing but how long a caller waits.
// - A name may be removed by hand, or together with the folder. So the holder looks at its name again before it relies on what it did. If the
//   name is gone, another store may have had the lock in between.
// - A waiting store announces itself by `want.<instance>`. A store that takes the lock again and again makes room for it.

import { join } from "node:path";
import { StoreError } from "semel";
import { linkAs, removeName, textOf, writeDurable } from "./disk.js";
import { isDead, readIdentity } from "./life.js";

const FREE = "free";
const POLL_MS_MAX = 8;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export const numbersOf = (names, pattern) => names.flatMap((name) => pattern.exec(name)?.[1] ?? []).map(Number);

const locksOf = (names) => numbersOf(names, /^lock\.(\d{1,15})$/);

export class Lock {
  #fs;
  #folder;
  #identity;
  /** The number of the base when it was last seen; and the number of the name that this store holds. */
  #base;
  #held;
  #isWanted = false;
  #isLost = false;
  /** Whether the folder may have a name that others take for this store's lock; and whether the base is one. */
  #isLeft = false;
  #isOwnBase = false;
  /** Which file the name was when it was last read. While it is the same file, its text need not be read again. */
  #seen;

  /** `identity` must already have its name `self.<instance>` in the folder. */
  constructor(fs, folder, identity) {
    this.#fs = fs;
    this.#folder = folder;
    this.#identity = identity;
  }

  get isHeld() {
    return this.#held !== undefined;
  }

  /** Whether others may see the lock as held by this store although it isn't, because a call of the system has failed. */
  get isLeft() {
    return this.#isLeft;
  }

  /** Whether others were waiting when this store took the lock. */
  get isWanted() {
    return this.#isWanted;
  }

  /**
   * Takes the lock. Resolves to the names in the folder, to whether the previous holder may have left its work undone (`isBroken`), and to whether
   * this store lost the lock when it last had it (`isLost`). Rejects at `untilMs`, on the clock of `performance`.
   */
  async take(untilMs) {
    let isWaiting = false;
    try {
      for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, POLL_MS_MAX)) {
        // Asked before it looks: a process that is stopped in between knows nothing of a holder that has let go meanwhile.
        const isLate = performance.now() >= untilMs;
        const tried = await this.#try();
        if (this.isHeld) return tried;
        if (isLate) throw busy(tried.holder);
        if (!isWaiting) isWaiting = await this.#want();
        await pause(pauseMs * (0.5 + Math.random()));
      }
    } finally {
      if (isWaiting) await removeName(this.#fs, this.#path(`want.${this.#identity.instance}`)).catch(() => {});
    }
  }

  /** Call it once the work that a dead holder left is mended: makes its name a free base, and removes all lower names. */
  async settle() {
    const base = this.#held - 1;
    const temporary = this.#path(`tmp.${this.#identity.instance}`);
    await writeDurable(this.#fs, temporary, FREE);
    await this.#fs.rename(temporary, this.#path(`lock.${base}`));
    this.#isOwnBase = false;
    // In ascending order: a store that finds its base in place then knows that the name after it is its own.
    const lower = locksOf(await this.#fs.readdir(this.#folder)).filter((number) => number < base);
    for (const number of lower.sort((a, b) => a - b)) await removeName(this.#fs, this.#path(`lock.${number}`));
  }

  /** Resolves to whether this store still holds the lock. If its name was removed or can't be read, it holds nothing any more. */
  async look() {
    if (!this.isHeld) return false;
    const path = this.#path(`lock.${this.#held}`);
    const seen = await this.#fs.stat(path, { bigint: true }).then(({ dev, ino, mtimeNs }) => `${dev} ${ino} ${mtimeNs}`, () => undefined);
    if (seen !== undefined && seen === this.#seen) return true;
    const text = await textOf(this.#fs, path).catch(() => null);
    if (text === this.#identity.text) this.#seen = seen;
    else this.#lose(text === null);
    return this.isHeld;
  }

  /** Call it right after `look`: by now the name must not be another store's. */
  async release() {
    try {
      await this.#fs.unlink(this.#path(`lock.${this.#held}`));
      this.#held = undefined;
      this.#isLeft = this.#isOwnBase;
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
      this.#lose(false);
    }
  }

  /** `isThere`: the name may still be in the folder. */
  #lose(isThere) {
    this.#held = undefined;
    this.#isLost = true;
    this.#isLeft = isThere || this.#isOwnBase;
  }

  /** Makes room for the stores that were waiting when the lock was last taken. */
  async yield() {
    this.#isWanted = false;
    let isAnybodyWaiting = false;
    for (const name of await this.#fs.readdir(this.#folder)) {
      if (!this.#isOthersWish(name)) continue;
      const text = await textOf(this.#fs, this.#path(name));
      if (text === undefined) continue;
      if (await isDead(readIdentity(text, name), this.#folder)) await removeName(this.#fs, this.#path(name));
      else isAnybodyWaiting = true;
    }
    if (isAnybodyWaiting) await pause(POLL_MS_MAX);
  }

  async #try() {
    const base = this.#base ?? (await this.#findBase());
    if (base.holder !== undefined) return base;
    const mine = this.#path(`lock.${base.number + 1}`);
    this.#base = undefined;
    this.#isOwnBase = base.text === this.#identity.text;
    this.#isLeft = true;
    if (!(await this.#link(mine))) {
      const { text, holder } = await this.#findBase();
      // The name may be this store's own: it lost sight of the name, or the call that made it reported a failure.
      this.#isLeft = this.#isOwnBase || text === this.#identity.text;
      return { holder };
    }
    const names = await this.#fs.readdir(this.#folder);
    const isMine = Math.max(...locksOf(names)) === base.number + 1 && (await textOf(this.#fs, this.#path(`lock.${base.number}`))) === base.text;
    if (!isMine) {
      await removeName(this.#fs, mine);
      this.#isLeft = this.#isOwnBase;
      return {};
    }
    this.#held = base.number + 1;
    const isLost = this.#isLost;
    this.#isLost = false;
    this.#isWanted = names.some((name) => this.#isOthersWish(name));
    const isBroken = base.text !== FREE;
    if (!isBroken) this.#base = base;
    return { names, isBroken, isLost };
  }

  /** Resolves to the base, or to the holder if there is a living one. */
  async #findBase() {
    const names = await this.#fs.readdir(this.#folder);
    const number = Math.max(-1, ...locksOf(names));
    if (number < 0) {
      await this.#makeFirst();
      return this.#findBase();
    }
    const name = `lock.${number}`;
    const text = await textOf(this.#fs, this.#path(name));
    // It was released meanwhile.
    if (text === undefined) return this.#findBase();
    if (text === FREE) return { number, text };
    const holder = readIdentity(text, name);
    // This store's own name, from a call that failed after it had made the name. Others see it as held, so here it is treated as a dead store's.
    if (holder.instance === this.#identity.instance) return { number, text };
    return (await isDead(holder, this.#folder)) ? { number, text } : { holder };
  }

  async #makeFirst() {
    const temporary = this.#path(`tmp.${this.#identity.instance}`);
    await writeDurable(this.#fs, temporary, FREE);
    await linkAs(this.#fs, temporary, this.#path("lock.0"));
    await removeName(this.#fs, temporary);
  }

  async #want() {
    await this.#link(this.#path(`want.${this.#identity.instance}`));
    return true;
  }

  #link(path) {
    return linkAs(this.#fs, this.#path(`self.${this.#identity.instance}`), path);
  }

  #isOthersWish(name) {
    return name.startsWith("want.") && name !== `want.${this.#identity.instance}`;
  }

  #path(name) {
    return join(this.#folder, name);
  }
}

function busy(holder) {
  return new StoreError("store-blocked", holder === undefined ? "the folder is busy: others keep taking it" : `the folder is busy: process ${holder.pid} holds it`);
}

export const lockLost = () => new StoreError("store-failed", "the folder's lock was removed while it was held");
