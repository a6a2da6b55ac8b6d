// The entry for Node, Bun and Deno. The first `open` reads the wasm module from beside this file.

import { readFile } from "node:fs/promises";
import entry from "./semel.js";

export * from "./semel.js";
export const Semel = entry(() => readFile(new URL("./semel.wasm", import.meta.url)), () => import("./session-node.js"));
