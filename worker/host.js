// The object's side of the edge: it passes a key's requests from the runtime to the module, and the answers back. All decisions are the module's.
//
// Invariants:
// - After a panic (see module.js) a fresh instance counts the crash, and the caller gets an answer.
// - Every wait has a deadline.

import { DurableObject } from "cloudflare:workers";
import { Batches } from "./batches.js";
import { Chores } from "./chores.js";
import { valueIn } from "./lines.js";
import { glue, guarded, perInstance, restart, settingsOf } from "./module.js";
import { decided, gathering, routerOf } from "./router.js";
import { Sockets, UNAVAILABLE } from "./sockets.js";
import { endBy } from "./storage.js";
import { Turns } from "./turns.js";

/** After this time, only requests of sessions can be suspects (see `isSuspect`): clients have stopped resending whatever else was there at a crash. */
const YOUNG_MS = glue.young_ms();

let Effects;

/** Sets the class that sends what handlers emit. A Worker whose handler emits nothing needs none. */
export function sendBy(sender) {
  Effects = sender;
}

/** The object of a key. */
export class SemelObject extends DurableObject {
  #engine = perInstance(() => {
    const storage = this.storage();
    endBy(storage, () => {
      restart();
      this.ctx.abort("the storage failed between two writes, or ROLLBACK undid them");
    });
    const engine = new glue.SemelEngine(storage, settingsOf(this.env), this.underWay());
    // Otherwise what the handler emits would be stored, and wait for ever in silence. It throws a string, as for settings that can't be read: see `guarded`.
    if (!Effects && engine.has_to_send()) throw "the handler has requests sent, and index.js has no sendBy(Effects)";
    return engine;
  });
  #sockets = new Sockets(
    this.ctx,
    (...first) => this.#admitted(...first),
    (...frame) => this.#chores.during(this.#frame(frame)),
    () => this.#wake(),
  );
  #turns = new Turns(
    () => this.ctx.storage.sync(),
    (attempts) => gathering?.group(attempts, this.#engine(), () => this.#wake()),
  );
  #effects =
    Effects &&
    new Effects(
      { ctx: this.ctx, env: this.env, engine: () => this.#engine(), ready: () => this.#chores.ready(), wake: () => this.#chores.wake() },
      this.#turns,
    );
  #chores = new Chores(this.ctx, this.env, () => this.#engine(), this.#sockets, this.#effects);

  /** The storage that the engine uses. A subclass may return one that observes it. */
  storage() {
    return this.ctx.storage;
  }

  /** The id of the request that is being executed elsewhere, if one is. An engine that is made anew meanwhile needs to be told. */
  underWay() {}

  #startedMs = Date.now();
  #batches = new Batches(
    {
      engine: () => this.#engine(),
      router: () => routerOf(this.env),
      wake: () => this.#wake(),
      sync: () => this.ctx.storage.sync(),
      startedMs: this.#startedMs,
      crashed: (method) => {
        const answer = this.#crashed([method, undefined, undefined, "", undefined, Date.now()]);
        // The answer becomes part of a batch's, so its line of the log must be written here. An answer of this kind always has one.
        console.log(answer[3]);
        return answer;
      },
    },
    this.#turns,
  );

  constructor(ctx, env) {
    super(ctx, env);
    ctx.blockConcurrencyWhile(() => this.#chores.start());
  }

  /**
   * Returns the answer to a request, or a promise of it, with the ms that it took at its end. `lines`: the headers, to which the router has added principal
   * and key. `body`: undefined if it was too large. `asker`: only for a batch; the object checks with it what its requests may do.
   */
  ask(method, pathname, search, lines, body, asker) {
    const arrivedMs = Date.now();
    const attempt = () => [method, pathname, search, lines, body, arrivedMs, Date.now()];
    const timed = ([status, head, said, line]) => [status, head, said, line, Date.now() - arrivedMs];
    const answer = asker === undefined ? this.#answer(attempt, lines.length + (body?.byteLength ?? 0)) : this.#batch(lines, body, asker);
    // Nearly all requests that come alone need not wait: no promise is made for them.
    return Array.isArray(answer) ? timed(answer) : this.#chores.during(answer).then(timed);
  }

  /** Resolves to the answers to changes that the router has grouped, and the ms that they took: see gathering.js. */
  askAll(calls) {
    return gathering.answers(calls, this, { chores: this.#chores, turns: this.#turns });
  }

  /** Opens a socket, if there is room for one. */
  fetch(request) {
    return this.#sockets.open(request) ?? new Response(null, { status: 503 });
  }

  #answer(attempt, bytes) {
    const opening = this.#chores.ready();
    if (opening) return this.#turns.after(opening, () => this.#answer(attempt, bytes), bytes);
    if (this.isSuspect(...attempt())) return this.#runAlone(attempt, bytes);
    return this.#turns.together((known) => this.run(attempt, known?.[0]), [attempt], bytes);
  }

  webSocketMessage(socket, message) {
    return this.#sockets.message(socket, message);
  }

  webSocketClose(socket) {
    this.#sockets.left(socket);
  }

  /** The peer has violated the WebSocket protocol. The platform drops the connection, unless it is closed here. */
  webSocketError(socket) {
    this.#sockets.closed(socket);
  }

  /** Verifies the first frame of a socket, which says who the client is. */
  async #admitted(text, key) {
    const admit = () =>
      guarded(
        () => routerOf(this.env).admit(text, key, Date.now()),
        () => UNAVAILABLE,
      );
    return (await decided(admit, this.env)) ?? UNAVAILABLE;
  }

  async #batch(lines, body, asker) {
    const batch = () => this.#batches.batch(valueIn(lines, "semel-key"), asker, lines, body);
    const opening = this.#chores.ready();
    return opening ? this.#turns.after(opening, batch, lines.length + (body?.byteLength ?? 0)) : batch();
  }

  /** Answers a frame of a socket. The number of waiting frames is limited by sockets.js. */
  async #frame(frame) {
    await this.#chores.ready();
    return this.#batches.frame(...frame);
  }

  alarm() {
    this.#sockets.end(Date.now());
    return this.#chores.alarm();
  }

  /** For the registry: forgets requests that were first sent before an instant, in Unix s. Returns whether all of them are swept by now. */
  forget(beforeS) {
    return this.#chores.forget(beforeS);
  }

  /** The key's `[records, tombstones]`; undefined if they can't be known now. Writes nothing. */
  count() {
    return guarded(() => this.#engine().count(Date.now()));
  }

  /**
   * Whether this request is a suspect: it may have crashed the object that ran before. The engine is asked only while the object is young; for requests of
   * sessions always.
   */
  isSuspect(method, pathname, _search, lines) {
    const now = Date.now();
    if (now >= this.#startedMs + YOUNG_MS && !lines.includes("semel-session:")) return false;
    return guarded(() => this.#engine().is_suspect(method, pathname, lines, this.#startedMs, now));
  }

  /**
   * Runs one attempt. Nothing is awaited between the call and the answer, so decision, effect and record are one turn and one commit. Whatever a subclass
   * writes right afterwards, without awaiting either, is in the same commit. `known`: the answer, if the attempt was run as one of a group.
   */
  run(attempt, known) {
    return known ?? this.answered(attempt());
  }

  /** The engine's answer to the arguments of an attempt. */
  answered(args) {
    const crashed = () => this.#engine().crashed(...args);
    return this.#told(
      () => this.#engine().handle(...args),
      () => guarded(crashed, () => this.#crashed(args)),
    );
  }

  /** The call that must be sent elsewhere before the last attempt can be answered, if there is one. */
  taken() {
    return guarded(() => this.#engine().take_call());
  }

  /** The engine's answer after that call has ended. Undefined if that has crashed the module. */
  settled(call, ended, args) {
    return this.#told(() => this.#engine().settle(call, ended, ...args));
  }

  /** Says that a request is still under way: what came of it could not be recorded, and will be given again. */
  goesOn(id) {
    guarded(() => this.#engine().know_under_way(id));
  }

  /** The engine's answer while another request of the key is under way. */
  waiting(args) {
    return this.#told(
      () => this.#engine().wait(...args),
      () => this.#crashed(args),
    );
  }

  #told(ask, otherwise) {
    // `ask` and `otherwise` have the same arguments, and so the same instant: a crash is counted as of the start.
    const answer = guarded(ask, otherwise);
    this.#wake();
    return answer;
  }

  #wake() {
    this.#chores.wake();
    this.#effects?.begin();
  }

  #crashed([method, , , lines, , arrivedMs]) {
    return routerOf(this.env).unavailable("the object crashed", undefined, method, lines, arrivedMs, Date.now());
  }

  /**
   * Runs a suspect. Its start, and everything before it, is durable before it runs. If it crashes the object again, no other request loses its commit.
   */
  #runAlone(attempt, bytes) {
    return this.#turns.alone(async () => {
      const start = (isCounted) =>
        guarded(
          () => this.#engine().start(isCounted, ...attempt()),
          () => this.#crashed(attempt()),
        );
      const started = start(false);
      // This may be the key's first write, and its last: an alarm must be set in either case.
      this.#wake();
      // The start could not be counted, so it must not run: nobody would know if it crashed the object.
      if (started[0] === 503) return started;
      await this.ctx.storage.sync();
      // Another object of the isolate may have crashed the module meanwhile: the new engine does not know of this start.
      start(true);
      const answer = await this.run(attempt);
      await this.ctx.storage.sync();
      return answer;
    }, bytes);
  }
}
