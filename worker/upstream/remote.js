// The requests of one key that are executed elsewhere: one at a time, each from its recorded start to its recorded outcome.
//
// Invariants:
// - Nothing is sent before the start is durable, and nothing but what the engine says.
// - Who waits for a turn waits no longer than its client does, and is answered what there is then.
// - What is sent ends: by an answer, a failure, or its time.

import { within } from "./chores.js";
import { glue } from "./module.js";

/** So many wait for a turn. The others are answered at once. */
const WAITING_MAX = 256;
/** The router gives up when the client does; what there is has to be told before: by a quarter of the time, or by so much. */
const BEFORE_MS_MAX = 2_000;
const CONTROL = "/semel/";
/** An administrator settles nothing that is under way: it waits for its turn too, for less long than who asks does. */
const RESOLVE = "/resolve";
const RESOLVE_WAIT_MS = 5_000;

export class Remote {
  /** The id of the change that is under way, once the engine has said that it is to be sent. */
  underWay;
  #object;
  #send;
  #sync;
  /** Settles when the request that is under way is through; undefined where there is none. */
  #turn;
  #waiting = 0;

  /** `object` answers, `send` resolves to what came of a call, `sync` when all that is committed is durable. */
  constructor(object, send, sync) {
    this.#object = object;
    this.#send = send;
    this.#sync = sync;
  }

  /** Resolves to the engine's answer. `attempt()`: its arguments, as of now. */
  async answer(attempt) {
    const [method, pathname, , lines] = attempt();
    const reads = method === "GET" || method === "HEAD";
    const isControl = pathname.startsWith(CONTROL);
    const resolves = isControl && pathname.endsWith(RESOLVE);
    if (reads || (isControl && !resolves)) return this.#follow(attempt);
    if (this.#turn) {
      const answer = this.#object.waiting(attempt());
      if (!isOpen(answer) || this.#waiting >= WAITING_MAX) return answer;
      const now = Date.now();
      const waitMs = Math.min(glue.wait_ms(lines, now), resolves ? RESOLVE_WAIT_MS : Infinity);
      const untilMs = now + waitMs - Math.min(BEFORE_MS_MAX, waitMs / 4);
      // Many wait for the same, and one of them is first.
      while (this.#turn) {
        if (Date.now() >= untilMs) return this.#object.waiting(attempt());
        await this.#through(untilMs);
      }
    }
    let end;
    this.#turn = new Promise((resolve) => {
      end = resolve;
    });
    try {
      return await this.#follow(attempt);
    } finally {
      this.#turn = undefined;
      end();
    }
  }

  /** Waits until the request that is under way is through, or until an instant. */
  async #through(untilMs) {
    this.#waiting += 1;
    await within(untilMs - Date.now(), this.#turn).catch(() => {});
    this.#waiting -= 1;
  }

  async #follow(attempt) {
    let answer = this.#object.answered(attempt());
    for (let call = this.#object.taken(); call !== undefined; call = this.#object.taken()) {
      const isRead = call.length === 0;
      if (!isRead) {
        this.underWay = call[3];
        await this.#sync();
      }
      const ended = await this.#send(call, answer, attempt());
      if (!isRead) this.underWay = undefined;
      answer = this.#object.settled(call, ended, attempt());
    }
    return answer;
  }
}

/** Whether an answer says only that it is not settled yet. */
function isOpen([, lines]) {
  return /^semel-status:(in-flight|locked)$/m.test(lines);
}
