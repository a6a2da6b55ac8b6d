// Sends what a key's handler has emitted: to objects of other keys, and by `fetch` to addresses outside.
//
// Invariants:
// - The engine says what to send, and is told the result. Nothing is decided here.
// - A request leaves only when its commit is durable: the platform holds back whatever an object sends until then.
// - Every wait has a deadline. A request without an answer by then is sent again at a constant interval, as long as the object lives. If the object dies,
//   an alarm starts another one.

import { inTime, pause, within } from "./chores.js";
import { linesOf, pairsOf, valueIn } from "./lines.js";
import { attempted, guarded, noteOf } from "./module.js";
import { objectOf } from "./objects.js";

/** The time limit of an answer. */
const ANSWER_MS = 30_000;
/** The engine's retry interval and a little more, so that a request is due when the engine is asked. */
const AGAIN_MS = 1_010;
/** How much of an outside answer's body is read, and for how long. The status decides; the body is only shown to administrators. */
const OUTSIDE_BYTES_MAX = 4_096;
const OUTSIDE_MS = 5_000;

/** The effects of one key. */
export class Effects {
  #host;
  #turns;
  /** Settles when everything that is due has been taken up; undefined: this is not under way. */
  #asking;
  #timer;

  /** `host`: `ctx`, `env`, `engine()`, `ready()`, which reads the stored state, and `wake()`, which sets the alarm. */
  constructor(host, turns) {
    this.#host = host;
    this.#turns = turns;
  }

  /** To be called after each call into the engine, in the same turn: begins to send what is due. Resolves to true if the engine could not say what is. */
  begin() {
    const has = guarded(() => this.#host.engine().has_to_send());
    const asked = has && this.#ask();
    if (asked) this.#host.ctx.waitUntil(asked);
    return asked;
  }

  /** The instant of the alarm that goes on with sending if the object dies; Infinity: nothing is known to wait. */
  get wakesMs() {
    const atMs = guarded(() => this.#host.engine().wakes_to_send_at(Date.now()));
    return atMs ?? Infinity;
  }

  /** Takes up everything that is due. Resolves to true if that could not be read. Calls meanwhile get the same promise. */
  #ask() {
    return (this.#asking ??= this.#askAll());
  }

  async #askAll() {
    try {
      await this.#host.ready();
      await this.#alone();
      // In one turn; whatever becomes due later is another call.
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

  /** Waits while a request has the object to itself, so as not to write into its commit. */
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
    // `workerd` looks at its sockets only when nothing else is due. Without a pause, keys that send to each other without end would keep all others waiting.
    await pause(0);
    await this.#alone();
    try {
      attempted(() => this.#host.engine().sent(lane, token, ...heard, Date.now()));
    } catch (error) {
      noteOf(this.#host.engine, `what came of a request that a key has sent is asked for once more: ${error}`);
    }
    await this.#ask();
  }

  /** Resolves to `[status, Semel-Status, body]`; to `[undefined, reason, body]` if no answer came; to `[null, reason, body]` if the request can't be made. */
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
    // The receiver of an answer writes its line of the log.
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
