// The objects of keys and of the registry, by their names.
//
// Invariant: whoever asks for an object finds it here, by the same setting: in another place a name has another object, which knows nothing of what the one here executed.

import { glue } from "./module.js";

// Objects are called by their methods. Where the runtime can't, as by an old date, each request would fail at whatever comes first.
if (globalThis.Cloudflare?.compatibilityFlags.rpc === false) throw new Error("Semel needs a compatibility_date of 2024-04-03 or later");

export const SHARDS = Array.from({ length: glue.registry_shards() }, (_, shard) => shard);

/** A stub of the object that has this name, in the jurisdiction that is set, if one is. */
export function objectOf(env, binding, name) {
  let objects = env[binding];
  if (!objects) throw new Error(`${binding} is not bound`);
  if (env.SEMEL_JURISDICTION) objects = objects.jurisdiction(env.SEMEL_JURISDICTION);
  return objects.get(objects.idFromName(name));
}

/** The same, of a shard of the registry. */
export const shardOf = (env, shard) => objectOf(env, "REGISTRY", String(shard));
