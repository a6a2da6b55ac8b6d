// What the package's entry points share, in one file: the errors, and, as its default, the class and the module.

import { Outbox } from "./semel.js";

export * from "./errors.js";

/**
 * Makes the module: of its bytes, or as it is where the runtime hands it out compiled, and compiles none itself.
 * Compiled from bytes, for a server that sends wasm under another type is no reason to fail.
 */
const glue = async (source) => (source instanceof WebAssembly.Module ? source : WebAssembly.compile(source));

export default { Outbox, glue };
