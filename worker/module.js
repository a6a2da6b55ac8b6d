// The module: its instance, what is kept in it, and what the rest of the worker does when it dies.
//
// Invariants:
// - Every call into the module is synchronous. A panic is an exception here: the instance is thrown away, a fresh one
//   counts the crash, and the caller gets an answer. Nobody is left waiting for a promise that a dead instance held.
// - What an object keeps in memory can be rebuilt from its storage, for a crash anywhere in the isolate drops it. What can't be rebuilt
//   is kept on this side: nobody gets a rate back by a request that crashes.
// - A line of the log is one JSON document.

import module from "./semel_bg.wasm";
import * as glue from "./semel.js";

export { glue };

/** Counts the instances, so that what was made in an old one is made again. */
let instance = 0;

glue.initSync({ module });
glue.log_panics();

/** Throws the instance away after a panic, or where a call into it is not come back from: its memory may be half-written. */
export function restart() {
  instance += 1;
  glue.__wbg_reset_state();
  glue.log_panics();
}

/** What could end a line, moves a terminal's cursor or turns text round, and JSON leaves as it is. */
const UNSAFE = /[\p{C}\p{Zl}\p{Zp}]/gu;
const unitOf = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
const escaped = (character) => character.split("").map(unitOf).join("");

/** A line of the log that belongs to no request. */
export function note(level, message, key) {
  console.log(JSON.stringify({ time: Date.now(), level, key, message }).replace(UNSAFE, escaped));
}

/** Calls into the module; after a panic, calls `otherwise`, if there is anything to be done, on a fresh instance. Settings that can't be read are no panic. */
export function guarded(call, otherwise) {
  try {
    return call();
  } catch (error) {
    // What the module throws by itself is text.
    if (typeof error === "string") throw error;
    note("error", `the module was restarted: ${error}`);
    restart();
    return otherwise?.();
  }
}

/** Calls into the module what may throw a failure of the storage; the instance is thrown away only after a panic. */
export function attempted(call) {
  try {
    return call();
  } catch (error) {
    // What the module throws by itself is text.
    if (typeof error === "string") throw new Error(error);
    restart();
    throw error;
  }
}

/** The same, of an object: with what stands for its key, as far as its engine knows that. */
export function noteOf(engine, message) {
  let key;
  try {
    key = attempted(() => engine().key_hash());
  } catch {
    // What is wrong is told all the same.
  }
  note("warn", message, key);
}

/** `NAME=value` and a NUL, of each setting. wrangler hands over numbers, booleans and JSON as what they are. */
export const settingsOf = (env) =>
  Object.entries(env)
    .filter(([name]) => name.startsWith("SEMEL_"))
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}\0`)
    .join("");

/** What each one has taken, as the module counts it: when it is given back. */
export class Table extends Map {
  get(who) {
    return super.get(who) ?? 0n;
  }

  sweep(nowNs) {
    for (const [who, freeNs] of this) if (freeNs <= nowNs) this.delete(who);
  }
}

/** Keeps what `make` makes in the module for as long as its instance lives. */
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
