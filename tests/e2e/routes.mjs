// The routes of the layer, as its router's source has them: what tests of all routes ask for can't lack the newest.
//
// Invariant: what can't be made a request of is an error, never left out.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { ROOT } from "../../scripts/setup/paths.mjs";

const SOURCES = "core/src/server";
const ARM = /\((Method::\w+(?: \| Method::\w+)*), \[([^\]]*)\]\)/g;

/** What a route takes to have an effect, by its last word, where that is not an empty object. */
const BODIES = {
  acks: (id) => ({ ids: [id] }),
  cancel: (id) => ({ id }),
  batch: (_, key) => [{ id: "in-a-batch", method: "POST", path: `/${key}/deposit`, headers: {}, body: '{"amount":1}' }],
  sessions: () => ({ name: "s" }),
  resolve: () => ({ executed: "no" }),
  forget: () => ({ before: 1 }),
};
const QUERIES = { times: "?from=0&step=1&count=1" };
/** What stands for each part that is no word. */
const PARTS = { id: (id) => id, _: (id) => id, number: () => "1", lane: () => "1" };

/** `[method, segments]` of each arm of a file's router. */
async function armsOf(file) {
  const source = (await readFile(join(ROOT, SOURCES, file), "utf8")).split("\n#[cfg(test)]")[0];
  // What goes on to another file's router is in that file.
  const arms = [...source.matchAll(ARM)].flatMap(([, methods, segments]) => {
    const parts = segments.split(",").map((part) => part.trim()).filter(Boolean);
    return methods.split(" | ").map((method) => [method.slice("Method::".length).toUpperCase(), parts]);
  });
  const matched = [...source.matchAll(/^ *\(Method::|\) \| \(Method::/gm)].length;
  assert.ok(arms.length > 0 && [...source.matchAll(ARM)].length === matched, `${file}: each of its ${matched} routes is read`);
  return arms;
}

function requestsOf(arms, prefix, key, id) {
  return arms.map(([method, parts]) => {
    const segments = parts.map((part) => {
      if (part.startsWith('"')) return part.slice(1, -1);
      assert.ok(part in PARTS, `nothing stands for ${part}`);
      return PARTS[part](id);
    });
    const last = segments.at(-1);
    const path = [prefix, ...segments].join("/") + (QUERIES[last] ?? "");
    const hasBody = method === "POST";
    return [method, path, hasBody ? JSON.stringify(BODIES[last]?.(id, key) ?? {}) : undefined];
  });
}

/** `[method, path, body]` of every control request: of a key's users, and of the administrator. */
export async function controlRoutes() {
  const [control, admin, registry] = await Promise.all(["control/mod.rs", "control/admin.rs", "registry/mod.rs"].map(armsOf));
  const of = (arms, prefix) => (key, id) => requestsOf(arms, prefix.replace("KEY", encodeURIComponent(key)), key, id);
  const [ofRegistry, ofAdmin] = [of(registry, "/semel/v1/admin"), of(admin, "/semel/v1/admin/keys/KEY")];
  return { ofKeys: of(control, "/semel/v1/keys/KEY"), ofAdministrator: (key, id) => [...ofRegistry(key, id), ...ofAdmin(key, id)] };
}
