// The Worker of a crate that brings a handler and no JavaScript of its own.

import { serve } from "./host.js";

export { SemelObject } from "./host.js";
export { SemelRegistry } from "./registry.js";

export default { fetch: serve };
