// The entry for `require` in Node. It works where `require` can't load an ES module.

const { readFile } = require("node:fs/promises");
const { join } = require("node:path");
const { default: entry, ...errors } = require("./semel.cjs");

const Semel = entry(() => readFile(join(__dirname, "../semel.wasm")), async () => require("./session-node.cjs"));

module.exports = { ...errors, Semel };
