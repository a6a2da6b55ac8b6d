// The entry for `require` in Node. It works where `require` can't load an ES module.

const { readFile } = require("node:fs/promises");
const { join } = require("node:path");
const { default: shared, ...errors } = require("./semel.cjs");

const load = async () => shared.glue(await readFile(join(__dirname, "../semel.wasm")));

class Semel extends shared.Outbox {
  static open(options) {
    return super.open(options, load);
  }
}

module.exports = { ...errors, Semel };
