// What a key has sent to others: to objects of other keys, and by fetch to addresses outside.
//
// Invariants:
// - What is to be sent is asked of the engine, and what came of it is told to the engine. Nothing here decides.
// - What was committed before is durable when it leaves: the platform holds back all that an object sends until then.
// - Every wait has a deadline. What has no answer by then is sent again at a constant interval, for as long as the object lives; then an
//   alarm starts another.

import { inTime, within } from "./chores.js";
import { linesOf, pairsOf, valueIn } from "./lines.js";
import { attempted, guarded, noteOf } from "./module.js";
import { objectOf } from "./objects.js";

/** So long an answer may take. */
const ANSWER_MS = 30_000;
/** The engine's interval, and a little more, so that what is due by then is found. */
const AGAIN_MS = 1_010;
/** So much is read of what an address outside answers, and waited for so long: its status says what becomes of it, and the rest is for people. */
const OUTSIDE_BYTES_MAX = 4_096;
const OUTSIDE_MS = 5_000;

/** The effects of one key. */
export class Effects {
  #host;
  #turns;
  /** Settles when all that is due has been looked at; undefined: nobody is looking. */
  #asking;
  #timer;

  /** `host`: `ctx`, `env`, `engine()`, `ready()`, which looks at what is stored, and `wake()`, which sets the alarm. */
  constructor(host, turns) {
    this.#host = host;
    this.#turns = turns;
  }

  /** After a call into the engine, in the same turn: begins to send what there is. Resolves to true where what that is could not be asked. */
  begin() {
    const has = guarded(() => this.#host.engine().has_to_send());
    const asked = has && this.#ask();
    if (asked) this.#host.ctx.waitUntil(asked);
    return asked;
  }

  /** When the object has to be awake, should it die before all is sent; Infinity: nothing is known to wait. */
  get wakesMs() {
    const atMs = guarded(() => this.#host.engine().wakes_to_send_at(Date.now()));
    return atMs ?? Infinity;
  }

  /** Has all sent that is due; whether that could not be looked at. Who comes meanwhile hears of the same. */
  #ask() {
    return (this.#asking ??= this.#askAll());
  }

  async #askAll() {
    try {
      await this.#host.ready();
      await this.#alone();
      // In one turn: what is due later asks anew.
      for (;;) {
        const next = attempted(() => this.#host.engine().send_next(Date.now(), Math.floor(Math.random() * Number.MAX_SAFE_INTEGER)));
        if (next === undefined) break;
        this.#host.ctx.waitUntil(this.#send(next));
      }
    } catch (error) {
      noteOf(this.#host.engine, `what a key has to send can't be looked at: ${error}`);
      return true;
    } finally {
      this.#asking = undefined;
      this.#askLater();
      this.#host.wake();
    }
  }

  /** Nothing of this is in the commit of a request that has the object to itself. */
  async #alone() {
    while (this.#turns.taken) await this.#turns.taken;
  }

  #askLater() {
    if (this.#timer !== undefined || this.wakesMs === Infinity) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#host.ctx.waitUntil(this.#ask());
    }, AGAIN_MS);
  }

  async #send([lane, token, ...what]) {
    const heard = await this.#heard(...what);
    await this.#alone();
    try {
      attempted(() => this.#host.engine().sent(lane, token, ...heard, Date.now()));
    } catch (error) {
      noteOf(this.#host.engine, `what came of a request that a key has sent is asked for once more: ${error}`);
    }
    await this.#ask();
  }

  /** `[status, Semel-Status, body]`; or `[undefined, reason]`, or `[null, reason]` where it can't be sent at all. */
  async #heard(key, method, url, lines, body) {
    let request;
    try {
      const address = key === undefined ? url : `https://semel.internal${url}`;
      request = new Request(address, { method, headers: pairsOf(lines), body, redirect: "manual" });
    } catch (error) {
      return [null, String(error), new Uint8Array()];
    }
    try {
      return await (key === undefined ? this.#called(request) : within(ANSWER_MS, this.#asked(key, request, body)));
    } catch (error) {
      return [undefined, String(error), new Uint8Array()];
    }
  }

  async #asked(key, { method, url, headers }, body) {
    const { pathname, search } = new URL(url);
    const [status, lines, told, line] = await objectOf(this.#host.env, "SEMEL", key).ask(method, pathname, search, linesOf(headers), body);
    // It is written where the answer is heard, which is here.
    if (line !== undefined) console.log(line);
    return [status, valueIn(lines, "semel-status") ?? "", told ?? new Uint8Array()];
  }

  #called(request) {
    return inTime(ANSWER_MS, async (signal) => {
      const answer = await fetch(request, { signal });
      const reader = answer.body?.getReader();
      const { value } = (await within(OUTSIDE_MS, reader?.read()).catch(() => {})) ?? {};
      reader?.cancel().catch(() => {});
      return [answer.status, "", (value ?? new Uint8Array()).subarray(0, OUTSIDE_BYTES_MAX)];
    });
  }
}
