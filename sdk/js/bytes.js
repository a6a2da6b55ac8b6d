// What crosses the boundary to the module: flags, integers, texts and bytes, one after the other. As `client/bytes.rs` has it.

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export const bytesOf = (text) => encoder.encode(text);
export const textOf = (bytes) => decoder.decode(bytes);

/** Integers have two halves. */
const HALF = 2 ** 32;

/** So many bytes are enough for `parts`: how long a text will be is not known before. */
export const roomFor = (parts) => parts.reduce((sum, part) => sum + 8 + (typeof part === "string" ? part.length * 3 : (part.length ?? 0)), 0);

/** Lays out into `out`, from `at`: a boolean, a number from 0 without its fraction, a string, or a Uint8Array each. Returns where that ends. */
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

/** The same, in bytes of its own. */
export function laid(parts) {
  const out = new Uint8Array(roomFor(parts));
  return out.subarray(0, lay(out, 0, parts));
}

/** A value that may be undefined. */
export const optional = (value) => (value === undefined ? [false] : [true, value]);

/** Reads what was laid out. */
export class Reader {
  #in;
  #view;
  #at;
  #end;

  constructor(bytes, at = 0, end = bytes.length) {
    this.#in = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset);
    this.#at = at;
    this.#end = end;
  }

  byte() {
    return this.#in[this.#at++];
  }

  integer() {
    const at = this.#at;
    this.#at += 8;
    return this.#view.getUint32(at, true) + this.#view.getInt32(at + 4, true) * HALF;
  }

  /** A view: what is kept must be copied. */
  bytes() {
    const length = this.integer();
    return this.#in.subarray(this.#at, (this.#at += length));
  }

  text() {
    return decoder.decode(this.bytes());
  }

  isEmpty() {
    return this.#at === this.#end;
  }
}
