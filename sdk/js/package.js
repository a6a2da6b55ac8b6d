// What the package's entry points share, in one file: the class, and the module's glue.

import { Outbox as Module, initSync, random_id } from "../../build/sdk/semel.js";

export { OutcomeUnknownError, Outbox, SemelError } from "./semel.js";

/** Makes the module of its bytes, once. Compiled from bytes, for a server that sends wasm under another type is no reason to fail. */
export async function glue(bytes) {
  initSync({ module: await WebAssembly.compile(bytes) });
  return { Outbox: Module, random_id };
}
