// The log: all rows, as the commits that made them. Use it only under the folder's lock.
//
// Names: `semel.<G>.log`. The highest generation G is the log. A generation begins with all rows that there were; commits are appended to it.
//
// Invariants:
// - `rows` and `#size` describe only what is durable and whole, never an append under way.
// - A log gets its name once all rows that it begins with are durable. The previous one is removed once that name is durable.
// - A failed append is undone before the lock is released: it is cut off, or a new generation replaces the file. After a failed sync, whatever
//   the system still shows of the file can't be trusted, because it may have dropped what it could not write. So the new generation is written
//   from memory, where every row comes from a sync that succeeded, or was read whole and then synced.
// - A generation gets its name only while the lock is held. Otherwise it would lose what other stores have appended since.

import { join } from "node:path";
import { StoreError } from "semel";
import { FILE_MODE, isMissing, readAll, removeName, syncFolder, writeAll } from "./disk.js";
import { HEADER_BYTES, HEAD_BYTES, entryBytes, frameBytes, makeFrame, makeHeader, readFrames, readHeader } from "./frames.js";
import { lockLost, numbersOf } from "./lock.js";

/** A log below this size is not compacted. */
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
  /** How many bytes `rows` would take in a log. */
  #liveBytes = 0;
  /** What is wrong with the end of the file: undefined, `cut` (it has more than it should) or `renew` (it is unknown what is on disk). */
  #doubt;
  /** False while it is not known that the name of a new generation is on disk. Nothing relies on it then, so the next one may take the same number. */
  #isNamed = true;
  /** Whether the log was closed while it was unknown what is on disk. Then a sync proves nothing about what is read. */
  #isUnsure = false;
  /** The highest generation ever seen. No lower one can be the log any more. */
  #newest = 0;
  /** After a compaction failed, the size of the log at which the next one is tried. */
  #compactedAgain = 0;
  /**
   * The log's seed, and offset and head of the last append's frame; no other frame has the same head. Undefined if nothing was to be appended, or once it was
   * found.
   */
  #last;
  #isAppended = true;
  #mayBeAppended = false;
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

  /** Whether the last append is in the log, as far as the log was read. */
  get isAppended() {
    return this.#isAppended;
  }

  /** Whether it may be there although it was not found: another store has written this log, and may have read the append before. */
  get mayBeAppended() {
    return this.#mayBeAppended;
  }

  /** Reads what other stores have appended. `names`: all names in the folder. `isBroken`: the previous holder of the lock died. */
  async catchUp(names, isBroken) {
    let mustSync = isBroken;
    let isOpened = false;
    try {
      isOpened = await this.#open(names);
      // The store that made this log may have failed to make its name durable.
      if (isOpened) mustSync = true;
      const bytes = await this.#rest();
      const { entries, end } = readFrames(bytes, this.#seed, this.#size, logOf(this.#generation));
      if (end < this.#size + bytes.length) {
        await this.#handle.truncate(end);
        mustSync = true;
      }
      this.#apply(entries);
      this.#size = end;
      if (isOpened) {
        this.#isAppended = this.#isLastIn(bytes, end);
        this.#mayBeAppended = !this.#isAppended && !this.#last.seed.equals(this.#seed);
      }
      // Once found, it is not looked for again: by then the rows may be in a new generation, which was written from what was read.
      if (isOpened && this.#isAppended) this.#last = undefined;
    } catch (error) {
      await this.close();
      throw error;
    }
    // A store that died may have written these bytes without getting them onto the disk.
    if (mustSync) await this.#sync();
    // Only now: a log that can't be read might have to be mended from older files.
    if (isOpened) await this.#leaveBehind(names);
  }

  /** Makes `entries` durable, all or none. If it rejects, `mend` undoes it. */
  async append(entries) {
    this.#last = undefined;
    this.#isAppended = entries.length === 0;
    this.#mayBeAppended = false;
    if (this.#isAppended) return;
    const frame = makeFrame(entries, this.#seed, this.#size);
    this.#last = { seed: this.#seed, at: this.#size, head: Buffer.from(frame.subarray(0, HEAD_BYTES)) };
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

  /** Undoes a failed append. Rejects if it can't. */
  async mend() {
    if (this.#doubt === undefined) return;
    const isCut = await this.#cut();
    if (this.#doubt === "cut" && isCut) this.#doubt = undefined;
    else await this.#renew();
  }

  /** Rewrites a long log that consists mostly of dead rows. A failure does no harm. */
  async compact() {
    if (this.#size < Math.max(COMPACTED_BYTES_MIN, 2 * this.#liveBytes, this.#compactedAgain)) return;
    try {
      await this.#renew();
    } catch {
      this.#compactedAgain = this.#size + COMPACTED_BYTES_MIN;
    }
  }

  /** Closes the file and forgets all rows. The next `catchUp` reads them again. */
  async close() {
    const handle = this.#handle;
    this.#handle = undefined;
    this.#generation = 0;
    this.#isUnsure ||= this.#doubt === "renew";
    this.#doubt = undefined;
    // Other stores may have read that name since, and appended to the file.
    this.#isNamed = true;
    this.#liveBytes = 0;
    this.rows.clear();
    // Ignored, because the syncs have told already what could not be written.
    await handle?.close().catch(() => {});
  }

  /** Opens the log of the highest generation. Resolves to whether it was opened anew. */
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

  /** Whether a log has the frame of the last append. `bytes`: all of the log after its header; `end`: the offset at which its whole frames end. */
  #isLastIn(bytes, end) {
    if (this.#last === undefined) return true;
    const { at, head } = this.#last;
    return at < end && bytes.subarray(at - HEADER_BYTES, at - HEADER_BYTES + HEAD_BYTES).equals(head);
  }

  /** Reads the part of the file that is not known yet. */
  async #rest() {
    const { size } = await this.#handle.stat();
    if (size < this.#size) throw new StoreError("store-damaged", `${logOf(this.#generation)} is damaged: it is shorter than it was`);
    return readAll(this.#handle, this.#size, size - this.#size);
  }

  /** Makes durable what was read. If that fails, or has failed before, writes a new generation. */
  async #sync() {
    try {
      if (!this.#isUnsure) {
        await this.#handle.datasync();
        await syncFolder(this.#fs, this.#folder);
        return;
      }
    } catch {
      // The new generation does not depend on this file.
    }
    this.#doubt = "renew";
    await this.#renew();
  }

  /** Cuts the file to what is durable. Resolves to whether that succeeded. */
  async #cut() {
    try {
      // Truncated first, so that nobody reads the append if this process ends now.
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
        // The rename may have happened although it failed, as over a network. Then an append to the old file would be lost.
        if (!(await isMissing(this.#fs, path))) this.#doubt = "renew";
        throw error;
      });
    } catch (error) {
      await handle.close().catch(() => {});
      // The file takes room that is needed.
      await removeName(this.#fs, temporary).catch(() => {});
      throw error;
    }
    const before = this.#handle;
    this.#handle = handle;
    this.#generation = generation;
    this.#newest = generation;
    this.#seed = written.seed;
    this.#size = written.size;
    // Until the name is durable, nothing may rely on it.
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

  /** Removes older generations, and temporary files that never became one. */
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

/** The rows in groups, one group for each frame. */
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
