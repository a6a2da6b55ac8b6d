// The entry with the module in it, for `require`.

const { OutcomeUnknownError, Outbox, SemelError, StoreError, glue } = require("../cjs/semel.cjs");
const base64 = require("./wasm.cjs");

const load = () => glue(Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)));

class Semel extends Outbox {
  static open(options) {
    return super.open(options, load);
  }
}

module.exports = { OutcomeUnknownError, Semel, SemelError, StoreError };
