// Sessions of semel/inline, for `require`: the wasm module is part of the JavaScript.

const { sessions } = require("../cjs/session.cjs");
const base64 = require("./session-wasm.cjs");

exports.default = sessions(() => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)));
