// The Worker that is deployed: the protected ledger. Where NAIVE is bound, the naive one of the demonstration as well;
// where ASSETS is, the page.

import { DurableObject } from "cloudflare:workers";
import { SemelObject, bodyOf, guarded, linesOf, perInstance, responseOf, serve } from "./host.js";
import { NaiveEngine } from "./semel.js";
import { isForSite, serveSite } from "./site.js";

export { SemelObject };

const NAIVE = "/naive";

/** An account without protection. It has no memory of ids, so a retry deposits again. */
export class NaiveObject extends DurableObject {
  #engine = perInstance(() => new NaiveEngine(this.storage()));

  /** As of a protected object: the benchmarks count what is written. */
  storage() {
    return this.ctx.storage;
  }

  async fetch(request) {
    const { pathname } = new URL(request.url);
    const body = (await bodyOf(request)) ?? new Uint8Array();
    const attempt = [request.method, pathname.slice(NAIVE.length), linesOf(request.headers), body, Date.now()];
    return responseOf(
      guarded(
        () => this.#engine().handle(...attempt),
        () => [500, "", undefined, undefined],
      ),
    );
  }
}

export default {
  fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (isForSite(request.method, pathname, env)) return serveSite(request, pathname, env);
    const account = env.NAIVE && pathname.startsWith(`${NAIVE}/accounts/`) && pathname.split("/")[3];
    if (!account) return serve(request, env);
    return env.NAIVE.get(env.NAIVE.idFromName(account)).fetch(request);
  },
};
