// Sessions for `require` in Node.

const { readFile } = require("node:fs/promises");
const { join } = require("node:path");
const { Made } = require("./late.cjs");
const { sessions } = require("./session.cjs");

exports.default = sessions(() => readFile(join(__dirname, "../session.wasm")), Made);
