// The entry with the module in it, for where no file can be fetched or read. It asks for nothing but JavaScript.

import shared from "../semel.js";
import base64 from "./wasm.js";

export * from "../semel.js";

const load = () => shared.glue(Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)));

export class Semel extends shared.Outbox {
  static open(options) {
    return super.open(options, load);
  }
}
