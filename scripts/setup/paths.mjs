// The folders of this checkout. Everything that is built or cached is below `target/`, `build/` or `node_modules/`.

import { fileURLToPath } from "node:url";
import { join } from "node:path";

export const ROOT = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");
export const TARGET = join(ROOT, "target");
export const BUILD = join(ROOT, "build");
export const bin = (name) => join(ROOT, "node_modules", ".bin", name);
