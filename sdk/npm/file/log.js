// The log: all rows, as the commits that made them. To be used under the folder's lock only.
//
// Names: `semel.<G>.log`, of which the highest generation counts. A generation begins with all rows that there were; commits are appended.
//
// Invariants:
// - `rows` and `#size` speak of what is durable and whole, never of an append under way.
// - A log gets its name when all that it begins with is durable; the one before leaves when that name is.
// - An append that fails is undone before the lock is released: cut off, or left behind by a new generation. After a failed sync
//   nothing that the system still shows of the file is relied on, since it may have dropped what it could not write: the new generation
//   is written from memory, where everything came from a sync that succeeded or was read whole and synced.
// - A generation gets its name only while the lock is held: it would leave behind what others have appended since.

import { join } from "node:path";
import { StoreError } from "semel";
import { FILE_MODE, isMissing, readAll, removeName, syncFolder, writeAll } from "./disk.js";
import { HEADER_BYTES, HEAD_BYTES, entryBytes, frameBytes, makeFrame, makeHeader, readFrames, readHeader } from "./frames.js";
import { lockLost, numbersOf } from "./lock.js";

/** Smaller logs are left as they are. */
export const COMPACTED_BYTES_MIN = 1 << 20;
/** A new generation is written in frames of about this size. */
const CHUNK_BYTES = 4 << 20;

const logOf = (generation) => `semel.${generation}.log`;

export class Log {
  #fs;
  #folder;
  #lock;
  #handle;
  #generation = 0;
  #seed;
  #size = 0;
  /** The bytes that `rows` would take. */
  #liveBytes = 0;
  /** What is wrong with the end of the file: undefined, `cut` (more is there than there should be) or `renew` (what is on disk is unknown). */
  #doubt;
  /** False while the name of a new generation is not known to be on disk: nothing rests on it, so that the next one may have it. */
  #isNamed = true;
  /** Whether it was closed with what is on disk unknown: then no sync tells of what is read. */
  #isUnsure = false;
  /** The highest generation that was ever seen: none below is the log any more. */
  #newest = 0;
  /** After a compaction that failed: not again before the log is so long. */
  #compactedAgain = 0;
  /** Where the frame of the last append is, and its head, which no other frame has; undefined where nothing had to be appended, or it was found. */
  #last;
  #isAppended = true;
  rows = new Map();

  constructor(fs, folder, lock) {
    this.#fs = fs;
    this.#folder = folder;
    this.#lock = lock;
  }

  get isOpen() {
    return this.#handle !== undefined;
  }

  get liveBytes() {
    return this.#liveBytes;
  }

  /** Whether an append failed and could not be undone: then the lock must not be released. */
  get isInDoubt() {
    return this.#doubt !== undefined;
  }

  /** Whether what was last to be appended is in the log, as far as that was read. */
  get isAppended() {
    return this.#isAppended;
  }

  /** Reads what others have done. `names` is what is in the folder, and `isBroken` says that the holder before died. */
  async catchUp(names, isBroken) {
    let mustSync = isBroken;
    let isOpened = false;
    try {
      isOpened = await this.#open(names);
      // Who made the log may have failed to make its name durable.
      if (isOpened) mustSync = true;
      const bytes = await this.#rest();
      const { entries, end } = readFrames(bytes, this.#seed, this.#size, logOf(this.#generation));
      if (end < this.#size + bytes.length) {
        await this.#handle.truncate(end);
        mustSync = true;
      }
      this.#apply(entries);
      this.#size = end;
      if (isOpened) this.#isAppended = this.#isLastIn(bytes, end);
      // What was found is not looked for again: it may be in a generation by then that is written from what was read.
      if (isOpened && this.#isAppended) this.#last = undefined;
    } catch (error) {
      await this.close();
      throw error;
    }
    // Who died may have written what was read, and not have got it onto the disk.
    if (mustSync) await this.#sync();
    // Only now: what can't be read may have to be mended from what was before.
    if (isOpened) await this.#leaveBehind(names);
  }

  /** Makes `entries` durable, as one. Where it rejects, `mend` undoes it. */
  async append(entries) {
    this.#last = undefined;
    this.#isAppended = entries.length === 0;
    if (this.#isAppended) return;
    const frame = makeFrame(entries, this.#seed, this.#size);
    this.#last = { at: this.#size, head: Buffer.from(frame.subarray(0, HEAD_BYTES)) };
    let failure = "cut";
    try {
      await writeAll(this.#handle, frame, this.#size);
      failure = "renew";
      await this.#handle.datasync();
    } catch (error) {
      this.#doubt = failure;
      throw error;
    }
    this.#apply(entries);
    this.#size += frame.length;
    this.#isAppended = true;
  }

  /** Undoes an append that failed. */
  async mend() {
    if (this.#doubt === undefined) return;
    const isCut = await this.#cut();
    if (this.#doubt === "cut" && isCut) this.#doubt = undefined;
    else await this.#renew();
  }

  /** Leaves behind what is dead, where that is most of a long log. It is no harm where it fails. */
  async compact() {
    if (this.#size < Math.max(COMPACTED_BYTES_MIN, 2 * this.#liveBytes, this.#compactedAgain)) return;
    try {
      await this.#renew();
    } catch {
      this.#compactedAgain = this.#size + COMPACTED_BYTES_MIN;
    }
  }

  /** Forgets everything. It is read again by the next `catchUp`. */
  async close() {
    const handle = this.#handle;
    this.#handle = undefined;
    this.#generation = 0;
    this.#isUnsure ||= this.#doubt === "renew";
    this.#doubt = undefined;
    // Others may have read it since, and appended to it.
    this.#isNamed = true;
    this.#liveBytes = 0;
    this.rows.clear();
    // What it could not write is known by the syncs.
    await handle?.close().catch(() => {});
  }

  /** Opens the log of the highest generation. Whether it was opened anew. */
  async #open(names) {
    const newest = Math.max(0, ...numbersOf(names, /^semel\.(\d{1,15})\.log$/));
    if (newest < this.#newest) throw new StoreError("store-damaged", `${logOf(this.#newest)} is gone`);
    this.#newest = newest;
    if (newest === this.#generation && newest > 0) return false;
    await this.close();
    if (newest === 0) await this.#renew();
    else {
      this.#handle = await this.#fs.open(this.#path(logOf(newest)), "r+");
      const { base, seed } = readHeader(await readAll(this.#handle, 0, HEADER_BYTES), logOf(newest));
      if ((await this.#handle.stat()).size < base) throw new StoreError("store-damaged", `${logOf(newest)} is damaged: it is shorter than it began`);
      this.#generation = newest;
      this.#seed = seed;
      this.#size = HEADER_BYTES;
    }
    return true;
  }

  /** Whether a whole log, of which `bytes` follow the header and frames reach to `end`, has the frame of the last append. */
  #isLastIn(bytes, end) {
    if (this.#last === undefined) return true;
    const { at, head } = this.#last;
    return at < end && bytes.subarray(at - HEADER_BYTES, at - HEADER_BYTES + HEAD_BYTES).equals(head);
  }

  /** What is in the file behind that which is known. */
  async #rest() {
    const { size } = await this.#handle.stat();
    if (size < this.#size) throw new StoreError("store-damaged", `${logOf(this.#generation)} is damaged: it is shorter than it was`);
    return readAll(this.#handle, this.#size, size - this.#size);
  }

  /** Makes durable what was read. Where that fails, or has failed, a new generation does it. */
  async #sync() {
    try {
      if (!this.#isUnsure) {
        await this.#handle.datasync();
        await syncFolder(this.#fs, this.#folder);
        return;
      }
    } catch {
      // Of this the new one is free.
    }
    this.#doubt = "renew";
    await this.#renew();
  }

  /** Cuts the file to what is durable. Whether that succeeded. */
  async #cut() {
    try {
      // First of all, so that nobody reads it should this process end now.
      await this.#handle.truncate(this.#size);
      await this.#handle.datasync();
      return true;
    } catch {
      return false;
    }
  }

  /** Writes a new generation from `rows`. */
  async #renew() {
    const generation = this.#generation + Number(this.#isNamed);
    const [temporary, path] = [this.#path(`semel.${generation}.tmp`), this.#path(logOf(generation))];
    const handle = await this.#fs.open(temporary, "w+", FILE_MODE);
    let written;
    try {
      written = await this.#writeRows(handle);
      await handle.sync();
      if (!(await this.#lock.look())) throw lockLost();
      await this.#fs.rename(temporary, path).catch(async (error) => {
        // It may be done all the same, as over a network: then what is appended to the one before is lost.
        if (!(await isMissing(this.#fs, path))) this.#doubt = "renew";
        throw error;
      });
    } catch (error) {
      await handle.close().catch(() => {});
      // It takes room that is needed.
      await removeName(this.#fs, temporary).catch(() => {});
      throw error;
    }
    const before = this.#handle;
    this.#handle = handle;
    this.#generation = generation;
    this.#newest = generation;
    this.#seed = written.seed;
    this.#size = written.size;
    // Until its name is durable, nothing may rest on it.
    this.#doubt = "renew";
    this.#isNamed = false;
    await before?.close().catch(() => {});
    await syncFolder(this.#fs, this.#folder);
    this.#doubt = undefined;
    this.#isNamed = true;
    this.#isUnsure = false;
    await this.#leaveBehind(await this.#fs.readdir(this.#folder)).catch(() => {});
  }

  async #writeRows(handle) {
    const chunks = [...chunksOf(this.rows)];
    const base = chunks.reduce((sum, chunk) => sum + frameBytes(chunk), HEADER_BYTES);
    const { bytes, seed } = makeHeader(base);
    await writeAll(handle, bytes, 0);
    let size = HEADER_BYTES;
    for (const chunk of chunks) {
      const frame = makeFrame(chunk, seed, size);
      await writeAll(handle, frame, size);
      size += frame.length;
    }
    return { seed, size };
  }

  /** Removes older generations, and what never became one. */
  async #leaveBehind(names) {
    for (const name of names) {
      const [, generation, kind] = /^semel\.(\d{1,15})\.(log|tmp)$/.exec(name) ?? [];
      if (kind === "tmp" || Number(generation) < this.#generation) await removeName(this.#fs, this.#path(name));
    }
  }

  #apply(entries) {
    for (const [id, row] of entries) {
      const before = this.rows.get(id);
      if (before !== undefined) this.#liveBytes -= entryBytes(id, before);
      if (row === undefined) this.rows.delete(id);
      else {
        this.rows.set(id, row);
        this.#liveBytes += entryBytes(id, row);
      }
    }
  }

  #path(name) {
    return join(this.#folder, name);
  }
}

/** The rows in groups, each for one frame. */
function* chunksOf(rows) {
  let [chunk, bytes] = [[], 0];
  for (const entry of rows) {
    chunk.push(entry);
    bytes += entryBytes(...entry);
    if (bytes < CHUNK_BYTES) continue;
    yield chunk;
    [chunk, bytes] = [[], 0];
  }
  if (chunk.length > 0) yield chunk;
}
