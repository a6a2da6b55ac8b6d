// Sessions in Node, Bun and Deno: the module is read from beside this file, at the first one.

import { readFile } from "node:fs/promises";
import { Made } from "./late.js";
import { sessions } from "./session.js";

export default sessions(() => readFile(new URL("./session.wasm", import.meta.url)), Made);
