// The probe's Worker: the host, and beside it what only tests ask for.

import { DurableObject } from "cloudflare:workers";
import { SemelObject, serve } from "./host.js";
import { SemelRegistry as Registry } from "./registry.js";

export { SemelObject };

/** A registry that also takes many reports in one commit. */
export class SemelRegistry extends Registry {
  reports(shard, keys) {
    const now = Date.now();
    for (const [key, bytes] of keys) this.report(shard, [key, now, now, 1, 0, bytes, 1, 1]);
  }
}

/** A registry that fails whatever it is asked. */
export class DeafRegistry extends DurableObject {
  report() {
    throw new Error("the deaf registry was asked to listen");
  }
}

/** Lists keys that there need not be: `[shard, [[key, bytes]…]]` of each shard. */
async function report(request, env) {
  const tell = ([shard, keys]) => env.REGISTRY.get(env.REGISTRY.idFromName(String(shard))).reports(shard, keys);
  await Promise.all((await request.json()).map(tell));
  return new Response();
}

export default {
  fetch(request, env) {
    return new URL(request.url).pathname === "/probe/reports" ? report(request, env) : serve(request, env);
  },
};
