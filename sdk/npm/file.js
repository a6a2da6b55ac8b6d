// The store for Node that outlives the process: a folder with an append-only log, which any number of processes can share.

import * as fs from "node:fs/promises";
import { FileStore } from "./file/store.js";

export function fileStore(folder, options = {}) {
  if (typeof folder !== "string" || folder === "") throw new TypeError("semel: `folder` is a path");
  if (typeof options !== "object" || options === null) throw new TypeError("semel: the options of a store are an object, such as { busyMs: 1000 }");
  const { busyMs = 10_000, ...others } = options;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) throw new TypeError(`semel: a store has no option ${unknown}`);
  if (typeof busyMs !== "number" || !(busyMs >= 0 && busyMs <= 3_600_000)) throw new RangeError("semel: `busyMs` is 0 to 3,600,000");
  return new FileStore(folder, { busyMs, fs });
}
