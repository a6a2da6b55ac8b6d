// The Worker that stands in front of an HTTP API, or of another Worker: `SEMEL_UPSTREAM` is the address, or `UPSTREAM` a service.

import { SemelObject as Hosted } from "./host.js";
import { senderOf } from "./origin.js";
import { perInstance } from "./module.js";
import { Remote } from "./remote.js";
import { readBy, serve } from "./router.js";

export { SemelRegistry } from "./registry.js";

const senders = perInstance(senderOf);
// A read has no turn, so the Worker sends it.
readBy((head, env) => senders(env)([], undefined, head));

export class SemelObject extends Hosted {
  #remote = new Remote(this, senderOf(this.env), () => this.ctx.storage.sync());

  /** Nothing of an application's runs here that could end the process; and who runs alone would keep all others waiting. */
  isSuspect() {
    return false;
  }

  underWay() {
    return this.#remote.underWay;
  }

  run(attempt) {
    const answer = this.#remote.answer(attempt);
    // A caller that leaves takes nothing with it: what was sent is settled.
    this.ctx.waitUntil(answer.catch(() => {}));
    return answer;
  }
}

export default { fetch: serve };
