// The Worker that is deployed: the protected ledger. If NAIVE is bound, it is the demonstration: a naive ledger runs beside it, and both write the lab's
// log. If ASSETS is bound, it serves the pages.

import { DurableObject } from "cloudflare:workers";
import { bodyOf } from "./bodies.js";
import * as gathering from "./gathering.js";
import { SemelObject as Protected } from "./host.js";
import { isForLab, serveLab, withLog } from "./lab.js";
import { linesOf, pathOf, responseOf, valueIn } from "./lines.js";
import { guarded, perInstance } from "./module.js";
import { gatherBy, serve } from "./router.js";
import { NaiveEngine } from "./semel.js";
import { isForSite, serveSite } from "./site.js";

gatherBy(gathering);

const NAIVE = "/naive";

/** An account without protection. It remembers no ids, so a retry deposits again. */
class Naive extends DurableObject {
  #engine = perInstance(() => new NaiveEngine(this.storage()));

  /** Like that of a protected object: the benchmarks count what is written. */
  storage() {
    return this.ctx.storage;
  }

  /** Like that of a protected object. There are neither records nor tombstones. */
  count() {
    return [0, 0];
  }

  async fetch(request) {
    const { pathname, search } = pathOf(request.url);
    const body = (await bodyOf(request)) ?? new Uint8Array();
    const lines = linesOf(request.headers);
    return responseOf(this.run(() => [request.method, pathname.slice(NAIVE.length), search, lines, body]));
  }

  run(attempt) {
    const [method, pathname, , lines, body] = attempt();
    return guarded(
      () => this.#engine().handle(method, pathname, lines, body, Date.now()),
      () => [500, "", undefined, undefined],
    );
  }
}

export const SemelObject = withLog(Protected, ([, lines]) => valueIn(lines, "semel-status"));
export { SemelRegistry } from "./registry.js";
export const NaiveObject = withLog(Naive, ([status]) => (status < 300 ? "executed" : "failed"));

export default {
  fetch(request, env) {
    const { pathname } = pathOf(request.url);
    if (isForSite(request.method, pathname, env)) return serveSite(request, pathname, env);
    if (isForLab(pathname)) return serveLab(request, env);
    const account = env.NAIVE && pathname.startsWith(`${NAIVE}/accounts/`) && pathname.split("/")[3];
    if (!account) return serve(request, env);
    return env.NAIVE.get(env.NAIVE.idFromName(account)).fetch(request);
  },
};
