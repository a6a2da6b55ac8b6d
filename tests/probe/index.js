// The probe's Worker: the host, and beside it what only tests ask for.

import { DurableObject } from "cloudflare:workers";
import { SemelObject, serve } from "./host.js";
import { SemelRegistry } from "./registry.js";

export { SemelObject, SemelRegistry };

/** A registry that fails whatever it is asked. */
export class DeafRegistry extends DurableObject {
  report() {
    throw new Error("the deaf registry was asked to listen");
  }
}

/** Tells the registry of keys that there need not be: `[shard, key, bytes]` of each. */
async function report(request, env) {
  const now = Date.now();
  const tell = ([shard, key, bytes]) => env.REGISTRY.get(env.REGISTRY.idFromName(String(shard))).report(shard, [key, now, now, 1, 0, bytes, 1, 1]);
  await Promise.all((await request.json()).map(tell));
  return new Response();
}

export default {
  fetch(request, env) {
    return new URL(request.url).pathname === "/probe/reports" ? report(request, env) : serve(request, env);
  },
};
