// The runtimes that are installed as packages: their binaries for this machine.

import { createRequire } from "node:module";
import { dirname, join } from "node:path";

const SYSTEM = `${process.platform}-${process.arch}`;
const require = createRequire(import.meta.url);

const bun = { "darwin-arm64": "darwin-aarch64", "linux-arm64": "linux-aarch64", "linux-x64": "linux-x64" };
const deno = { "darwin-arm64": "darwin-arm64", "linux-arm64": "linux-arm64-glibc", "linux-x64": "linux-x64-glibc" };

/** The binary and the version of each runtime. `node-20.0` is the oldest that the package says it runs in. */
export const BINARIES = {
  "node-20.0": binaryOf(`node-20.0-${SYSTEM}`, "bin/node"),
  "node-22": binaryOf(`node-22-${SYSTEM}`, "bin/node"),
  "node-26": binaryOf(`node-26-${SYSTEM}`, "bin/node"),
  bun: binaryOf(`@oven/bun-${bun[SYSTEM]}`, "bin/bun"),
  deno: binaryOf(`@deno/${deno[SYSTEM]}`, "deno"),
};

/** If the package is missing, this throws, and the tests fail. */
function binaryOf(name, path) {
  const manifest = require.resolve(`${name}/package.json`);
  return { path: join(dirname(manifest), path), version: require(manifest).version.replace(/^v/, "") };
}
