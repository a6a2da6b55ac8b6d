// Whether the Worker that was built can read its settings: its own module is asked, for whatever it can't read it serves nobody with.
//
// Invariant: nothing of a secret is in what is said. What the module says of those two that are always secrets has nothing of them.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const TELLS_NOTHING = ["SEMEL_ADMIN_TOKEN", "SEMEL_JWT_KEYS"];

/**
 * Resolves to why the Worker in `folder` can't read its settings; undefined: it can, or can't be asked, for its module reaches for what only the
 * runtime has. `vars` are those of the configuration, `given` the secrets that go along, and `there` the names of those that are deployed already.
 */
export async function unreadable(folder, { vars, given, there = [] }) {
  const glue = await import(pathToFileURL(join(folder, "semel.js"))).catch((error) => {
    if (error.code !== "ERR_UNSUPPORTED_ESM_URL_SCHEME") throw error;
  });
  if (glue === undefined) return undefined;
  const { SemelRouter, initSync } = glue;
  initSync({ module: new WebAssembly.Module(await readFile(join(folder, "semel_bg.wasm"))) });
  // What a secret is that is there, nobody sees. Any text stands for the audience, without which keys can't be read.
  const unseen = there.includes("SEMEL_JWT_AUDIENCE") ? { SEMEL_JWT_AUDIENCE: "unseen" } : {};
  // As the Worker hands them over.
  const settings = Object.entries({ ...unseen, ...vars, ...given }).filter(([name]) => name.startsWith("SEMEL_"));
  const texts = settings.map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}\0`);
  try {
    new SemelRouter(texts.join(""), new Map(), new Map(), new Map());
    return undefined;
  } catch (error) {
    // What the module throws by itself is text.
    if (typeof error !== "string") throw error;
    const [name] = /^SEMEL_[A-Z_]+/.exec(error) ?? ["A setting"];
    return name in vars || TELLS_NOTHING.includes(name) ? error : `${name} can't be read`;
  }
}
