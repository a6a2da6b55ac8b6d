// `semel.session`: numbered requests at one key. This code is loaded when the first session is opened.
//
// A request's number in the session is called its place.
//
// Invariants:
// - All decisions are the module's: which place a request has, what is sent, and what an answer means.
// - Places follow the order of the calls, however long their bodies take to read.
// - After `close`, every promise settles.

import { optional, textOf } from "./bytes.js";
import { SemelError } from "./errors.js";
import { sendFrame } from "./frames.js";
import { gather } from "./gathered.js";
import { indexedDbStore } from "./indexeddb.js";
import { ANSWERED, CLOSED, GIVE_UP, LOST, Machine, OFFLINE, ONLINE, REQUEST, RESUME_ALL } from "./machine.js";
import { loadedOnce } from "./module.js";
import { encodedKey } from "./options.js";
import { listen } from "./page.js";
import { plain } from "./plain.js";
import { bodyOf, CHANGES, holders, membersIn, normalised, responseOf, storable } from "./requests.js";
import { Socket } from "./socket.js";
import { inTime, isInDoubt, rowsOf } from "./stores.js";
import { lightBeacon } from "./tabs.js";
import { sessionsOf } from "./together.js";
import { given } from "./transport.js";

/** How often a holder looks for requests that other holders left, and for answers that those have yet to hear. */
const LOOK_MS = 1_000;
/** Calls of the same moment are told to the module together, up to this many bytes of bodies. */
const TOGETHER_BYTES = 1 << 15;
/** The store if rows are in memory: the module keeps them itself. */
const KEPT = { load: async () => [] };
/** The ticket of the take-over. */
const TAKE_OVER = 0;
const OPTIONS = ["after", "store", "transport", "onrecovered", "onpaused", "onended"];
const TRANSPORTS = ["http", "socket", "auto"];
/** Options of `semel.fetch` that a session refuses. Ignoring an `id` would break exactly-once. */
const NOT_HERE = ["key", "id", "salt", "ordered"];

/** Returns the function that opens sessions. `source` gives the module: see `loadedOnce`. `Made`: the class of answers. */
export const sessions = (source, Made) => {
  const load = loadedOnce(source);
  return async (outbox, setup, closing, key, name, options = {}) => {
    // The outbox asks for gathering its own requests.
    if (key === outbox) return gather(setup);
    for (const option of Object.keys(options)) if (!OPTIONS.includes(option)) throw new TypeError(`semel: a session has no option ${option}`);
    const { after, store, transport = "http", onrecovered, onpaused = null, onended = null } = options;
    if (!TRANSPORTS.includes(transport)) throw new TypeError(`semel: transport is one of ${TRANSPORTS.join(", ")}`);
    if (transport === "socket" && !globalThis.WebSocket) throw new TypeError("semel: no WebSocket here");
    if (typeof name !== "string" || !/^[ -~]{1,255}$/.test(name)) throw new TypeError("semel: the name of a session has 1 to 255 characters of printable ASCII");
    if (after !== undefined && !(Number.isSafeInteger(after) && after >= 0)) throw new RangeError("semel: after is the number of an epoch");
    for (const each of [onrecovered, onpaused, onended]) if (typeof (each ?? load) !== "function") throw new TypeError("semel: onrecovered, onpaused and onended are functions");
    // Rows of both in one store would be damage to either: nothing of it would ever be sent again.
    if (setup.store && (store ?? setup.store) === setup.store) throw new TypeError("semel: where the outbox has a store, give the session another, by its option store");
    if (store !== undefined && !["load", "change", "remove"].every((name) => typeof store?.[name] === "function")) throw new TypeError("semel: a store has the methods load, change and remove");
    const encoded = encodedKey(key);
    if (encoded === undefined) throw new TypeError("semel: a session is at a key");
    const module = await load();
    closing.throwIfAborted();
    const hasSocket = transport === "socket" || (transport === "auto" && globalThis.WebSocket !== undefined);
    const way = { isAuto: transport === "auto", socket: hasSocket ? new Socket(setup.origin, encoded, setup.attemptTimeoutMs) : undefined };
    return Session.take(sessionsOf(outbox, setup, closing), { ...setup, Made }, module, way, { key, name, onrecovered, onpaused, onended }, encoded, after, store);
  };
};

class Session {
  #setup;
  #machine;
  #beacon;
  #looking;
  #ending = new AbortController();
  /** Rejects when the session is closed. Raced with promises that may never settle. */
  #ended = new Promise((_, reject) => this.#ending.signal.addEventListener("abort", () => reject(this.#ending.signal.reason)));
  /** The sessions of its outbox. */
  #together;
  /** How frames are sent: see `sendFrame`. */
  #way;
  /** Settles the promise of the take-over. */
  #taking;
  /** Whether the module keeps the rows, in memory. */
  #isKept;
  /** All calls without an answer; and those that have a request id, by it. */
  #calls = new Set();
  #callers = new Map();
  /** What is to be told to the module next, all at once: tickets whose answers were taken, and calls, with the bytes of their bodies. */
  #heard = [];
  #asked = [];
  #bytes = 0;
  /** Settles when the last call has its place; undefined: all have theirs. */
  #turn;
  /** The attempts under way, by number: an AbortController each, whose `left` is what was given to `fetch`. */
  #attempts = new Map();
  /** Answers that no `onrecovered` has taken yet. */
  #recovered = [];
  #onrecovered;

  /** Takes the session over, and goes on with unfinished requests. */
  static async take(together, setup, module, way, named, key, after, store) {
    const session = new this(together, setup, module, way, named);
    try {
      await Promise.race([session.#ended, session.#start(key, after, store)]);
    } catch (error) {
      session.close();
      throw error;
    }
    return session;
  }

  constructor(together, setup, module, way, named) {
    this.#together = together;
    this.#setup = setup;
    this.#machine = new Machine(module, this.#host());
    this.#way = way;
    together.join(this);
    Object.assign(this, named);
  }

  async #start(key, after, store) {
    const { origin, identity, durability, retryIntervalMs, attemptTimeoutMs, giveUpAfterMs, maxPending } = this.#setup;
    const [owner, takeOverId] = [this.#machine.id(), this.#machine.id()];
    const database = `semel sessions ${origin} ${identity}`;
    // Always "strict": a request may get another number. If a power cut undid that row, it could run under both numbers.
    const isKept = (this.#isKept = !store && durability === "memory");
    const own = isKept ? KEPT : store;
    const stored = own ?? rowsOf(indexedDbStore(database, "strict"), `${key}\n${this.name}\n`);
    let rows;
    try {
      // Read before the take-over: a holder that can't read its store must not fence the other.
      rows = await this.#inTime(stored.load());
    } catch (error) {
      stored.close?.();
      throw error;
    }
    const taken = new Promise((resolve, reject) => (this.#taking = { resolve, reject }));
    this.#machine.open(stored, database, owner, identity, retryIntervalMs, attemptTimeoutMs, maxPending, this.#way.socket !== undefined, key, this.name, takeOverId, optional(after), giveUpAfterMs, isKept, rows.length, rows);
    const look = ({ type }) => {
      // As in the outbox: a page that was just hidden may be frozen at any moment.
      if (type !== "visibilitychange" || !document.hidden) this.#machine.tell(navigator.onLine ? ONLINE : OFFLINE);
    };
    listen(this.#ending.signal, look, this.#attempts, this.#setup.fetch);
    const [{ epoch, lastSeq }] = await Promise.all([taken, this.#inTime(this.#light(own ? own.presence?.(owner) : lightBeacon(database, owner)))]);
    Object.assign(this, { epoch, lastSeq });
    await this.#inTime(this.#look());
    this.#ending.signal.throwIfAborted();
    // `unref`: this timer alone must not keep a process of Node alive.
    if (this.#beacon) (this.#looking = setInterval(() => this.#look().catch(() => {}), LOOK_MS)).unref?.();
  }

  /** Announces that this holder is alive, unless it was closed meanwhile. */
  async #light(lighting) {
    this.#beacon = await lighting;
    if (this.#isClosed) this.#beacon?.leave();
  }

  /** Takes over the requests of holders that are gone. */
  async #look() {
    if (!this.#isClosed) await this.#machine.takeOver(async () => this.#beacon?.alive());
  }

  /** Waits for a read of the store, with its time limit, but not longer than the session is open. */
  #inTime(reading) {
    return inTime(Promise.race([this.#ended, reading]));
  }

  get #isClosed() {
    return this.#ending.signal.aborted;
  }

  get onrecovered() {
    return this.#onrecovered;
  }

  set onrecovered(handler) {
    this.#onrecovered = typeof handler === "function" ? handler : null;
    for (const recovered of this.#recovered.splice(0)) this.#recover(...recovered);
  }

  /** Bound, like that of the outbox. */
  fetch = (input, init) =>
    new Promise((resolve, reject) => {
      const call = { resolve, reject };
      this.#calls.add(call);
      if (this.#isClosed) return this.#stop(call);
      const fail = (error) => this.#end(call).reject(error);
      try {
        this.#call(call, input, init)?.catch(fail);
      } catch (error) {
        fail(error);
      }
    });

  /** Removes a call that settles now. Returns it. */
  #end(call) {
    this.#calls.delete(call);
    this.#callers.delete(call.id);
    call.signal?.removeEventListener("abort", call.abort);
    return call;
  }

  #call(call, input, given) {
    const { signal = input.signal, ...init } = membersIn(given);
    if (signal) holders.set(signal, given instanceof Request ? given : input);
    for (const name of NOT_HERE) if (init[name] !== undefined) throw new TypeError(`semel: a session has no option ${name}`);
    signal?.throwIfAborted();
    call.signal = signal;
    call.abort = () => {
      // Without a place it leaves no gap, so it ends at once.
      if (!call.id) return this.#end(call).reject(signal.reason);
      this.#tell();
      this.#machine.tell(GIVE_UP, call.ticket);
    };
    signal?.addEventListener("abort", call.abort);
    const request = !this.#turn && plain(this.#setup.origin, input, init);
    return request ? this.#place(call, request) : this.#slowly(call, signal, input, init);
  }

  async #slowly(call, signal, input, init) {
    const { made, request: given, stream, pathname, search } = normalised(this.#setup.origin, input, init);
    if (!CHANGES.has(given.method)) {
      const answer = await this.#passThrough(stream ? made({ duplex: "half" }) : given, signal);
      return this.#end(call).resolve(answer);
    }
    const lines = storable(given.headers);
    const before = this.#turn;
    const own = (async () => {
      const body = await bodyOf(given, signal, stream);
      await before;
      // It may have been aborted or closed meanwhile.
      if (this.#calls.has(call)) this.#place(call, [given.method, pathname + search, lines, body]);
    })();
    const turn = Promise.allSettled([before, own]).then(() => this.#turn === turn && (this.#turn = undefined));
    this.#turn = turn;
    return own;
  }

  #place(call, [method, target, lines, body]) {
    // The session's own requests are recognised by this prefix.
    if (target.startsWith("/semel/")) throw new TypeError("semel: /semel/ is not the application's");
    call.id = this.#machine.id();
    this.#callers.set(call.id, call);
    call.isDrawn = true;
    call.url = this.#setup.origin + target;
    call.parts = [call.id, method, target, false, lines, body];
    this.#bytes += body.length;
    this.#soon(this.#asked, call);
    // Told now, so that no more bodies are held in memory twice.
    if (this.#bytes > TOGETHER_BYTES) this.#tell();
  }

  /** Tells the module two microtasks later, so that callers that just got an answer can call again first. Then their requests leave together. */
  #soon(list, told) {
    if (!this.#heard.length && !this.#asked.length) Promise.resolve().then(() => queueMicrotask(this.#tell));
    list.push(told);
  }

  #tell = () => {
    const [heard, asked] = [this.#heard.splice(0), this.#asked.splice(0)];
    this.#bytes = 0;
    if (this.#isClosed || !(heard.length + asked.length)) return;
    try {
      const told = this.#machine.tell(REQUEST, heard.length, heard, asked.length, asked.map(({ parts }) => parts));
      const next = told.integer() + 1;
      asked.forEach((call, index) => {
        call.ticket = next - asked.length + index;
        // Aborted while it was told, by the headers function for example: it had no ticket then.
        if (call.signal?.aborted) call.abort();
      });
    } catch (error) {
      for (const call of asked) this.#end(call).reject(error);
    }
  };

  /** Sends a read: as it is, and once. */
  async #passThrough(request, signal) {
    const headers = new Headers(await given(this.#setup.headers));
    for (const [name, value] of request.headers) headers.set(name, value);
    if (this.#setup.identity) headers.set("semel-principal", JSON.stringify(this.#setup.identity));
    headers.set("semel-key", `"${encodedKey(this.key)}"`);
    return this.#setup.fetch(new Request(request, { headers }), { signal });
  }

  async pending() {
    const all = await this.#inTime(this.#machine.overview());
    return all.map(([requestId, method, target, state, attempts]) => ({ ...this.#described(requestId, method, target), attempts: Number(attempts), state }));
  }

  resume() {
    this.#machine.tell(RESUME_ALL);
  }

  close = async () => this.#close();

  /** Closes the session. `broken`: the error, if the module has trapped. */
  #close(broken) {
    if (this.#isClosed) return;
    if (!broken) this.#tell();
    this.#ending.abort(new SemelError("", CLOSED, broken));
    clearInterval(this.#looking);
    for (const call of this.#calls) this.#stop(call);
    for (const underWay of this.#attempts.values()) underWay.abort();
    this.#way.socket?.close();
    this.#machine.close();
    this.#together.leave(this);
    this.#beacon?.leave();
    if (broken) later(() => this.onended?.(this.#ending.signal.reason));
  }

  #stop(call) {
    this.#end(call).reject(new SemelError(call.id ?? "", CLOSED, this.#ending.signal.reason.cause));
  }

  /** What the module asks for. */
  #host() {
    return {
      transmit: (attempt, ...request) => this.#transmit(attempt, request),
      count: (...counts) => this.#isClosed || this.#together.count(this, counts),
      end: (broken) => this.#close(broken),
      abort: (attempt) => {
        this.#attempts.get(attempt).abort();
        this.#attempts.delete(attempt);
      },
      deliver: ([ticket, requestId, method, target], isAwaited, outcome, failure, cause) => {
        const call = this.#callers.get(requestId);
        // The row may be stored, and the next holder may send it. Or another holder may have sent it already: see `doubt`.
        if (isInDoubt(cause)) failure?.splice(1, 2, "unknown", "same-id");
        if (call && !call.isDrawn) failure?.splice(1, 1, "unknown");
        const error = failure && new SemelError(requestId, failure, cause);
        if (ticket === TAKE_OVER) return error ? this.#taking.reject(error) : this.#taking.resolve(JSON.parse(textOf(outcome[2])));
        if (!isAwaited) return this.#recover(ticket, this.#described(requestId, method, target), outcome, error);
        const { url, resolve, reject } = this.#end(call);
        if (outcome) resolve(responseOf(url, outcome, this.#setup.Made));
        else reject(error);
        // If the module keeps the rows, it knows this already.
        if (!this.#isKept) this.#soon(this.#heard, ticket);
      },
      // The row was written a second time: see `#change` in `machine.js`. It may have been another holder's in between, under another place.
      doubt: (requestId) => delete this.#callers.get(requestId)?.isDrawn,
      pause: ([ticket, requestId, method, target], failure) => this.#pause(ticket, this.#described(requestId, method, target), failure),
      lose: ([, requestId, method, target], error) => this.#together.tell("lost", { ...this.#described(requestId, method, target), error }),
    };
  }

  #described(requestId, method, target) {
    return { requestId, method, url: this.#setup.origin + target };
  }

  async #transmit(attempt, request) {
    const underWay = new AbortController();
    this.#attempts.set(attempt, underWay);
    const described = this.#described(undefined, ...request);
    let answer;
    try {
      answer = await sendFrame(this.#setup, request, underWay.signal, this.#way, (left) => (underWay.left = left));
    } catch (error) {
      // No answer: because of the network, a time-out, or an error of the headers function.
      this.#together.tell("lost", { ...described, error });
    }
    // The module has given this attempt up.
    if (!this.#attempts.delete(attempt)) return;
    if (!answer) return this.#machine.tell(LOST, attempt);
    // Only the take-over: there is no session yet that would pause.
    const code = this.epoch ? undefined : /^semel-status:(?!executed|replayed)(.*)/m.exec(answer[1])?.[1];
    if (code) this.#together.tell("refused", { ...described, status: answer[0], code });
    this.#machine.tell(ANSWERED, attempt, ...answer);
  }

  #pause(ticket, request, failure) {
    const error = new SemelError(request.requestId, failure);
    if (ticket === TAKE_OVER) return later(() => this.onended?.(error));
    if (typeof this.onpaused !== "function") {
      console.warn(`semel: session ${this.name} waits at ${request.method} ${request.url}, without onpaused: ${error.message}`);
      return;
    }
    const paused = { ...request, error, resume: () => this.resume(), giveUp: () => this.#machine.tell(GIVE_UP, ticket) };
    later(() => this.onpaused?.(paused));
  }

  /** Gives an answer that no caller waits for to `onrecovered`. It is kept if there is no handler, or if the handler fails. */
  async #recover(ticket, request, outcome, error) {
    const keep = () => this.#recovered.push([ticket, request, outcome, error]);
    if (!this.#onrecovered || this.#isClosed) return keep();
    try {
      await this.#onrecovered({ ...request, response: outcome && responseOf(request.url, outcome, this.#setup.Made), error });
    } catch (thrown) {
      console.error("semel: onrecovered failed:", thrown);
      return keep();
    }
    this.#soon(this.#heard, ticket);
  }
}

/** Runs `work` in a microtask: never from within a call of the module. */
const later = (work) => void Promise.resolve().then(work).catch(console.error);
