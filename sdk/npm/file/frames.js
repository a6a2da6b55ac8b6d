// The bytes of a log: a header, then frames. One frame is one commit.
//
//   header  "semellog"  version u32  base u64  nonce 12 bytes  sum 8 bytes
//   frame   "smlf"  length u32  sum of the head 4 bytes  sum of the body 8 bytes  body
//   body    entries: what u8 (0 deletes, 1 puts)  id length u32  id  and of a put: row length u32  row; then a byte 255
//
// Numbers are little-endian. An id is stored as JSON, which keeps any string exactly. A sum is the first bytes of a SHA-256 over the header's sum,
// the frame's offset and the content, so a frame of another log or from another place never passes for whole.
//
// Invariants:
// - All bytes before `base` were durable before the log got its name. After that, one frame was appended for each commit. So an append that never
//   ended leaves at most one frame that is not whole, and it is the last. Only that frame is *torn*.
// - A frame is torn if the file ends within it; or if it is the last one and has a sector of zeros, which is room that the system gave the file
//   and never filled. (A complete frame neither begins nor ends with a zero, so a part of a sector shows that, too.)
//   Any other frame that is not whole was whole once. That is damage, and an error: nothing is dropped because it can't be read.

import { createHash, randomBytes } from "node:crypto";
import { StoreError } from "semel";

const VERSION = 1;
const LOG_MAGIC = Buffer.from("semellog");
const FRAME_MAGIC = Buffer.from("smlf");
export const HEADER_BYTES = 40;
export const HEAD_BYTES = 20;
const SUM_BYTES = 8;
const HEAD_SUM_BYTES = 4;
const SECTOR_BYTES = 512;
const END = Buffer.from([255]);

const sumOf = (parts, length) => {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest().subarray(0, length);
};

const u32 = (number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(number);
  return bytes;
};

const u64 = (number) => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(number));
  return bytes;
};

/** Makes the header of a new log, which is `base` bytes long when it gets its name. `seed` goes into the sums of its frames. */
export function makeHeader(base, nonce = randomBytes(12)) {
  const content = Buffer.concat([LOG_MAGIC, u32(VERSION), u64(base), nonce]);
  const seed = sumOf([content], SUM_BYTES);
  return { bytes: Buffer.concat([content, seed]), seed };
}

/** Reads the header of the log `name`. Throws a StoreError if it is damaged or of a newer version. */
export function readHeader(bytes, name) {
  const damaged = () => new StoreError("store-damaged", `${name} is damaged: it does not begin as a log does`);
  if (bytes.length < HEADER_BYTES || !bytes.subarray(0, 8).equals(LOG_MAGIC)) throw damaged();
  const version = bytes.readUInt32LE(8);
  // Checked before the sum, because another version may compute its sums differently.
  if (version > VERSION) {
    throw new StoreError("store-newer", `${name} is of version ${version}, and this is made for ${VERSION}: a newer semel wrote it`);
  }
  const content = bytes.subarray(0, HEADER_BYTES - SUM_BYTES);
  const seed = bytes.subarray(HEADER_BYTES - SUM_BYTES, HEADER_BYTES);
  if (version !== VERSION || !seed.equals(sumOf([content], SUM_BYTES))) throw damaged();
  return { base: Number(bytes.readBigUInt64LE(12)), seed: Buffer.from(seed) };
}

/** How many bytes an entry takes. */
export const entryBytes = (id, row) => 5 + Buffer.byteLength(JSON.stringify(id)) + (row === undefined ? 0 : 4 + row.length);

/** How many bytes a frame of these entries takes. */
export const frameBytes = (entries) => entries.reduce((sum, [id, row]) => sum + entryBytes(id, row), HEAD_BYTES + END.length);

/** Makes the frame for a log with `seed` at `offset`. It puts rows, and deletes those that are undefined. */
export function makeFrame(entries, seed, offset) {
  const parts = [];
  for (const [id, row] of entries) {
    const name = Buffer.from(JSON.stringify(id));
    parts.push(Buffer.from([row === undefined ? 0 : 1]), u32(name.length), name);
    if (row !== undefined) parts.push(u32(row.length), row);
  }
  const body = Buffer.concat([...parts, END]);
  const [at, length] = [u64(offset), u32(body.length)];
  return Buffer.concat([FRAME_MAGIC, length, sumOf([seed, at, length], HEAD_SUM_BYTES), sumOf([seed, at, body], SUM_BYTES), body]);
}

/**
 * Reads `bytes`, which lie at `offset` and reach to the end of the log `name`. Returns all entries in their order, and `end`, the offset after the
 * last whole frame. Whatever follows `end` is torn. Throws if the log is damaged.
 */
export function readFrames(bytes, seed, offset, name) {
  const entries = [];
  let at = 0;
  while (at < bytes.length) {
    const frame = frameAt(bytes, at, seed, offset + at);
    if (frame.body === undefined) {
      if (!isTorn(bytes, at, frame, seed, offset)) throw new StoreError("store-damaged", `${name} is damaged at byte ${offset + at}`);
      break;
    }
    readEntries(frame.body, entries);
    at = frame.end;
  }
  return { entries, end: offset + at };
}

/** Reads the frame at `at`: `end` is there if the head is whole, `body` if the whole frame is. */
function frameAt(bytes, at, seed, offset) {
  if (bytes.length - at < HEAD_BYTES || !bytes.subarray(at, at + 4).equals(FRAME_MAGIC)) return {};
  const length = bytes.subarray(at + 4, at + 8);
  const place = u64(offset);
  if (!bytes.subarray(at + 8, at + 12).equals(sumOf([seed, place, length], HEAD_SUM_BYTES))) return {};
  const end = at + HEAD_BYTES + length.readUInt32LE();
  if (end > bytes.length) return { end };
  const body = bytes.subarray(at + HEAD_BYTES, end);
  return bytes.subarray(at + 12, at + HEAD_BYTES).equals(sumOf([seed, place, body], SUM_BYTES)) ? { end, body } : { end };
}

/** Whether the frame at `at`, which is not whole, comes from an append that never ended. */
function isTorn(bytes, at, { end }, seed, offset) {
  if (bytes.length - at < HEAD_BYTES || end > bytes.length) return true;
  return hasEmptySector(bytes, at, offset) && !hasFrameAfter(bytes, at, seed, offset);
}

/** Whether there is a sector of the file that is all zeros, as far as it lies in `bytes` from `at` on. */
function hasEmptySector(bytes, at, offset) {
  for (let from = at; from < bytes.length; ) {
    const to = Math.min(bytes.length, from + SECTOR_BYTES - ((offset + from) % SECTOR_BYTES));
    if (bytes.subarray(from, to).every((byte) => byte === 0)) return true;
    from = to;
  }
  return false;
}

function hasFrameAfter(bytes, at, seed, offset) {
  for (let next = bytes.indexOf(FRAME_MAGIC, at + 1); next >= 0; next = bytes.indexOf(FRAME_MAGIC, next + 1)) {
    if (frameAt(bytes, next, seed, offset + next).body !== undefined) return true;
  }
  return false;
}

function readEntries(body, entries) {
  for (let at = 0; at < body.length - END.length; ) {
    const isPut = body[at] === 1;
    const idEnd = at + 5 + body.readUInt32LE(at + 1);
    const id = JSON.parse(body.toString("utf8", at + 5, idEnd));
    const rowEnd = isPut ? idEnd + 4 + body.readUInt32LE(idEnd) : idEnd;
    // A copy, because the row is kept longer than the buffer that the whole log was read into.
    entries.push([id, isPut ? Buffer.from(body.subarray(idEnd + 4, rowEnd)) : undefined]);
    at = rowEnd;
  }
}
