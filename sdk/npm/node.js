// The entry for Node, Bun and Deno: the module is read from beside this file, at the first `open`.

import { readFile } from "node:fs/promises";
import { Outbox, glue } from "./semel.js";

export { OutcomeUnknownError, SemelError, StoreError } from "./semel.js";

const load = async () => glue(await readFile(new URL("./semel.wasm", import.meta.url)));

export class Semel extends Outbox {
  static open(options) {
    return super.open(options, load);
  }
}
