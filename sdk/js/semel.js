// The outbox, `semel.fetch`: converts what `fetch` takes to what the module takes, and back; and does what the module asks for.
//
// Invariants:
// - All decisions are the module's: what is stored, sent and forgotten.
// - A request is sent exactly as it is stored, byte for byte. So nothing that contains credentials is stored.
// - The methods that the module calls don't throw.
// - After `close`, every promise settles.

import { optional } from "./bytes.js";
import { SemelError } from "./errors.js";
import { checkId, hashOf } from "./ids.js";
import { indexedDbStore } from "./indexeddb.js";
import { ANSWERED, CLOSED, DELIVERED, GIVE_UP, LEAVE, LOST, Machine, OFFLINE, ONLINE, REQUEST, RESUME, RESUME_ALL, TICKET_OF, WATCH } from "./machine.js";
import { checked, encodedKey, setupOf } from "./options.js";
import { listen } from "./page.js";
import { bodyOf, CHANGES, holders, membersIn, normalised, responseOf, storable } from "./requests.js";
import { inTime, isInDoubt, memoryStore } from "./stores.js";
import { lightBeacon } from "./tabs.js";
import { given, send } from "./transport.js";
import { View } from "./view.js";

/** How often a tab looks for requests that other tabs have left. */
const LOOK_MS = 5_000;

export class Outbox extends View {
  #setup;
  #machine;
  #beacon;
  #looking;
  #closing = new AbortController();
  /** The waiting callers, by request id. */
  #callers = new Map();
  /** For each key (or path, if the key is not known), a promise that settles when the last call has been handed to the module. */
  #turns = new Map();
  /** The attempts under way, by number: an AbortController each, whose `left` is what was given to `fetch`. */
  #attempts = new Map();
  /** Why the last attempt failed, if it did: the error that was thrown, or the code of the refusal. */
  #lost;
  /** Functions that end other waits when the outbox is closed. */
  #waiting = new Set();
  /** Answers that no `onrecovered` has taken yet. */
  #recovered = [];
  /** The promise of loading gathered.js. */
  #gathered;
  #onrecovered;
  onpaused;

  /** Opens the outbox, and goes on with unfinished requests. `load()` gives the module; `sessions()` loads the code of sessions. */
  static async open(options = {}, load, sessions) {
    const setup = { ...setupOf(options), later: sessions };
    const semel = new this(setup, await load());
    await semel.#start(options);
    return semel;
  }

  constructor(setup, module) {
    super();
    this.#setup = setup;
    // `setup.host`, because sessions count too: see `together.js`.
    this.#machine = new Machine(module, (setup.host = this.#host()));
  }

  async #start({ onrecovered, onpaused = null, onstorelost }) {
    const { origin, identity, store, durability, numbers } = this.#setup;
    const owner = this.#machine.id();
    const database = `semel ${origin} ${identity}`;
    const own = store ?? (durability === "memory" ? memoryStore() : undefined);
    this.onpaused = onpaused;
    this.onrecovered = onrecovered;
    this.#machine.open(own ?? indexedDbStore(database, durability, onstorelost), database, owner, identity, ...numbers);
    const look = ({ type }) => {
      // A page that was just hidden may be frozen at any moment. With a transaction open, it would block the store for all others.
      if (type === "visibilitychange" && document.hidden) return;
      // Not every browser dispatches `online` for a page that was frozen meanwhile.
      const online = navigator.onLine;
      const isNew = online !== this.getSnapshot().online;
      this.#machine.tell(online ? ONLINE : OFFLINE);
      View.show(this, { online });
      if (isNew) this.#tell(online ? "online" : "offline");
    };
    listen(this.#closing.signal, look, this.#attempts, this.#setup.fetch);
    try {
      // A prerendered page gets its lock only when it is shown, so that wait has no limit.
      await inTime(this.#light(own ? own.presence?.(owner) : await lightBeacon(database, owner)));
      this.#closing.signal.throwIfAborted();
    } catch (error) {
      this.#end();
      throw error;
    }
    // Tabs that open later may leave requests too. `unref`: this timer alone must not keep a process of Node alive.
    if (this.#beacon) (this.#looking = setInterval(() => this.#takeOver().catch(() => {}), LOOK_MS)).unref?.();
  }

  /** Announces that this tab is alive, and takes over what was left; unless the outbox was closed meanwhile. */
  async #light(lighting) {
    this.#beacon = await lighting;
    if (this.#closing.signal.aborted) this.#beacon?.leave();
    await this.#takeOver();
  }

  /** Takes over the requests of tabs that are gone, and watches the live ones that have any. */
  async #takeOver() {
    if (this.#closing.signal.aborted) return;
    let alive;
    const owners = await this.#machine.takeOver(async () => (alive = await this.#beacon?.alive()));
    // Owners that are not alive: their requests were taken over now, or will be at the next look.
    for (const owner of owners) if (alive?.includes(owner)) this.#beacon.watch?.(owner, () => this.#takeOver().catch(() => {}));
  }

  get onrecovered() {
    return this.#onrecovered;
  }

  set onrecovered(handler) {
    this.#onrecovered = typeof handler === "function" ? handler : null;
    for (const recovered of this.#recovered.splice(0)) this.#recover(...recovered);
  }

  /** Bound, like `fetch` itself: libraries that take a `fetch` call it without a receiver. */
  fetch = async (input, init) => {
    const { key: named, id, salt = this.#setup.salt, signal = input.signal, ordered = this.#setup.ordered, ...rest } = membersIn(init);
    if (signal) holders.set(signal, init instanceof Request ? init : input);
    const key = encodedKey(named);
    checked("ordered", ordered);
    if (id !== undefined) checkId(id);
    const { made, request, stream, pathname, search } = normalised(this.#setup.origin, input, rest);
    if (!CHANGES.has(request.method)) return this.#passThrough(stream ? made({ duplex: "half" }) : request, key, signal);
    const lines = storable(request.headers);
    const { answer } = await this.#inTurn(ordered ? (key ?? pathname) : undefined, signal, async () => {
      const body = await this.#unlessClosed(() => bodyOf(request, signal, stream), signal);
      const isDrawn = id === undefined && this.#setup.ids !== "hash";
      const requestId =
        id ?? this.#machine.id(isDrawn ? undefined : await hashOf([this.#setup.identity, request.method, pathname + search, key ?? "", salted(salt, lines), body]));
      return () => {
        signal?.throwIfAborted();
        this.#closing.signal.throwIfAborted();
        // Many requests that may overlap at a key are sent as batches: see `gathered.js`. Until that is loaded, or if it fails to load, each goes alone.
        if (!ordered && key && this.#callers.size > 3) this.#gathered ??= this.session(this).catch(() => {});
        return this.#change(requestId, [request.method, pathname + search, optional(key), lines, body, ordered], signal, isDrawn);
      };
    });
    return answer;
  };

  /** Asks the key to cancel a request in hand. Does nothing if it is not in hand: its ticket is 0 then. */
  giveUp(requestId) {
    checkId(requestId);
    this.#machine.tell(GIVE_UP, this.#machine.tell(TICKET_OF, requestId)?.integer());
  }

  /** Waits for the answer to an earlier request: of this tab, of another, or from before a reload. Aborting `signal` only ends the waiting. */
  async outcome(requestId, { signal } = {}) {
    checkId(requestId);
    if (this.#callers.size >= this.#setup.maxPending && !this.#callers.has(requestId)) throw new RangeError("semel: too many wait");
    this.#closing.signal.throwIfAborted();
    signal?.throwIfAborted();
    return this.#wait(requestId, signal, () => this.#machine.tell(WATCH, requestId), (caller) => {
      caller.reject(signal.reason);
      if (this.#leave(requestId, caller)) this.#machine.tell(LEAVE, this.#machine.tell(TICKET_OF, requestId)?.integer());
    });
  }

  /** Calls the function that `prepare` resolves to, after all earlier calls of the same lane (key or path) have done so. */
  #inTurn(lane, signal, prepare) {
    const before = this.#turns.get(lane);
    const own = (async () => {
      const make = await prepare();
      // An aborted call does not wait for earlier ones.
      await this.#unlessClosed(() => before, signal);
      return { answer: make() };
    })();
    if (lane === undefined) return own;
    const turn = Promise.allSettled([before, own]).then(() => this.#turns.get(lane) === turn && this.#turns.delete(lane));
    this.#turns.set(lane, turn);
    return own;
  }

  /** Opens a session at a key: see `session.js`, which is loaded at the first call. Called with the outbox itself, it loads `gathered.js`. */
  async session(...named) {
    return (await this.#setup.later()).default(this, this.#setup, this.#closing.signal, ...named);
  }

  async pending() {
    const all = await inTime(this.#unlessClosed(() => this.#machine.overview()));
    return all.map(([id, method, target, state, attempts]) => ({ ...this.#described([, id, method, target]), attempts: +attempts, state }));
  }

  resume() {
    this.#machine.tell(RESUME_ALL);
  }

  async close() {
    this.#end();
  }

  /** Resolves as `begin()` does; rejects if the outbox is closed or `signal` aborts first, because that promise may never settle. */
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

  /** Closes the outbox. `broken`: the error, if the module has trapped. */
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

  /** Sends a read, or a method that the protocol does not execute: as it is, and once. */
  async #passThrough(request, key, signal) {
    const headers = new Headers(await this.#unlessClosed(() => given(this.#setup.headers), signal));
    for (const [name, value] of request.headers) headers.set(name, value);
    if (this.#setup.identity) headers.set("semel-principal", JSON.stringify(this.#setup.identity));
    if (key !== undefined) headers.set("semel-key", `"${key}"`);
    // `#unlessClosed` ends the waiting on `close`. Not by `AbortSignal.any`, which Node 20.0 does not have.
    return this.#unlessClosed(() => this.#setup.fetch(new Request(request, { headers }), { signal }));
  }

  #change(requestId, request, signal, isDrawn) {
    const begin = (caller) => {
      if (this.#machine.tell(REQUEST, requestId, request)?.integer() !== 0) return;
      this.#leave(requestId, caller);
      caller.forgets();
      caller.reject(new SemelError(requestId, ["fingerprint-mismatch", "unknown", "after-fix", "the id is of another request"]));
    };
    return this.#wait(requestId, signal, begin, () => this.giveUp(requestId), isDrawn);
  }

  /** Waits for the answer to `requestId`, together with others that do. `isDrawn`: the id was made at random for this call, so no other call can have it. */
  #wait(requestId, signal, begin, aborted, isDrawn) {
    return new Promise((resolve, reject) => {
      const abort = () => aborted(caller);
      const caller = { isDrawn, resolve, reject, forgets: () => signal?.removeEventListener("abort", abort) };
      this.#callers.set(requestId, [...(this.#callers.get(requestId) ?? []), caller]);
      // Before `begin`, which may settle the call at once; and a synchronous store of the application may abort it meanwhile.
      signal?.addEventListener("abort", abort);
      begin(caller);
    });
  }

  /** Removes a caller. Returns whether it was the last. */
  #leave(requestId, caller) {
    const others = this.#callers.get(requestId).filter((other) => other !== caller);
    if (others.length) this.#callers.set(requestId, others);
    else this.#callers.delete(requestId);
    return !others.length;
  }

  /** What the module asks for. */
  #host() {
    return {
      transmit: (attempt, ...request) => this.#transmit(attempt, request),
      count: (pending, paused) => View.show(this, { pending, paused }),
      end: (broken) => this.#end(broken),
      abort: (attempt) => {
        this.#attempts.get(attempt).abort();
        this.#attempts.delete(attempt);
      },
      deliver: (described, isAwaited, outcome, failure, cause) => {
        const [ticket] = described;
        const request = this.#described(described);
        const callers = isAwaited ? this.#callersOf(request.requestId) : [];
        // The module says that the request was not sent, which is true for this tab. But unless its id is random, another tab may have sent the same id. The
        // pattern is of the texts in `failure.rs` and `sending.rs`. And the row may be stored all the same, and taken over.
        if (isInDoubt(failure && cause) || (/ not sent$/.test(failure?.[3]) && !callers[0]?.isDrawn)) failure.splice(1, 2, "unknown", "same-id");
        const error = failure && new SemelError(request.requestId, failure, cause);
        this.#recovered = this.#recovered.filter(([other]) => other !== ticket);
        for (const caller of callers) {
          if (outcome) caller.resolve(responseOf(request.url, outcome));
          else caller.reject(error);
        }
        // Told before the events below: a listener may close the outbox, and then the answer would be given again at the next `open`.
        if (callers.length) this.#machine.tell(DELIVERED, ticket);
        this.#tell(callers.length ? "settled" : "recovered", { ...request, status: outcome?.[0], error });
        // The callers may have left.
        if (!callers.length) this.#recover(ticket, request, outcome, error);
      },
      // The row was written a second time, and may have been another tab's in between: see `#change` in `machine.js`. So the id counts as known to others.
      doubt: (requestId) => delete this.#callers.get(requestId)?.[0].isDrawn,
      gaveUp: (requestId, failure) => this.#callersOf(requestId).forEach((caller) => caller.reject(new SemelError(requestId, failure, this.#lost))),
      pause: (described, failure) => this.#pause(described[0], this.#described(described), failure),
      lose: (described, error) => this.#lose(this.#described(described), error),
    };
  }

  /** What is shown of a request, which the module writes as ticket, id, method and target. */
  #described([, requestId, method, target]) {
    return { requestId, method, url: this.#setup.origin + target };
  }

  /** Removes and returns the callers that wait for an answer. */
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
    // No answer: because of the network, a time-out, or an error of the headers function.
    const answer = await send(this.#setup, request, underWay.signal, (left) => (underWay.left = left)).catch((error) => this.#lose(described, error));
    // The module has given this attempt up.
    if (!this.#attempts.delete(attempt)) return;
    if (!answer) return this.#machine.tell(LOST, attempt);
    // Without this event, only the server would know that an attempt is refused every second.
    const code = isOwn ? undefined : /^semel-status:(?!executed|replayed)(.*)/m.exec(answer[1])?.[1];
    this.#lost = code;
    this.#machine.tell(ANSWERED, attempt, ...answer);
    // After that, because a listener may give the request up, and then the module would not hear of `Retry-After` any more.
    if (code) this.#tell("refused", { ...described, status: answer[0], code });
  }

  /** An attempt failed. */
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
    // In a microtask: never from within a call of the module.
    Promise.resolve().then(() => this.onpaused?.(paused)).catch(console.error);
  }

  /** Gives an answer that no caller waits for to `onrecovered`. It is kept if there is no handler, or if the handler fails. */
  async #recover(ticket, request, outcome, error) {
    try {
      if (this.#onrecovered && !this.#closing.signal.aborted) {
        await this.#onrecovered({ ...request, response: outcome && responseOf(request.url, outcome), error });
        return this.#machine.tell(DELIVERED, ticket);
      }
    } catch (thrown) {
      console.error("semel: onrecovered failed:", thrown);
    }
    this.#recovered.push([ticket, request, outcome, error]);
  }
}

/** The salt of a hash. Throws for a multipart form: its random boundary would make each hash different. */
function salted(salt, lines) {
  const text = given(salt);
  if (/^content-type:multipart/m.test(lines) || !/string|number/.test(typeof text)) throw new TypeError("semel: a form has no hash; salt is a string or a number");
  return String(text);
}
