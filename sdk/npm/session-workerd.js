// Sessions in workerd: the module comes compiled, as an import.

import { sessions } from "./session.js";
import module from "./session.wasm";

export default sessions(() => module);
