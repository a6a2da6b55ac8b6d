// The entry for `require` in Node. It works where `require` can't load an ES module.

const { readFile } = require("node:fs/promises");
const { join } = require("node:path");
const { OutcomeUnknownError, Outbox, SemelError, StoreError, glue } = require("./semel.cjs");

const load = async () => glue(await readFile(join(__dirname, "../semel.wasm")));

class Semel extends Outbox {
  static open(options) {
    return super.open(options, load);
  }
}

module.exports = { OutcomeUnknownError, Semel, SemelError, StoreError };
