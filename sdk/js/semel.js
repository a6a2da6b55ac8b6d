// `semel.fetch`: from what `fetch` takes to what the module takes, and back; and what the module asks of its host.
//
// Invariants:
// - Nothing is decided here: what is stored, sent and forgotten is the module's.
// - What is stored is what is sent, byte for byte; so nothing with credentials in it is stored.
// - The methods that the module calls don't throw.
// - After `close`, no promise is left that nobody will settle.

import { optional } from "./bytes.js";
import { SemelError } from "./errors.js";
import { hashOf, ownId } from "./ids.js";
import { indexedDbStore } from "./indexeddb.js";
import { ANSWERED, CLOSED, DELIVERED, GIVE_UP, LEAVE, LOST, Machine, OFFLINE, ONLINE, REQUEST, RESUME, RESUME_ALL, TICKET_OF, WATCH } from "./machine.js";
import { checked, encodedKey, setupOf } from "./options.js";
import { listen } from "./page.js";
import { bodyOf, CHANGES, normalised, responseOf, storable } from "./requests.js";
import { inTime, memoryStore } from "./stores.js";
import { lightBeacon } from "./tabs.js";
import { given, send } from "./transport.js";
import { View } from "./view.js";

/** So often a tab looks for what tabs that were opened later have left. */
const LOOK_MS = 5_000;

export class Outbox extends View {
  #setup;
  #machine;
  #beacon;
  #looking;
  #closing = new AbortController();
  /** The callers that wait, by request id. */
  #callers = new Map();
  /** For each key, as far as it is known, when the last call has its place in the order. */
  #turns = new Map();
  /** The attempts under way, by number: what aborts each, and what left. */
  #attempts = new Map();
  /** Why the last attempt came to nothing, if it did: what was thrown, or the code with which it was refused. */
  #lost;
  /** What ends the other waits, once it is closed. */
  #waiting = new Set();
  /** Answers that nobody has taken yet. */
  #recovered = [];
  /** Loads what makes attempts go together, once. */
  #gathered;
  #onrecovered;
  onpaused;

  /** Opens the outbox, and goes on with what was left unfinished. `load` gives the module, `sessions` what opens a session. */
  static async open(options, load, sessions) {
    const setup = { ...setupOf(options), later: sessions };
    const semel = new this(setup, await load());
    await semel.#start(options);
    return semel;
  }

  constructor(setup, module) {
    super();
    this.#setup = setup;
    // With sessions there is more to count: see `together.js`.
    this.#machine = new Machine(module, (setup.host = this.#host()));
  }

  async #start({ onrecovered = null, onpaused = null, onstorelost }) {
    const { origin, identity, store, durability, numbers } = this.#setup;
    const owner = this.#machine.id();
    const database = `semel ${origin} ${identity}`;
    const own = store ?? (durability === "memory" ? memoryStore() : undefined);
    this.onpaused = onpaused;
    this.onrecovered = onrecovered;
    this.#machine.open(own ?? indexedDbStore(database, durability, onstorelost), database, owner, identity, ...numbers);
    const look = ({ type }) => {
      // A page that is hidden may be frozen in the next moment: with a transaction open, it would keep the store from all others.
      if (type === "visibilitychange" && document.hidden) return;
      // Not every browser tells a page that was away that it is online again.
      const online = navigator.onLine;
      const isNew = online !== this.getSnapshot().online;
      this.#machine.tell(online ? ONLINE : OFFLINE);
      View.show(this, { online });
      if (isNew) this.#tell(online ? "online" : "offline");
    };
    listen(this.#closing.signal, look, this.#attempts, this.#setup.fetch);
    try {
      // A page that is prerendered has its lock when it is shown, however late that is.
      await inTime(this.#light(own ? own.presence?.(owner) : await lightBeacon(database, owner)));
      this.#closing.signal.throwIfAborted();
    } catch (error) {
      this.#end();
      throw error;
    }
    // Who is opened later may leave something too. In Node, no process goes on for that alone.
    if (this.#beacon) (this.#looking = setInterval(() => this.#takeOver().catch(() => {}), LOOK_MS)).unref?.();
  }

  /** It lives, and goes on with what was left; unless it was closed before that could be told. */
  async #light(lighting) {
    this.#beacon = await lighting;
    if (this.#closing.signal.aborted) this.#beacon?.leave();
    await this.#takeOver();
  }

  /** Goes on with what tabs left that are gone, and waits for those that live. */
  async #takeOver() {
    if (this.#closing.signal.aborted) return;
    let alive;
    const owners = await this.#machine.takeOver(async () => (alive = await this.#beacon?.alive()));
    // Of those that are gone, what is left was taken now, or will be at the next look.
    for (const owner of owners) if (alive?.includes(owner)) this.#beacon.watch?.(owner, () => this.#takeOver().catch(() => {}));
  }

  get onrecovered() {
    return this.#onrecovered;
  }

  set onrecovered(handler) {
    this.#onrecovered = typeof handler === "function" ? handler : null;
    for (const recovered of this.#recovered.splice(0)) this.#recover(...recovered);
  }

  /** Bound, as `fetch` itself is: whoever takes a `fetch` calls it without a receiver. */
  fetch = async (input, init) => {
    const { key: named, id, salt = this.#setup.salt, signal = input.signal, ordered = this.#setup.ordered, ...rest } = init ?? {};
    const key = encodedKey(named);
    checked("ordered", ordered);
    const own = id === undefined ? undefined : ownId(id);
    const { made, request, stream, pathname, search } = normalised(this.#setup.origin, input, rest);
    if (!CHANGES.has(request.method)) return this.#passThrough(stream ? made({ duplex: "half" }) : request, key, signal);
    const lines = storable(request.headers);
    const { answer } = await this.#inTurn(ordered ? (key ?? pathname) : undefined, signal, async () => {
      const body = await this.#unlessClosed(() => bodyOf(request, signal, stream), signal);
      const isDrawn = own === undefined && this.#setup.ids !== "hash";
      const requestId =
        own ?? this.#machine.id(isDrawn ? undefined : await hashOf([this.#setup.identity, request.method, pathname + search, key ?? "", salted(salt, lines), body]));
      return () => {
        signal?.throwIfAborted();
        this.#closing.signal.throwIfAborted();
        // What may overlap at a key goes together, once there is much of it: see `gathered.js`. Until then, and where that does not load, each goes by itself.
        if (!ordered && key && this.#callers.size > 3) this.#gathered ??= this.session(this).catch(() => {});
        return this.#change(requestId, [request.method, pathname + search, optional(key), lines, body, ordered], signal, isDrawn);
      };
    });
    return answer;
  };

  /**
   * The answer to a request that was made before: in this tab, in another, or before a reload. Aborting `signal` ends the waiting,
   * and nothing else.
   */
  async outcome(requestId, { signal } = {}) {
    ownId(requestId);
    if (this.#callers.size >= this.#setup.maxPending && !this.#callers.has(requestId)) throw new RangeError("semel: too many wait");
    this.#closing.signal.throwIfAborted();
    signal?.throwIfAborted();
    return this.#wait(requestId, signal, () => this.#machine.tell(WATCH, requestId), (caller) => {
      caller.reject(signal.reason);
      if (this.#leave(requestId, caller)) this.#machine.tell(LEAVE, this.#ticketOf(requestId));
    });
  }

  /** Makes what `prepare` resolves to, once all calls before it have done so that may go to the same key. */
  #inTurn(lane, signal, prepare) {
    const before = this.#turns.get(lane);
    const own = (async () => {
      const make = await prepare();
      // Whoever is aborted waits for nobody.
      await this.#unlessClosed(() => before, signal);
      return { answer: make() };
    })();
    if (lane === undefined) return own;
    const turn = Promise.allSettled([before, own]).then(() => this.#turns.get(lane) === turn && this.#turns.delete(lane));
    this.#turns.set(lane, turn);
    return own;
  }

  /** A session at a key: see `session.js`, which is loaded at the first. At the outbox itself: see `gathered.js`. */
  async session(...named) {
    return (await this.#setup.later()).default(this, this.#setup, this.#closing.signal, ...named);
  }

  async pending() {
    const all = await inTime(this.#unlessClosed(() => this.#machine.overview()));
    return all.map((each) => ({ ...this.#described([, ...each]), attempts: +each[4], state: each[3] }));
  }

  resume() {
    this.#machine.tell(RESUME_ALL);
  }

  async close() {
    this.#end();
  }

  /** What a promise gives, unless the outbox is closed before, or `signal` aborts: what may never settle must not be waited for then. */
  async #unlessClosed(begin, signal) {
    this.#closing.signal.throwIfAborted();
    signal?.throwIfAborted();
    let stop;
    const stopped = new Promise((_, reject) => (stop = reject));
    const abort = () => stop(signal.reason);
    this.#waiting.add(stop);
    signal?.addEventListener("abort", abort);
    try {
      return await Promise.race([begin(), stopped]);
    } finally {
      this.#waiting.delete(stop);
      signal?.removeEventListener("abort", abort);
    }
  }

  /** `broken`: what the module ended with, if it did so by itself. */
  #end(broken) {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort(new TypeError("semel: it is closed", broken && { cause: broken }));
    this.#lost = broken ?? this.#lost;
    for (const stop of this.#waiting) stop(this.#closing.signal.reason);
    clearInterval(this.#looking);
    for (const underWay of this.#attempts.values()) underWay.abort();
    this.#machine.close();
    this.#setup.host.count(0, 0);
    for (const [requestId] of this.#callers) this.#setup.host.gaveUp(requestId, CLOSED);
    this.#beacon?.leave();
    this.#tell("closed", { error: broken });
  }

  /** A read, or a method that the protocol does not execute: sent as it is, and once. */
  async #passThrough(request, key, signal) {
    const headers = new Headers(await this.#unlessClosed(() => given(this.#setup.headers), signal));
    for (const [name, value] of request.headers) headers.set(name, value);
    if (this.#setup.identity) headers.set("semel-principal", JSON.stringify(this.#setup.identity));
    if (key !== undefined) headers.set("semel-key", `"${key}"`);
    // Nor is it waited for once it is closed; but a runtime as old as Node 20.0 has no signal that is made of two.
    return this.#unlessClosed(() => this.#setup.fetch(new Request(request, { headers }), { signal }));
  }

  #change(requestId, request, signal, isDrawn) {
    const begin = (caller) => {
      if (this.#machine.tell(REQUEST, requestId, request)?.integer() !== 0) return;
      this.#leave(requestId, caller);
      caller.forgets();
      caller.reject(new SemelError(requestId, ["fingerprint-mismatch", "unknown", "after-fix", "the id is of another request"]));
    };
    return this.#wait(requestId, signal, begin, () => this.#machine.tell(GIVE_UP, this.#ticketOf(requestId)), isDrawn);
  }

  /** Waits for an answer with all who wait for it. `isDrawn`: the id was, for this very call, so that nobody else can have it. */
  #wait(requestId, signal, begin, aborted, isDrawn) {
    return new Promise((resolve, reject) => {
      const abort = () => aborted(caller);
      const caller = { isDrawn, resolve, reject, forgets: () => signal?.removeEventListener("abort", abort) };
      this.#callers.set(requestId, [...(this.#callers.get(requestId) ?? []), caller]);
      // First: what begins may be over by the end of that, and a store that is asked synchronously may abort it.
      signal?.addEventListener("abort", abort);
      begin(caller);
    });
  }

  /** Of a request in hand; 0 where there is none. */
  #ticketOf(requestId) {
    return this.#machine.tell(TICKET_OF, requestId)?.integer();
  }

  /** One waits no more; whether it was the last. */
  #leave(requestId, caller) {
    const others = this.#callers.get(requestId)?.filter((other) => other !== caller);
    if (others?.length) this.#callers.set(requestId, others);
    else this.#callers.delete(requestId);
    return !others?.length;
  }

  /** What the module calls. */
  #host() {
    return {
      transmit: (attempt, ...request) => this.#transmit(attempt, request),
      count: (pending, paused) => View.show(this, { pending, paused }),
      end: (broken) => this.#end(broken),
      abort: (attempt) => {
        this.#attempts.get(attempt)?.abort();
        this.#attempts.delete(attempt);
      },
      deliver: (described, isAwaited, outcome, failure, cause) => {
        const [ticket] = described;
        const request = this.#described(described);
        const callers = isAwaited ? this.#callersOf(request.requestId) : [];
        // It never ran here; but another tab may have the same id, or have had it. Who has left may have chosen it. By the module's own words, in `failure.rs` and `sending.rs`.
        // Nor can anybody tell where WebKit's process that keeps the rows has ended: see `indexeddb.js`. Another may have the row then.
        if (/server lost/.test(failure && cause) || (/ not sent$/.test(failure?.[3]) && !callers[0]?.isDrawn)) failure.splice(1, 2, "unknown", "same-id");
        const error = failure && new SemelError(request.requestId, failure, cause);
        this.#recovered = this.#recovered.filter(([other]) => other !== ticket);
        for (const caller of callers) {
          if (outcome) caller.resolve(responseOf(request.url, outcome));
          else caller.reject(error);
        }
        // Before who hears of it may close all this: nobody is told once more.
        if (callers.length) this.#machine.tell(DELIVERED, ticket);
        this.#tell(callers.length ? "settled" : "recovered", { ...request, status: outcome?.[0], error });
        // Whoever waited may have left.
        if (!callers.length) this.#recover(ticket, request, outcome, error);
      },
      gaveUp: (requestId, failure) => this.#callersOf(requestId).forEach((caller) => caller.reject(new SemelError(requestId, failure, this.#lost))),
      pause: (described, failure) => this.#pause(described[0], this.#described(described), failure),
      lose: (described, error) => this.#lose(this.#described(described), error),
    };
  }

  /** As the module writes it: by ticket, id, method and target. */
  #described([, requestId, method, target]) {
    return { requestId, method, url: this.#setup.origin + target };
  }

  /** Takes out who waits for an answer. */
  #callersOf(requestId) {
    const callers = this.#callers.get(requestId) ?? [];
    this.#callers.delete(requestId);
    for (const { forgets } of callers) forgets();
    return callers;
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  async #transmit(attempt, request) {
    const underWay = new AbortController();
    this.#attempts.set(attempt, underWay);
    const [method, target, lines] = request;
    const id = /^idempotency-key:"(.*)"$/m.exec(lines)?.[1].replace(/\\(.)/g, "$1");
    const described = this.#described([attempt, id, method, target]);
    const isOwn = target.startsWith("/semel/");
    if (!isOwn) this.#tell("attempt", described);
    let answer;
    try {
      answer = await send(this.#setup, request, underWay.signal, (left) => (underWay.left = left));
    } catch (error) {
      // No answer, for whatever reason: the network, the time that it took, or the headers function.
      this.#lose(described, error);
    }
    // One that was given up is reported no more.
    if (!this.#attempts.delete(attempt)) return;
    if (!answer) return this.#machine.tell(LOST, attempt);
    // What is refused each second would else be known to the server alone.
    const code = isOwn ? undefined : /^semel-status:(?!executed|replayed)(.*)/m.exec(answer[1])?.[1];
    if (code) this.#tell("refused", { ...described, status: answer[0], code });
    this.#lost = code;
    this.#machine.tell(ANSWERED, attempt, ...answer);
  }

  /** An attempt came to nothing. */
  #lose(described, error) {
    this.#tell("lost", { ...described, error });
    this.#lost = error;
  }

  #pause(ticket, request, failure) {
    const error = new SemelError(request.requestId, failure);
    this.#tell("stalled", { ...request, error });
    if (!this.onpaused) console.warn(`semel: ${request.method} ${request.url} waits for onpaused: ${error.message}`);
    const paused = {
      ...request,
      error,
      resume: () => this.#machine.tell(RESUME, ticket),
      giveUp: () => this.#machine.tell(GIVE_UP, ticket),
    };
    // Not from within the module's call.
    Promise.resolve().then(() => this.onpaused?.(paused)).catch(console.error);
  }

  /** Gives an answer that nobody waits for to who takes it. What is not taken without an error is kept. */
  async #recover(ticket, request, outcome, error) {
    const keep = () => this.#recovered.push([ticket, request, outcome, error]);
    if (!this.#onrecovered || this.#closing.signal.aborted) return keep();
    try {
      await this.#onrecovered({ ...request, response: outcome && responseOf(request.url, outcome), error });
    } catch (thrown) {
      console.error("semel: onrecovered failed:", thrown);
      return keep();
    }
    this.#machine.tell(DELIVERED, ticket);
  }
}

/** The salt of a hash. What can't be told apart has none: a form gets a boundary at random. */
function salted(salt, lines) {
  const text = typeof salt === "function" ? salt() : salt;
  if (/^content-type:multipart/m.test(lines) || !/string|number/.test(typeof text)) throw new TypeError("semel: a form has no hash; salt is a string or a number");
  return String(text);
}
