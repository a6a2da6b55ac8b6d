// Removes from a module the messages of Rust's panics, which would be formatted although nobody reads them. A panic still ends the call, as a trap:
// `RuntimeError: unreachable`. File names and places in the source become zeros, because nobody reads them either. What the linker exports of itself
// goes too.
//
// Invariants:
// - Only functions of the standard library that panic or format lose their bodies. The SDK itself formats nothing: if it did, its tests would end in
//   that trap.
// - A module in which no such function is found is refused: the functions have other names now, or the module has no names.

import { readFile, writeFile } from "node:fs/promises";
import { StepError } from "./step.mjs";

/** Parts of the mangled names of the standard library's functions, in either form of mangling. */
const PANICS = /4core3fmt|9panicking|\d+panic_|rust_panic|unwrap_failed|expect_failed|slice_index_fail|handle_error|capacity_overflow|handle_alloc_error|assert_failed/;
/** The size of a place in the source, as a panic refers to it: address, length, line and column. */
const PLACE_BYTES = 16;
const FILE_NAME = /^[\w./-]+\.rs$/;
const STANDARD = /4core|5alloc|3std|rustc/;
/** What the linker exports of every module. */
const LINKERS = ["__data_end", "__heap_base"];
/** Texts that only those functions use. Another compiler may have other texts: then they stay. */
const WORDS = [
  "cannot access a Thread Local Storage value during or after destruction: ",
  ...["insertion index (is ", ") should be <= len (is ", "removal index (is ", ") should be < len (is "],
  "assertion failed: self.is_char_boundary(new_len)",
  "capacity overflow",
  "AccessError",
  ...["RefCell already mutably borrowed", "RefCell already borrowed"],
  Array.from({ length: 100 }, (_, number) => String(number).padStart(2, "0")).join(""),
];

export async function withoutPanics(input, output) {
  // Loaded only now: it takes a second, and most starts need no build.
  const { default: binaryen } = await import("binaryen");
  binaryen.setDebugInfo(true);
  const module = binaryen.readBinary(await readFile(input));
  let found = 0;
  for (let index = 0; index < module.getNumFunctions(); index += 1) {
    const at = module.getFunctionByIndex(index);
    const { name, module: imported } = binaryen.getFunctionInfo(at);
    if (imported || !PANICS.test(name) || !STANDARD.test(name)) continue;
    binaryen.Function(at).body = module.unreachable();
    found += 1;
  }
  if (found === 0) throw new StepError(`There is no panic in ${input}.`, "Look at the names of its functions, and at PANICS in scripts/setup/without-panics.mjs.");
  for (const name of LINKERS) module.removeExport(name);
  const binary = Buffer.from(module.emitBinary());
  const { offset, data } = module.getDataSegmentInfo(module.getDataSegment(".rodata"));
  const constants = Buffer.from(data);
  const start = binary.indexOf(constants);
  clearPlaces(constants, offset);
  clearWords(constants);
  constants.copy(binary, start);
  await writeFile(output, binary);
}

function clearWords(constants) {
  for (const word of WORDS) {
    const at = constants.indexOf(word);
    if (at >= 0) constants.fill(0, at, at + word.length);
  }
}

/** Overwrites each place in the source (address and length of the file's name, line, column), and the names. `address`: that of the first constant. */
function clearPlaces(constants, address) {
  const names = [];
  for (let at = 0; at + PLACE_BYTES <= constants.length; at += 4) {
    const from = constants.readUInt32LE(at) - address;
    const to = from + constants.readUInt32LE(at + 4);
    if (from < 0 || constants.toString("latin1", from, to).search(FILE_NAME) !== 0) continue;
    constants.fill(0, at, at + PLACE_BYTES);
    names.push([from, to]);
  }
  for (const [from, to] of names) constants.fill(0, from, to);
}
