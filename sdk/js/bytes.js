// What crosses the boundary to the module: flags, integers, texts and bytes, one after the other. As `client/bytes.rs` has it.

// Made once: a call of the module takes some of each.
const encoder = new TextEncoder();
const decoder = new TextDecoder();

export const bytesOf = (text) => encoder.encode(text);
export const textOf = (bytes) => decoder.decode(bytes);

/** Lays out: a boolean, a whole number, a string, or a Uint8Array each. */
export function laid(parts) {
  const encoded = parts.map((part) => (typeof part === "string" ? bytesOf(part) : part));
  const size = (part) => (typeof part === "boolean" ? 1 : 8 + (part.length ?? 0));
  const out = new Uint8Array(encoded.reduce((sum, part) => sum + size(part), 0));
  const view = new DataView(out.buffer);
  let at = 0;
  for (const part of encoded) {
    if (typeof part === "boolean") out[at] = part;
    else view.setBigInt64(at, BigInt(part.length ?? Math.floor(part)), true);
    if (part.length) out.set(part, at + 8);
    at += size(part);
  }
  return out;
}

/** A value that may be undefined. */
export const optional = (value) => (value === undefined ? [false] : [true, value]);

/** Reads what was laid out. */
export function reader(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = 0;
  const read = {
    byte: () => bytes[at++],
    integer: () => Number(view.getBigInt64((at += 8) - 8, true)),
    bytes() {
      const length = read.integer();
      return bytes.subarray(at, (at += length));
    },
    text: () => textOf(read.bytes()),
    isEmpty: () => at === bytes.length,
  };
  return read;
}
