// The entry of semel/inline, for places where no file can be fetched or read: the wasm module is part of the JavaScript.

import entry from "../semel.js";
import base64 from "./wasm.js";

export * from "../semel.js";
export const Semel = entry(() => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)), () => import("./session.js"));
