// What the package's entry points share, in one file: the class, and the module's glue.

import { Outbox as Module, initSync, random_id } from "../../build/sdk/semel.js";

export { OutcomeUnknownError, Outbox, SemelError } from "./semel.js";

/**
 * Makes the module, once: of its bytes, or as it is where the runtime hands it out compiled, and compiles none itself.
 * Compiled from bytes, for a server that sends wasm under another type is no reason to fail.
 */
export async function glue(source) {
  const module = source instanceof WebAssembly.Module ? source : await WebAssembly.compile(source);
  initSync({ module });
  return { Outbox: Module, random_id };
}
