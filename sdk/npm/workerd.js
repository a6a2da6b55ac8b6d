// The entry for workerd, which can't compile bytes: the wasm module is imported, already compiled. The first `open` instantiates it.

import entry from "./semel.js";
import module from "./semel.wasm";

export * from "./semel.js";
export const Semel = entry(() => module, () => import("./session-workerd.js"));
