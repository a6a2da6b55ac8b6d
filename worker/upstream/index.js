// The Worker in front of an HTTP API (its address is `SEMEL_UPSTREAM`) or of another Worker (the service bound as `UPSTREAM`).

import { SemelObject as Hosted } from "./host.js";
import { senderOf } from "./origin.js";
import { perInstance } from "./module.js";
import { Remote } from "./remote.js";
import { sendBy, serve } from "./router.js";

export { SemelRegistry } from "./registry.js";

// Reads need no turn at a key, so the Worker itself sends them.
sendBy(perInstance(senderOf));

export class SemelObject extends Hosted {
  #remote = new Remote(this, senderOf(this.env), () => this.ctx.storage.sync());

  /** Never: no application code runs here that could crash the process, and a suspect that runs alone would keep all others waiting. */
  isSuspect() {
    return false;
  }

  underWay() {
    return this.#remote.underWay;
  }

  run(attempt) {
    const answer = this.#remote.answer(attempt);
    // If the client leaves, the request must go on: its outcome has to be recorded.
    this.ctx.waitUntil(answer.catch(() => {}));
    return answer;
  }
}

export default { fetch: serve };
