// The object's side of the edge: a key's requests between the runtime and the module. It decides nothing.
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

/** After so long, an object has no suspects but places of sessions: nothing else of a crash before it is still being resent. */
const YOUNG_MS = glue.young_ms();

let Effects;

/** Has what handlers emit sent. A Worker whose handler emits nothing does without it. */
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
    // It would be stored, and wait for ever without a word. A text, as the settings that can't be read.
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

  /** Where the engine keeps all it knows. A subclass may look over its shoulder. */
  storage() {
    return this.ctx.storage;
  }

  /** The id of what is under way to where it is executed: an engine that is made meanwhile does not know. */
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
        // Nothing but this line is its own: it does not leave by itself.
        if (answer[3] !== undefined) console.log(answer[3]);
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
   * The answer to a request, which the router has read, or what resolves to it. `lines`: its headers, with who asks and for which key; `body`: undefined
   * where it was too large; `asker`: who asks in a batch, for the object to judge what they may. With the answer goes how long it took, in ms.
   */
  ask(method, pathname, search, lines, body, asker) {
    const arrivedMs = Date.now();
    const attempt = () => [method, pathname, search, lines, body, arrivedMs, Date.now()];
    const timed = ([status, head, said, line]) => [status, head, said, line, Date.now() - arrivedMs];
    const answer = asker === undefined ? this.#answer(attempt, lines.length + (body?.byteLength ?? 0)) : this.#batch(lines, body, asker);
    // Nearly all by themselves have nothing to wait for, and no promise is made of them.
    return Array.isArray(answer) ? timed(answer) : this.#chores.during(answer).then(timed);
  }

  /** Resolves to the answers to changes that have come to their router together, and how long they took: see gathering.js. */
  askAll(calls) {
    return gathering.answers(calls, this, { chores: this.#chores, turns: this.#turns });
  }

  /** Opens a socket, where there is room for one. */
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

  /** Its peer has broken the rules of WebSocket: the platform ends the connection, unless that is closed here. */
  webSocketError(socket) {
    this.#sockets.closed(socket);
  }

  /** Who the first frame of a socket says it is. */
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

  /** How many of them wait is for their sockets to bound. */
  async #frame(frame) {
    await this.#chores.ready();
    return this.#batches.frame(...frame);
  }

  alarm() {
    this.#sockets.end(Date.now());
    return this.#chores.alarm();
  }

  /** Forgets what was first sent before an instant, in Unix s; whether all of that is swept. For the registry. */
  forget(beforeS) {
    return this.#chores.forget(beforeS);
  }

  /** `[records, tombstones]` of the key; undefined where that can't be known now. Writes nothing. */
  count() {
    return guarded(() => this.#engine().count(Date.now()));
  }

  /** Whether it may have ended the object that ran before. Only a young object asks, but for places of sessions. */
  isSuspect(method, pathname, _search, lines) {
    const now = Date.now();
    if (now >= this.#startedMs + YOUNG_MS && !lines.includes("semel-session:")) return false;
    return guarded(() => this.#engine().is_suspect(method, pathname, lines, this.#startedMs, now));
  }

  /**
   * From the call to the answer nothing is awaited: the decision, the effect and the record are one turn. What a subclass
   * writes right after it, having awaited nothing either, is in the same commit. `known`: what it is answered, where it was one of a group.
   */
  run(attempt, known) {
    return known ?? this.answered(attempt());
  }

  /** What the engine answers to the arguments of an attempt. */
  answered(args) {
    const crashed = () => this.#engine().crashed(...args);
    return this.#told(
      () => this.#engine().handle(...args),
      () => guarded(crashed, () => this.#crashed(args)),
    );
  }

  /** What is to be sent before the attempt that was answered last has an answer. */
  taken() {
    return guarded(() => this.#engine().take_call());
  }

  /** What the engine answers once that has ended. */
  settled(call, ended, args) {
    return this.#told(
      () => this.#engine().settle(call, ended, ...args),
      () => this.#crashed(args),
    );
  }

  /** What the engine answers while another request of the key is under way. */
  waiting(args) {
    return this.#told(
      () => this.#engine().wait(...args),
      () => this.#crashed(args),
    );
  }

  #told(ask, otherwise) {
    // One instant for both: a crash is counted as of the start.
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
   * Runs what may have ended the object before. Its start is durable before it runs, and so is all that ran before it; if
   * the object ends once more, nobody else was in that commit.
   */
  #runAlone(attempt, bytes) {
    return this.#turns.alone(async () => {
      const start = (isCounted) => guarded(() => this.#engine().start(isCounted, ...attempt()));
      const started = start(false);
      // What it wrote may be the first of the key's, and the last.
      this.#wake();
      // Nothing was counted, so it does not run: of what it ends nobody would know.
      if (started?.[0] === 503) return started;
      await this.ctx.storage.sync();
      // Another object of the isolate may have crashed the module meanwhile, and with it what was known of this start.
      start(true);
      const answer = await this.run(attempt);
      await this.ctx.storage.sync();
      return answer;
    }, bytes);
  }
}
