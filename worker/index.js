// The Worker of a crate that brings a handler and no JavaScript of its own.

import { Effects } from "./effects.js";
import * as gathering from "./gathering.js";
import { sendBy } from "./host.js";
import { gatherBy, serve } from "./router.js";

export { SemelObject } from "./host.js";
export { SemelRegistry } from "./registry.js";

// Whether its handler has anything sent is not known here.
sendBy(Effects);
gatherBy(gathering);

export default { fetch: serve };
