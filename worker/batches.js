// Many requests of a key in one commit; and one by one, where that crashes, or the storage fails with it, or one of them may have ended the object before.
//
// Invariants:
// - What runs one by one runs as if it had come so: a suspect's start is durable before it runs, a crash is counted, and nobody
//   else is in that commit. Nothing else of the object runs meanwhile.
// - Each batch is begun in one commit: nothing of it is kept where it then goes one by one.

import { pairsOf, valueIn } from "./lines.js";
import { guarded } from "./module.js";

/** So many bytes of answers there are, without what each may take to say that it has no room. The engine has the same number. */
const ROOM = (4 << 20) - 256 * 640;
/** An answer to a request by itself, as one of a batch has it. */
const elementOf = ([status, lines, body]) => JSON.stringify({ status, headers: Object.fromEntries(pairsOf(lines)), body: new TextDecoder().decode(body) });

/** The batches and frames of one key. */
export class Batches {
  #host;
  #turns;

  /**
   * `host`: `engine()` and `router()`, `wake()` after each call, `sync()` for the storage, `startedMs`, and `crashed(method)`: the answer to what crashes
   * the module even where its crash is counted.
   */
  constructor(host, turns) {
    this.#host = host;
    this.#turns = turns;
  }

  /** Resolves to the engine's answer to the body of a batch. */
  batch(key, asker, lines, body) {
    const elements = () => JSON.parse(new TextDecoder().decode(body));
    // Of a text the runtime would say that it is one, beside the type that the answer has.
    return this.#inOneCommit([key, asker], lines, body, elements, ([status, headers, , log], texts) => [status, headers, new TextEncoder().encode(`[${texts}]`), log]);
  }

  /** Resolves to `[text]`, or `[close code, reason]`. */
  frame(key, asker, text) {
    const elements = () => JSON.parse(text).requests;
    const body = new TextEncoder().encode(text);
    return this.#inOneCommit([key, asker], undefined, body, elements, ([shell], texts) => [shell.replace(/]}$/, () => `${texts}]}`)]);
  }

  /** `filled` puts the answers of all requests into the answer to none of them. */
  async #inOneCommit(to, lines, body, elements, filled) {
    const { engine, router, wake, startedMs } = this.#host;
    const ask = (isAlone) => engine().batch(router(), ...to, isAlone, lines, body, startedMs, Date.now());
    const answer = await this.#turns.together(() => {
      const all = guarded(() => ask(false));
      wake();
      return all;
    }, undefined, body?.byteLength);
    if (answer !== undefined) return answer;
    return this.#turns.alone(async () => {
      const shell = guarded(() => ask(true));
      // What acknowledges has no id that it could be counted of. The router, or the socket, tells the caller.
      if (shell === undefined) throw new Error("what goes along with a batch crashes the module");
      // What is refused whole says more than its status, or than a text.
      if (shell[0] !== 200 && shell.length > 1) return shell;
      return filled(shell, await this.#oneByOne(to, elements(), lines && valueIn(lines, "semel-deadline")));
    }, body?.byteLength);
  }

  async #oneByOne(to, elements, deadline) {
    const { engine, wake, sync, startedMs, crashed: unavailable } = this.#host;
    const texts = [];
    let room = ROOM;
    // Whether one may have ended the object before goes by when all of them came: those before it take their time.
    const cameMs = Date.now();
    for (const element of elements) {
      const one = (sinceMs, isAgain, nowMs = cameMs) => engine().one(...to, JSON.stringify(element), deadline && Number(deadline), sinceMs, isAgain, texts.length > 0, room, nowMs);
      const started = guarded(() => one(startedMs, false));
      if (started !== undefined) {
        wake();
        // Its start could not be counted, so it does not run.
        if (started.length > 0) {
          const [text, left] = started;
          texts.push(text);
          room = left;
          continue;
        }
        await sync();
        guarded(() => one(startedMs, true));
      }
      // One instant for both: a crash is counted as of the start. No earlier, for its deadline may pass until all before it is durable.
      const nowMs = Date.now();
      const crashed = () =>
        guarded(
          () => one(undefined, true, nowMs),
          () => [elementOf(unavailable(element.method)), room],
        );
      const [text, left] = guarded(() => one(undefined, false, nowMs), crashed);
      wake();
      if (started !== undefined) await sync();
      texts.push(text);
      room = left;
    }
    return texts.join(",");
  }
}
