// The entry of semel/inline for `require`: the wasm module is part of the JavaScript.

const { default: entry, ...errors } = require("../cjs/semel.cjs");
const base64 = require("./wasm.cjs");

const Semel = entry(() => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)), async () => require("./session.cjs"));

module.exports = { ...errors, Semel };
