// Checks whether the built Worker can read its settings, by asking its own module. With settings that it can't read, it would serve nobody.
//
// Invariant: no message contains any part of a secret. The module's messages about the two settings that are always secrets never do.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const TELLS_NOTHING = ["SEMEL_ADMIN_TOKEN", "SEMEL_JWT_KEYS"];

/**
 * Resolves to why the Worker in `folder` can't read its settings; to undefined if it can, or if it can't be asked because its module imports what
 * only the runtime has. `vars`: those of the configuration. `given`: the secrets that are uploaded with it. `there`: the names of secrets that are
 * deployed already.
 */
export async function unreadable(folder, { vars, given, there = [] }) {
  const glue = await import(pathToFileURL(join(folder, "semel.js"))).catch((error) => {
    if (error.code !== "ERR_UNSUPPORTED_ESM_URL_SCHEME") throw error;
  });
  if (glue === undefined) return undefined;
  const { SemelRouter, initSync } = glue;
  initSync({ module: new WebAssembly.Module(await readFile(join(folder, "semel_bg.wasm"))) });
  // Nobody can see the value of a deployed secret. Any text will do for the audience, without which keys can't be read.
  const unseen = there.includes("SEMEL_JWT_AUDIENCE") ? { SEMEL_JWT_AUDIENCE: "unseen" } : {};
  // In the form in which the Worker hands them over.
  const settings = Object.entries({ ...unseen, ...vars, ...given }).filter(([name]) => name.startsWith("SEMEL_"));
  const texts = settings.map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}\0`);
  try {
    new SemelRouter(texts.join(""), new Map(), new Map(), new Map());
    return undefined;
  } catch (error) {
    // The module itself throws strings; anything else is a bug.
    if (typeof error !== "string") throw error;
    const [name] = /^SEMEL_[A-Z_]+/.exec(error) ?? ["A setting"];
    return name in vars || TELLS_NOTHING.includes(name) ? error : `${name} can't be read`;
  }
}
