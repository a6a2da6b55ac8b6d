// The requests of one key that are executed elsewhere: one at a time, each from its recorded start to its recorded outcome.
//
// Invariants:
// - Nothing is sent before the start is durable, and nothing but what the engine says.
// - Who waits for a turn waits no longer than its client does, and is answered what there is then.
// - What is sent ends: by an answer, a failure, or its time.

import { within } from "./chores.js";
import { glue } from "./module.js";

/** So many wait for a turn, with so many bytes of bodies: an isolate has 128 MB for all its keys. The others are answered at once. */
const WAITING_MAX = 256;
const WAITING_BYTES_MAX = 16 << 20;
/** What there is is told before the router gives up: by a quarter of the time, or by so much. */
const BEFORE_MS_MAX = 2_000;
const CONTROL = "/semel/";
/** An administrator settles nothing that is under way, and waits for its end less long than who asks does. */
const CONTROL_WAIT_MS = 5_000;
/** That it is not settled yet; and that it is not done while a request is under way. */
const OPEN = /^semel-status:(in-flight|locked)$/m;
const LOCKED = /^semel-status:locked$/m;

export class Remote {
  /** The id of the change that is under way, once the engine has said that it is to be sent. */
  underWay;
  #object;
  #send;
  #sync;
  /** Settles when the request that is under way is through; undefined where there is none. */
  #turn;
  #waiting = 0;
  #waitingBytes = 0;

  /** `object` answers, `send` resolves to what came of a call, `sync` when all that is committed is durable. */
  constructor(object, send, sync) {
    this.#object = object;
    this.#send = send;
    this.#sync = sync;
  }

  /** Resolves to the engine's answer. `attempt()`: its arguments, as of now. */
  async answer(attempt) {
    const [method, pathname] = attempt();
    // The Worker reads; here is what came along.
    if (method === "GET" || method === "HEAD") return this.#object.answered(attempt());
    if (pathname.startsWith(CONTROL)) return this.#control(attempt);
    if (this.#turn) {
      const answer = this.#object.waiting(attempt());
      const bytes = attempt()[4]?.byteLength ?? 0;
      if (!OPEN.test(answer[1]) || this.#waiting >= WAITING_MAX || this.#waitingBytes + bytes > WAITING_BYTES_MAX) return answer;
      const untilMs = untilOf(attempt, Infinity);
      // Many wait for the same, and one of them is first.
      this.#waitingBytes += bytes;
      try {
        while (this.#turn) {
          if (!(await this.#through(untilMs))) return this.#object.waiting(attempt());
        }
      } finally {
        this.#waitingBytes -= bytes;
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

  /** What is asked of the layer has no turn; the engine says whether it has to wait for what is under way. */
  async #control(attempt) {
    const untilMs = untilOf(attempt, CONTROL_WAIT_MS);
    for (let isLate = false; ; ) {
      const answer = this.#object.answered(attempt());
      if (isLate || !LOCKED.test(answer[1]) || !this.#turn || this.#waiting >= WAITING_MAX) return answer;
      isLate = !(await this.#through(untilMs));
    }
  }

  /** Waits until the request that is under way is through, or until an instant; whether it is through. Where no timer can be had, it is not waited for. */
  async #through(untilMs) {
    this.#waiting += 1;
    const isThrough = await within(untilMs - Date.now(), this.#turn).then(
      () => true,
      () => false,
    );
    this.#waiting -= 1;
    return isThrough;
  }

  async #follow(attempt) {
    let answer = this.#object.answered(attempt());
    for (let call = this.#object.taken(); call !== undefined; call = this.#object.taken()) {
      this.underWay = call[3];
      // The time of a call has begun with its start, for who finds that counts from there.
      const sinceMs = Date.now();
      let ended;
      try {
        await this.#sync();
        ended = await this.#send(call, answer, attempt(), sinceMs);
      } finally {
        this.underWay = undefined;
      }
      answer = this.#object.settled(call, ended, attempt());
    }
    return answer;
  }
}

/** Until when it is waited for a turn: the router gives up when the client does, and what there is has to be told before. */
function untilOf(attempt, mostMs) {
  const [, , , lines] = attempt();
  const now = Date.now();
  const waitMs = Math.min(glue.wait_ms(lines, now), mostMs);
  return now + waitMs - Math.min(BEFORE_MS_MAX, waitMs / 4);
}
