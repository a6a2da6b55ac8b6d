// The lock of a folder: who holds it is the only one that reads and writes the log.
//
// Names: `lock.<N>`. The highest is the state: `free`, or the identity of its holder. Below it lies the *base*, which is `free` or
// belongs to somebody dead. To hold is to own the name that follows the base: `link` makes it for one only. Releasing
// removes it again, so in normal running the base stays. Where a holder dies, its own name becomes the base.
//
// Invariants:
// - The name after N is made only by who has read `lock.N` as free or as that of somebody certainly dead; and it counts only if, after
//   it was made, `lock.N` still says the same and nothing higher is there. A base leaves only when the name after it has become
//   one. So whoever was too slow, however long it was stopped in between, finds its base gone or changed, and withdraws.
// - Nobody alive is robbed; nothing here goes by time but how long one waits.
// - A name may be removed by hand, or with the folder. So who holds it looks at it again before it relies on what it did; where it is gone,
//   somebody else may have had a turn.
// - Who waits says so by `want.<instance>`, and who holds the lock again and again makes room for it.

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
  /** The number of the base when it was last seen, and of the name that is held. */
  #base;
  #held;
  #isWanted = false;
  #isLost = false;
  /** Whether the folder may have a name that others take for a lock of this one; and whether the base is such a name. */
  #isLeft = false;
  #isOwnBase = false;
  /** Which file the name was when it was read last: as long as it is the same, it need not be read. */
  #seen;

  /** `identity` has its name `self.<instance>` in the folder already. */
  constructor(fs, folder, identity) {
    this.#fs = fs;
    this.#folder = folder;
    this.#identity = identity;
  }

  get isHeld() {
    return this.#held !== undefined;
  }

  /** Whether others may see it held by this one, though it isn't: a call of the system has failed. */
  get isLeft() {
    return this.#isLeft;
  }

  /** Whether others waited when the lock was taken. */
  get isWanted() {
    return this.#isWanted;
  }

  /**
   * Takes the lock. Gives the names in the folder, whether the holder before may have left its work undone, and whether this one
   * has lost the lock when it last had it. Rejects at `untilMs` on performance's clock.
   */
  async take(untilMs) {
    let isWaiting = false;
    try {
      for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, POLL_MS_MAX)) {
        const tried = await this.#try();
        if (this.isHeld) return tried;
        if (performance.now() >= untilMs) throw busy(tried.holder);
        if (!isWaiting) isWaiting = await this.#want();
        await pause(pauseMs * (0.5 + Math.random()));
      }
    } finally {
      if (isWaiting) await removeName(this.#fs, this.#path(`want.${this.#identity.instance}`)).catch(() => {});
    }
  }

  /** What a broken lock was broken for is mended: its name becomes a free base, and what is lower goes. */
  async settle() {
    const base = this.#held - 1;
    const temporary = this.#path(`tmp.${this.#identity.instance}`);
    await writeDurable(this.#fs, temporary, FREE);
    await this.#fs.rename(temporary, this.#path(`lock.${base}`));
    this.#isOwnBase = false;
    // In ascending order: whoever finds its base has the name after it to itself.
    const lower = locksOf(await this.#fs.readdir(this.#folder)).filter((number) => number < base);
    for (const number of lower.sort((a, b) => a - b)) await removeName(this.#fs, this.#path(`lock.${number}`));
  }

  /** Whether the name is still this one's. Where somebody has removed it, or it can't be seen, nothing is held any more. */
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

  /** To be called right after a look: the name must not be another's by now. */
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

  /** `isThere`: the name may be there all the same. */
  #lose(isThere) {
    this.#held = undefined;
    this.#isLost = true;
    this.#isLeft = isThere || this.#isOwnBase;
  }

  /** Makes room for who waited when the lock was last taken. */
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
      // It may be this one's: the name was lost sight of, or the call that made it said that it didn't.
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

  /** The base, or the holder. */
  async #findBase() {
    const names = await this.#fs.readdir(this.#folder);
    const number = Math.max(-1, ...locksOf(names));
    if (number < 0) {
      await this.#makeFirst();
      return this.#findBase();
    }
    const name = `lock.${number}`;
    const text = await textOf(this.#fs, this.#path(name));
    // Released meanwhile.
    if (text === undefined) return this.#findBase();
    if (text === FREE) return { number, text };
    const holder = readIdentity(text, name);
    // What failed right after it had made the name. To others it is held, so it is as good as a dead one's here.
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
