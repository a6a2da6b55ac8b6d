// Sessions in Node, Bun and Deno. The first session reads the wasm module from beside this file.

import { readFile } from "node:fs/promises";
import { Made } from "./late.js";
import { sessions } from "./session.js";

export default sessions(() => readFile(new URL("./session.wasm", import.meta.url)), Made);
