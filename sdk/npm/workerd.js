// The entry for workerd, which compiles no bytes: the module comes compiled, as an import. It is instantiated at the first `open`.

import shared from "./semel.js";
import module from "./semel.wasm";

export * from "./semel.js";

const load = () => shared.glue(module);

export class Semel extends shared.Outbox {
  static open(options) {
    return super.open(options, load);
  }
}
