// How a module is had, whatever the runtime.

/**
 * `source` gives the module: its bytes, or itself where the runtime hands it out compiled, and compiles none.
 * It is made once for all that are opened. What failed, for want of a network say, is tried again at the next `open`.
 * Compiled from bytes, for a server that sends wasm under another type is no reason to fail.
 */
export function loadedOnce(source) {
  let loaded;
  const load = async () => {
    const given = await source();
    return given instanceof WebAssembly.Module ? given : WebAssembly.compile(given);
  };
  return () => {
    loaded ??= load().catch((error) => {
      loaded = undefined;
      throw error;
    });
    return loaded;
  };
}
