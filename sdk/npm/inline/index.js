// The entry with the module in it, for where no file can be fetched or read. It asks for nothing but JavaScript.

import { Outbox, glue } from "../semel.js";
import base64 from "./wasm.js";

export { OutcomeUnknownError, SemelError, StoreError } from "../semel.js";

const load = () => glue(Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)));

export class Semel extends Outbox {
  static open(options) {
    return super.open(options, load);
  }
}
