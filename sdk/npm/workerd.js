// The entry for workerd, which compiles no bytes: the module comes compiled, as an import. It is instantiated at the first `open`.

import { Outbox, glue } from "./semel.js";
import module from "./semel.wasm";

export { OutcomeUnknownError, SemelError, StoreError } from "./semel.js";

const load = () => glue(module);

export class Semel extends Outbox {
  static open(options) {
    return super.open(options, load);
  }
}
