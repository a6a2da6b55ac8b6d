// Sessions with the module in it, for `require`.

const { sessions } = require("../cjs/session.cjs");
const base64 = require("./session-wasm.cjs");

exports.default = sessions(() => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)));
