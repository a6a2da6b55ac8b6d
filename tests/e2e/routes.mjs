// Reads the routes of the layer from the source of its router, so that tests that ask for all routes can't miss a new one.
//
// Invariant: a route of which no request can be made is an error. It is never left out.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { ROOT } from "../../scripts/setup/paths.mjs";

const SOURCES = "core/src/server";
const ARM = /\((Method::\w+(?: \| Method::\w+)*), \[([^\]]*)\]\)/g;

/** The body with which a route has an effect, by its last word, if that is not an empty object. */
const BODIES = {
  acks: (id) => ({ ids: [id] }),
  cancel: (id) => ({ id }),
  batch: (_, key) => [{ id: "in-a-batch", method: "POST", path: `/${key}/deposit`, headers: {}, body: '{"amount":1}' }],
  sessions: () => ({ name: "s" }),
  resolve: () => ({ executed: "no" }),
  forget: () => ({ before: 1 }),
};
const QUERIES = { times: "?from=0&step=1&count=1" };
/** What is put in for each part of a route that is no word. */
const PARTS = { id: (id) => id, _: (id) => id, number: () => "1", lane: () => "1" };

/** Resolves to `[method, segments]` for each arm of a file's router. */
async function armsOf(file) {
  const source = (await readFile(join(ROOT, SOURCES, file), "utf8")).split("\n#[cfg(test)]")[0];
  // What another file's router handles is found in that file.
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

/** Resolves to `[method, path, body]` for every control request: those of a key's users, and those of the administrator. */
export async function controlRoutes() {
  const [control, admin, registry] = await Promise.all(["control/mod.rs", "control/admin.rs", "registry/mod.rs"].map(armsOf));
  const of = (arms, prefix) => (key, id) => requestsOf(arms, prefix.replace("KEY", encodeURIComponent(key)), key, id);
  const [ofRegistry, ofAdmin] = [of(registry, "/semel/v1/admin"), of(admin, "/semel/v1/admin/keys/KEY")];
  return { ofKeys: of(control, "/semel/v1/keys/KEY"), ofAdministrator: (key, id) => [...ofRegistry(key, id), ...ofAdmin(key, id)] };
}
