// The entry for Node, Bun and Deno: the module is read from beside this file, at the first `open`.

import { readFile } from "node:fs/promises";
import entry from "./semel.js";

export * from "./semel.js";
export const Semel = entry(() => readFile(new URL("./semel.wasm", import.meta.url)), () => import("./session-node.js"));
