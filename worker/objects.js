// Finds the objects of keys and of the registry by name.
//
// Invariant: every lookup goes through this file, with the same jurisdiction. In another jurisdiction a name has another object, which knows nothing of what
// the first one executed.

import { glue } from "./module.js";

// Objects are called by RPC. Without this check, an old compatibility date would make every request fail in some obscure place.
if (globalThis.Cloudflare?.compatibilityFlags.rpc === false) throw new Error("Semel needs a compatibility_date of 2024-04-03 or later");

export const SHARDS = Array.from({ length: glue.registry_shards() }, (_, shard) => shard);

/** A stub of the object of this name, in the jurisdiction that is set, if any. */
export function objectOf(env, binding, name) {
  let objects = env[binding];
  if (!objects) throw new Error(`${binding} is not bound`);
  if (env.SEMEL_JURISDICTION) objects = objects.jurisdiction(env.SEMEL_JURISDICTION);
  return objects.get(objects.idFromName(name));
}

/** A stub of a shard of the registry. */
export const shardOf = (env, shard) => objectOf(env, "REGISTRY", String(shard));
