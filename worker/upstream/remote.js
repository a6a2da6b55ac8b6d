// Runs the requests of one key that are executed elsewhere: one at a time, each from its recorded start to its recorded outcome.
//
// Invariants:
// - A call is sent only when its start is durable, and only if the engine says so.
// - A request waits for its turn no longer than its client waits, and is then answered with the current state.
// - Each call ends: by an answer, by a failure, or because its time is over.
// - What came of a call is known only here until it is recorded. So if the storage fails, it is tried again for a while; if the module crashes, once more,
//   because each crash takes from all keys of the isolate what they have in memory.

import { within } from "./chores.js";
import { valueIn } from "./lines.js";
import { glue } from "./module.js";

/** How many requests may wait for a turn, and with how many bytes of bodies. An isolate has 128 MB for all its keys. Others are answered at once. */
const WAITING_MAX = 256;
const WAITING_BYTES_MAX = 16 << 20;
/** A waiting request is answered before the router gives up: a quarter of the time earlier, but at most this much. */
const BEFORE_MS_MAX = 2_000;
const CONTROL = "/semel/";
/** How long a control request waits for the call under way: nothing that is under way can be settled by hand. Shorter than its caller waits. */
const CONTROL_WAIT_MS = 5_000;
/** How often, and after which pause, the engine is given once more what came of a call and could not be recorded. */
const AGAIN_MAX = 10;
const AGAIN_MS = 1_000;
/** Given instead of what came of a call and crashes the module: nothing is known of it, so the request stays in doubt. */
const UNRECORDED = [false, "to record what came of it crashes the module"];
/** Answers that mean: it is not settled yet, and: this can't be done while a request is under way. */
const OPEN = /^semel-status:(in-flight|locked)$/m;
const LOCKED = /^semel-status:locked$/m;

export class Remote {
  /** The id of the change under way, from when the engine has said that it must be sent. */
  underWay;
  #object;
  #send;
  #sync;
  /** Settles when the request under way is done; undefined: there is none. */
  #turn;
  #waiting = 0;
  #waitingBytes = 0;

  /** `object` answers; `send` resolves to the result of a call; `sync` resolves when everything committed is durable. */
  constructor(object, send, sync) {
    this.#object = object;
    this.#send = send;
    this.#sync = sync;
  }

  /** Resolves to the engine's answer. `attempt()` gives the engine's arguments as of now. */
  async answer(attempt) {
    const [method, pathname] = attempt();
    // The Worker has sent the read itself; this is only for the acknowledgements that came with it.
    if (method === "GET" || method === "HEAD") return this.#object.answered(attempt());
    if (pathname.startsWith(CONTROL)) return this.#control(attempt);
    if (this.#turn) {
      const answer = this.#object.waiting(attempt());
      const bytes = attempt()[4]?.byteLength ?? 0;
      if (!OPEN.test(answer[1]) || this.#waiting >= WAITING_MAX || this.#waitingBytes + bytes > WAITING_BYTES_MAX) return answer;
      const untilMs = untilOf(attempt, Infinity);
      // Many wait for the same turn. One of them takes it, and the others wait on.
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

  /** Control requests need no turn. The engine says if one must wait for the call under way. */
  async #control(attempt) {
    const untilMs = untilOf(attempt, CONTROL_WAIT_MS);
    for (let isLate = false; ; ) {
      const answer = this.#object.answered(attempt());
      if (isLate || !LOCKED.test(answer[1]) || !this.#turn || this.#waiting >= WAITING_MAX) return answer;
      isLate = !(await this.#through(untilMs));
    }
  }

  /** Waits for the request under way, until an instant at most. Resolves to whether it is done; to false at once if no timer can be had. */
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
      // A call's time counts from its recorded start: whoever finds that start later counts from there too.
      const sinceMs = Date.now();
      let ended;
      try {
        await this.#sync();
        ended = await this.#send(call, answer, attempt(), sinceMs);
      } finally {
        this.underWay = undefined;
      }
      answer = await this.#settled(call, ended, attempt);
    }
    return answer;
  }

  /** Gives the engine what came of a call. Only an answer of the key itself has its name; without it, the storage has failed. */
  async #settled(call, ended, attempt) {
    const given = (its) => this.#object.settled(call, its, attempt());
    for (let again = 0; ; again += 1) {
      const answer = given(ended);
      if (answer === undefined) return given(ended) ?? given(UNRECORDED) ?? this.#object.waiting(attempt());
      const [status, lines, , line] = answer;
      if (status !== 503 || valueIn(lines, "semel-key") !== undefined || again === AGAIN_MAX) return answer;
      const pause = pauseOf(AGAIN_MS);
      if (pause === undefined) return answer;
      if (line !== undefined) console.log(line);
      // Until then nobody may settle it, and nobody is told that no outcome came.
      this.underWay = call[3];
      this.#object.goesOn(call[3]);
      await pause;
      this.underWay = undefined;
    }
  }
}

/** Resolves after a pause. Undefined if no timer can be had: an object may have ten thousand at most. */
function pauseOf(ms) {
  let end;
  const pause = new Promise((resolve) => {
    end = resolve;
  });
  try {
    setTimeout(end, ms);
    return pause;
  } catch {
    return undefined;
  }
}

/** Until when a request waits for its turn. The router gives up when the client does, and the answer must be there before that. */
function untilOf(attempt, mostMs) {
  const [, , , lines] = attempt();
  const now = Date.now();
  const waitMs = Math.min(glue.wait_ms(lines, now), mostMs);
  return now + waitMs - Math.min(BEFORE_MS_MAX, waitMs / 4);
}
