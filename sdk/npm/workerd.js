// The entry for workerd, which compiles no bytes: the module comes compiled, as an import. It is instantiated at the first `open`.

import entry from "./semel.js";
import module from "./semel.wasm";

export * from "./semel.js";
export const Semel = entry(() => module, () => import("./session-workerd.js"));
