// Sessions of semel/inline: the wasm module is part of the JavaScript.

import { sessions } from "../session.js";
import base64 from "./session-wasm.js";

export default sessions(() => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)));
