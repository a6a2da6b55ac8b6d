// The worker's own modules in Node, where time and storage can be the test's: of what they import, only the wasm module is made up.

import { register } from "node:module";

const made = {
  "./semel_bg.wasm": "export default undefined;",
  "./semel.js": "export const initSync = () => {}, log_panics = initSync, __wbg_reset_state = initSync;",
};
const hook = `
const made = ${JSON.stringify(made)};
export const resolve = (name, context, next) => (name in made ? { url: "data:text/javascript," + encodeURIComponent(made[name]), shortCircuit: true } : next(name, context));
`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);

/** Resolves to a module of `worker/`. */
export const natively = (name) => import(new URL(`../../worker/${name}`, import.meta.url).href);
