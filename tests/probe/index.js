// The probe's Worker: the host, and an object that goes wrong where a request asks for it.

import { SemelObject as Hosted, serve } from "./host.js";

/** A header says what goes wrong: `busy MS`, `hangs`, `overloaded`, `reset before`, `reset after`. */
const HEADER = "probe-object";

export class SemelObject extends Hosted {
  async fetch(request) {
    const [fault, argument] = (request.headers.get(HEADER) ?? "").split(" ");
    // Nothing else of the object goes on meanwhile, as when it has more to do than it can.
    if (fault === "busy") await this.ctx.blockConcurrencyWhile(() => new Promise((resolve) => setTimeout(resolve, Number(argument))));
    if (fault === "hangs") await new Promise(() => {});
    // As the platform says it, of an object with too long a queue.
    if (fault === "overloaded") throw Object.assign(new Error("Durable Object is overloaded."), { overloaded: true });
    if (fault === "reset" && argument === "before") this.ctx.abort("reset");
    return super.fetch(request);
  }

  run(attempt, request) {
    const answer = super.run(attempt, request);
    // In the turn of the commit: what was written is not durable yet.
    if (request.headers.get(HEADER) === "reset after") this.ctx.abort("reset");
    return answer;
  }
}

export default { fetch: serve };
