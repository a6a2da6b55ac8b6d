// The sizes of a wasm module's functions by name, read from its binary form (https://webassembly.github.io/spec/core/binary/modules.html).

const [CUSTOM, IMPORT, CODE] = [0, 2, 10];
const FUNCTION_NAMES = 1;
const HEADER_BYTES = 8;

/** `functions`: `[name, bytes]` of each; the name is undefined if there is none. `others`: the bytes that are neither functions nor names. */
export function sizesOf(binary) {
  let at = HEADER_BYTES;
  const bodies = [];
  const names = new Map();
  let others = HEADER_BYTES;

  function integer() {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = binary[at++];
      if (byte === undefined) throw new Error("the module is cut short");
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
    }
  }

  function text() {
    const length = integer();
    return binary.toString("utf8", at, (at += length));
  }

  function readNames(end) {
    while (at < end) {
      const kind = binary[at++];
      const length = integer();
      const next = at + length;
      if (kind === FUNCTION_NAMES) for (let many = integer(); many > 0; many -= 1) names.set(integer(), text());
      at = next;
    }
  }

  while (at < binary.length) {
    const kind = binary[at++];
    const length = integer();
    const end = at + length;
    if (kind === IMPORT) throw new Error("the module imports something: its functions are not numbered from 0");
    if (kind === CODE) {
      for (let many = integer(); many > 0; many -= 1) {
        const size = integer();
        bodies.push(size);
        at += size;
      }
    } else if (kind !== CUSTOM) others += length;
    else if (text() === "name") readNames(end);
    at = end;
  }
  return { functions: bodies.map((bytes, index) => [names.get(index), bytes]), others };
}
