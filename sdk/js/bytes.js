// Writes and reads the values that cross the boundary to the module: flags, integers, texts and bytes. The other side is `client/bytes.rs`.

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export const bytesOf = (text) => encoder.encode(text);
export const textOf = (bytes) => decoder.decode(bytes);

/** Integers are written as two halves of 32 bits. */
const HALF = 2 ** 32;

/** An upper bound for the bytes of `parts`: a text's length in UTF-8 is not known before it is encoded. */
export const roomFor = (parts) => parts.reduce((sum, part) => sum + 8 + (typeof part === "string" ? part.length * 3 : (part.length ?? 0)), 0);

/** Writes `parts` into `out` from `at` on: booleans, numbers from 0 (their fraction is dropped), strings and Uint8Arrays. Returns where they end. */
export function lay(out, at, parts) {
  const view = new DataView(out.buffer, out.byteOffset);
  for (const part of parts) {
    if (typeof part === "boolean") out[at++] = part;
    else {
      const start = at + 8;
      const length = typeof part === "string" ? encoder.encodeInto(part, out.subarray(start)).written : part.length;
      if (part.buffer) out.set(part, start);
      view.setUint32(at, length ?? part, true);
      view.setUint32(at + 4, (length ?? part) / HALF, true);
      at = start + (length ?? 0);
    }
  }
  return at;
}

/** Writes `parts` into a new Uint8Array. */
export function laid(parts) {
  const out = new Uint8Array(roomFor(parts));
  return out.subarray(0, lay(out, 0, parts));
}

/** The parts of a value that may be undefined. */
export const optional = (value) => (value === undefined ? [false] : [true, value]);

/** Reads values in the order in which they were written. */
export class Reader {
  #in;
  #view;
  #at;

  constructor(bytes, at = 0) {
    this.#in = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset);
    this.#at = at;
  }

  byte() {
    return this.#in[this.#at++];
  }

  integer() {
    const at = this.#at;
    this.#at += 8;
    return this.#view.getUint32(at, true) + this.#view.getInt32(at + 4, true) * HALF;
  }

  /** A view of the memory, not a copy. */
  bytes() {
    const length = this.integer();
    return this.#in.subarray(this.#at, (this.#at += length));
  }

  text() {
    return decoder.decode(this.bytes());
  }

  isEmpty() {
    return this.#at === this.#in.length;
  }
}
