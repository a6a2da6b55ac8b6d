// Imports something, and returns what the import touched.
//
// Invariant: everything that was watched is restored, so that later code runs in an unchanged runtime.

import { renameSync } from "node:fs";

/** Names that a server doesn't have, or that mean something else there. The package may not even check whether they exist. */
const OF_PAGES = ["window", "document", "self", "location", "navigator", "indexedDB", "localStorage", "sessionStorage"];
const CALLS = ["fetch", "setTimeout", "setInterval", "setImmediate", "queueMicrotask"];
const OF_WASM = ["compile", "instantiate", "Module", "Instance"];

/**
 * Resolves to what `importIt` resolves to, and to the names of all that it touched. `module` is the path of the wasm file, which is moved
 * away during the import.
 */
export async function importedQuietly(importIt, module) {
  const touched = [];
  const restore = [
    ...OF_PAGES.map((name) => watched(globalThis, name, () => touched.push(name))),
    ...CALLS.map((name) => counted(globalThis, name, () => touched.push(name))),
    ...OF_WASM.map((name) => counted(WebAssembly, name, () => touched.push(name))),
  ];
  const globals = new Set(Object.getOwnPropertyNames(globalThis));
  renameSync(module, `${module}.away`);
  try {
    const exports = await importIt();
    touched.push(...Object.getOwnPropertyNames(globalThis).filter((name) => !globals.has(name)));
    return { exports, touched };
  } finally {
    renameSync(`${module}.away`, module);
    for (const each of restore) each();
  }
}

/** Calls `tell` on each read of a property. */
function watched(object, name, tell) {
  const before = Object.getOwnPropertyDescriptor(object, name);
  Object.defineProperty(object, name, {
    configurable: true,
    get() {
      tell();
      return undefined;
    },
  });
  return () => (before ? Object.defineProperty(object, name, before) : delete object[name]);
}

/** Calls `tell` on each call of a function. */
function counted(object, name, tell) {
  const before = object[name];
  object[name] = function (...parameters) {
    tell();
    return new.target ? Reflect.construct(before, parameters) : before.apply(this, parameters);
  };
  return () => (object[name] = before);
}
