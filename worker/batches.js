// Runs the requests of a batch or of a socket's frame in one commit. It runs them one by one instead if the commit crashes the module, if the storage
// fails, or if one of the requests is a suspect: it may have crashed the object before.
//
// Invariants:
// - Running one by one is like arriving one by one: a suspect's start is durable before it runs, a crash is counted, and no other request shares its
//   commit. Nothing else of the object runs meanwhile.
// - Each batch is tried in one commit first. If it then goes one by one, nothing of that commit is kept.

import { pairsOf, valueIn } from "./lines.js";
import { guarded } from "./module.js";

/** How many bytes the answers may have, less what 256 answers need to say that they have no room. The engine has the same number. */
const ROOM = (4 << 20) - 256 * 640;
/** The answer to a single request, as an element of a batch's answer. */
const elementOf = ([status, lines, body]) => JSON.stringify({ status, headers: Object.fromEntries(pairsOf(lines)), body: new TextDecoder().decode(body) });

/** The batches and frames of one key. */
export class Batches {
  #host;
  #turns;

  /**
   * `host`: `engine()` and `router()`, `wake()` to be called after each call, `sync()` of the storage, `startedMs`, and `crashed(method)`: the answer if
   * the module crashes even while it counts a crash.
   */
  constructor(host, turns) {
    this.#host = host;
    this.#turns = turns;
  }

  /** Resolves to the engine's answer to the body of a batch. */
  batch(key, asker, lines, body) {
    const elements = () => JSON.parse(new TextDecoder().decode(body));
    // Bytes, because the runtime would add a content type of its own to text.
    return this.#inOneCommit([key, asker], lines, body, elements, ([status, headers, , log], texts) => [status, headers, new TextEncoder().encode(`[${texts}]`), log]);
  }

  /** Resolves to `[text]`, or `[close code, reason]`. */
  frame(key, asker, text) {
    const elements = () => JSON.parse(text).requests;
    const body = new TextEncoder().encode(text);
    return this.#inOneCommit([key, asker], undefined, body, elements, ([shell], texts) => [shell.replace(/]}$/, () => `${texts}]}`)]);
  }

  /** `filled(shell, texts)` puts the answers of the requests into the answer to the whole. */
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
      // Acknowledgements have no id under which the crash could be counted. Router and socket answer an error.
      if (shell === undefined) throw new Error("what goes along with a batch crashes the module");
      // A refusal of the whole batch (another status) or frame (with a close code) is the answer.
      if (shell[0] !== 200 && shell.length > 1) return shell;
      return filled(shell, await this.#oneByOne(to, elements(), lines && valueIn(lines, "semel-deadline")));
    }, body?.byteLength);
  }

  async #oneByOne(to, elements, deadline) {
    const { engine, wake, sync, startedMs, crashed: unavailable } = this.#host;
    const texts = [];
    let room = ROOM;
    // Suspects are judged as of the arrival of all: the ones before it take their time.
    const cameMs = Date.now();
    for (const element of elements) {
      const one = (sinceMs, isAgain, nowMs = cameMs) => engine().one(...to, JSON.stringify(element), deadline && Number(deadline), sinceMs, isAgain, texts.length > 0, room, nowMs);
      const refused = () => [elementOf(unavailable(element.method)), room];
      const started = guarded(() => one(startedMs, false), refused);
      if (started !== undefined) {
        wake();
        // Its start could not be counted, so it must not run.
        if (started.length > 0) {
          const [text, left] = started;
          texts.push(text);
          room = left;
          continue;
        }
        await sync();
        guarded(() => one(startedMs, true));
      }
      // One instant for run and crash: a crash is counted as of the start. It is taken here because the deadline may have passed while earlier requests
      // were made durable.
      const nowMs = Date.now();
      const crashed = () => guarded(() => one(undefined, true, nowMs), refused);
      const [text, left] = guarded(() => one(undefined, false, nowMs), crashed);
      wake();
      if (started !== undefined) await sync();
      texts.push(text);
      room = left;
    }
    return texts.join(",");
  }
}
