// The entry for Node, Bun and Deno: the module is read from beside this file, at the first `open`.

import { readFile } from "node:fs/promises";
import shared from "./semel.js";

export * from "./semel.js";

const load = async () => shared.glue(await readFile(new URL("./semel.wasm", import.meta.url)));

export class Semel extends shared.Outbox {
  static open(options) {
    return super.open(options, load);
  }
}
