// What the package's entry points share, in one file: the errors, and, as its default, what makes their `Semel`.

import { Outbox } from "./semel.js";

export * from "./errors.js";

/**
 * The class of an entry. `source` gives the module: its bytes, or itself where the runtime hands it out compiled, and compiles none.
 * It is made once for all that are opened. What failed, for want of a network say, is tried again at the next `open`.
 * Compiled from bytes, for a server that sends wasm under another type is no reason to fail.
 */
export default (source) => {
  let loaded;
  const load = async () => {
    const given = await source();
    return given instanceof WebAssembly.Module ? given : WebAssembly.compile(given);
  };
  const once = () => {
    loaded ??= load().catch((error) => {
      loaded = undefined;
      throw error;
    });
    return loaded;
  };
  return class extends Outbox {
    static name = "Semel";

    static open(options) {
      return super.open(options, once);
    }
  };
};
