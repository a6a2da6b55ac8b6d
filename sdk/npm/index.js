// The entry for browsers and edge runtimes: the module is fetched from beside this file, at the first `open`.

import { Outbox, glue } from "./semel.js";

export { OutcomeUnknownError, SemelError, StoreError } from "./semel.js";

async function load() {
  const response = await fetch(new URL("./semel.wasm", import.meta.url));
  if (!response.ok) throw new Error(`semel: ${response.url} answers ${response.status}`);
  return glue(await response.arrayBuffer());
}

export class Semel extends Outbox {
  static open(options) {
    return super.open(options, load);
  }
}
