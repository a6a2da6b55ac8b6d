// The entry with the module in it, for `require`.

const { default: shared, ...errors } = require("../cjs/semel.cjs");
const base64 = require("./wasm.cjs");

const load = () => shared.glue(Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)));

class Semel extends shared.Outbox {
  static open(options) {
    return super.open(options, load);
  }
}

module.exports = { ...errors, Semel };
