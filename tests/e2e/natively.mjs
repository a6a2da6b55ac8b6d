// Runs the worker's own modules in Node, where a test controls time and storage. What they import from the runtime and the wasm module is replaced.
//
// Invariant: a module of a crate replaces the host's module of the same name, as in a built worker.

import { register } from "node:module";

/**
 * What a test provides. `connect`: of the runtime's sockets. `waitUntil`: called with what is waited for. `glue`: what the modules call of the wasm
 * module; its `registry`, `engine` and `router` are objects, or functions that get the constructor's arguments and return one.
 */
export const given = (globalThis.given = { connect: undefined, glue: {} });
/** As the runtime has it: the type of a service's property that is a method. */
export const RpcStub = (globalThis.RpcStub = class {});

const made = {
  "cloudflare:sockets": "export const connect = (...asked) => given.connect(...asked);",
  "cloudflare:workers": "export const { RpcStub } = globalThis, env = {}, waitUntil = (its) => given.waitUntil?.(its); export class DurableObject { constructor(ctx, env) { Object.assign(this, { ctx, env }); } }",
  "./semel_bg.wasm": "export default undefined;",
  "./semel.js":
    "export const initSync = () => {}, log_panics = initSync, __wbg_reset_state = () => given.glue.restarted?.(), wait_ms = (...asked) => given.glue.wait_ms(...asked), registry_shards = () => 2, young_ms = () => 60_000; " +
    ["Registry", "Engine", "Router"].map((name) => `export class Semel${name} { constructor(...of) { const its = given.glue.${name.toLowerCase()}; return typeof its === "function" ? its(...of) : its; } }`).join(" "),
};
const hook = `
const made = ${JSON.stringify(made)};
export const resolve = (name, context, next) => {
  if (name in made) return { url: "data:text/javascript," + encodeURIComponent(made[name]), shortCircuit: true };
  return next(name, context).catch((error) => (name.startsWith("./") ? next("." + name, context) : Promise.reject(error)));
};
`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);

/** Resolves to a module of `worker/`. */
export const natively = (name) => import(new URL(`../../worker/${name}`, import.meta.url).href);
