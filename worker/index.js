// The Worker of a crate that has a handler in Rust, and no JavaScript.

import { Effects } from "./effects.js";
import * as gathering from "./gathering.js";
import { sendBy } from "./host.js";
import { gatherBy, serve } from "./router.js";

export { SemelObject } from "./host.js";
export { SemelRegistry } from "./registry.js";

// It can't be known here whether the handler emits anything, so sending is always included.
sendBy(Effects);
gatherBy(gathering);

export default { fetch: serve };
