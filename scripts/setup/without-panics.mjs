// Takes out of a module what a Rust panic says: it would be formatted, and nobody would read it. A panic still ends the call: as a
// trap, `RuntimeError: unreachable`. Nor does anybody read where in the source it was: file names and places become zeros.
//
// Invariants:
// - Only functions of the standard library that panic, or that format, lose their bodies. Of the SDK nothing formats: where
//   something did, its tests would end in that trap.
// - A module in which none of them is found is refused: their names have changed, or are not in it.

import { readFile, writeFile } from "node:fs/promises";
import { StepError } from "./step.mjs";

/** In the mangled names of the standard library's functions, in either of the manglings that there are. */
const PANICS = /4core3fmt|9panicking|\d+panic_|rust_panic|unwrap_failed|expect_failed|slice_index_fail|handle_error|capacity_overflow|handle_alloc_error|assert_failed/;
/** A place of a panic, as it is laid out: address, length, line and column. */
const PLACE_BYTES = 16;
const FILE_NAME = /^[\w./-]+\.rs$/;
const STANDARD = /4core|5alloc|3std|rustc/;
/** What only those functions say or format with. Another compiler may have other words: then they stay. */
const WORDS = [
  "cannot access a Thread Local Storage value during or after destruction: ",
  ...["insertion index (is ", ") should be <= len (is ", "removal index (is ", ") should be < len (is "],
  "assertion failed: self.is_char_boundary(new_len)",
  "capacity overflow",
  ...["RefCell already mutably borrowed", "RefCell already borrowed"],
  Array.from({ length: 100 }, (_, number) => String(number).padStart(2, "0")).join(""),
];

export async function withoutPanics(input, output) {
  // Loaded here: it takes a second, and most starts need no build.
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

/** Overwrites each place in the source (where the file's name is and how long, line, column), and the names. `address`: of the first constant. */
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
