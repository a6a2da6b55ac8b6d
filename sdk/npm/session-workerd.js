// Sessions in workerd: the wasm module is imported, already compiled.

import { sessions } from "./session.js";
import module from "./session.wasm";

export default sessions(() => module);
