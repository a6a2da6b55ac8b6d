// The probe's Worker: nothing but the host.

import { SemelObject, serve } from "./host.js";

export { SemelObject };
export { SemelRegistry } from "./registry.js";
export default { fetch: serve };
