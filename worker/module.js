// The wasm module: its instance, the values that live in it, and how the Worker recovers when it panics.
//
// Invariants:
// - Every call into the module is synchronous. A panic arrives here as an exception: the instance is thrown away, a fresh one
//   counts the crash, and the caller gets an answer. No caller waits for a promise that a dead instance held.
// - A crash anywhere in the isolate drops what all its objects keep in memory, so that must be rebuildable from storage. State that can't be
//   rebuilt is kept on this side: no client gets its rate back by a request that crashes.
// - A line of the log is one JSON document.

import module from "./semel_bg.wasm";
import * as glue from "./semel.js";

export { glue };

/** The number of the current instance: values that were made in an earlier one must be made again. */
let instance = 0;

glue.initSync({ module });
glue.log_panics();

/** Replaces the instance after a panic, or after a call into it that will never return: its memory may be half-written. */
export function restart() {
  instance += 1;
  glue.__wbg_reset_state();
  glue.log_panics();
}

/** Characters that JSON leaves as they are, but that could end a line, move a terminal's cursor or reverse text. */
const UNSAFE = /[\p{C}\p{Zl}\p{Zp}]/gu;
const unitOf = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
const escaped = (character) => character.split("").map(unitOf).join("");

/** Writes a line to the log that belongs to no request. */
export function note(level, message, key) {
  console.log(JSON.stringify({ time: Date.now(), level, key, message }).replace(UNSAFE, escaped));
}

/**
 * Calls into the module. After a panic it replaces the instance and returns what `otherwise` returns, if that is given. A string that the module throws is
 * no panic, but an error in the settings, and is thrown on.
 */
export function guarded(call, otherwise) {
  try {
    return call();
  } catch (error) {
    // The module itself throws strings; a panic is an Error.
    if (typeof error === "string") throw error;
    note("error", `the module was restarted: ${error}`);
    restart();
    return otherwise?.();
  }
}

/** Makes a call into the module that may throw a failure of the storage. The instance is replaced only after a panic. */
export function attempted(call) {
  try {
    return call();
  } catch (error) {
    // The module itself throws strings; a panic is an Error.
    if (typeof error === "string") throw new Error(error);
    restart();
    throw error;
  }
}

/** Like `note`, for an object: the line has the hash of its key, if its engine knows the key. */
export function noteOf(engine, message) {
  let key;
  try {
    key = attempted(() => engine().key_hash());
  } catch {
    // The message matters more than the key.
  }
  note("warn", message, key);
}

/** The settings as the module reads them: `NAME=value` and a NUL each. wrangler hands over numbers, booleans and JSON as such, not as strings. */
export const settingsOf = (env) =>
  Object.entries(env)
    .filter(([name]) => name.startsWith("SEMEL_"))
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}\0`)
    .join("");

/** The rates: for each client, the instant at which all of its allowance is available again, as the module computes it. */
export class Table extends Map {
  get(who) {
    return super.get(who) ?? 0n;
  }

  sweep(nowNs) {
    for (const [who, freeNs] of this) if (freeNs <= nowNs) this.delete(who);
  }
}

/** Caches what `make` makes in the module, for as long as the instance lives. */
export function perInstance(make) {
  let madeIn = -1;
  let made;
  return (argument) => {
    if (madeIn !== instance) {
      made = make(argument);
      madeIn = instance;
    }
    return made;
  };
}
