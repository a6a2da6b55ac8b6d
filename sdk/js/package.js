// What the package's entry points share, in one file: the class, and the module.

export { OutcomeUnknownError, Outbox, SemelError, StoreError } from "./semel.js";

/**
 * Makes the module: of its bytes, or as it is where the runtime hands it out compiled, and compiles none itself.
 * Compiled from bytes, for a server that sends wasm under another type is no reason to fail.
 */
export const glue = async (source) => (source instanceof WebAssembly.Module ? source : WebAssembly.compile(source));
