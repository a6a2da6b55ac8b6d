// A module, of an outbox or of a session, driven: tells it what happened, does what it asks for, and wakes it in time.
//
// Invariants:
// - Nothing is decided here.
// - What the module asks for is done in order, never from within a call of it: what is told meanwhile adds to it.
// - Once it is closed, nothing is told and no timer runs.

import { laid, optional, reader } from "./bytes.js";
import { StoreError } from "./errors.js";

/** What the module is told: see `host.rs`. */
const OPEN = 0;
const STORED = 1;
const REQUEST = 2;
const ANSWERED = 3;
const CHANGE = 4;
const COMMITTED = 5;
const OVERVIEW = 6;
const RANDOM = 7;
export const LOST = 8;
export const DELIVERED = 9;
export const GIVE_UP = 10;
export const RESUME = 11;
export const RESUME_ALL = 12;
export const WAKE = 13;
export const DOUBT_CLOCK = 14;
export const CLOSE = 15;
export const OFFLINE = 16;
export const ONLINE = 17;
export const LEAVE = 19;
const WATCH = 20;
const TICKET_OF = 21;
const IS_DONE = 22;
/** The longest time for which a timer can be set; it is set again then. */
const TIMER_MS_MAX = 2 ** 31 - 1;
/** So far may the two clocks drift apart by themselves. */
const DRIFT_MS_MAX = 5_000;

/** How far the wall clock is ahead of the one that doesn't go back. On some systems that one stands still in sleep. */
const wallAhead = () => Date.now() - performance.now();

const unreadable = () => new StoreError("store-damaged", "a stored row is damaged, or was written by a newer version");

export class Machine {
  #exports;
  #store;
  #host;
  #todo = [];
  #isDoing = false;
  #isClosed = false;
  /** Why the change that is being reported was not made. */
  #why;
  #timer;
  /** When the timer is due, if one is set. */
  #wakes = Infinity;
  #ahead = wallAhead();

  /** `host` does what the module asks for: see `#host` in `semel.js`. */
  constructor(module, host) {
    this.#exports = new WebAssembly.Instance(module).exports;
    this.#host = host;
  }

  /** A UUID of 16 bytes: at random, unless told otherwise. */
  id(bytes = crypto.getRandomValues(new Uint8Array(16))) {
    return this.#call(RANDOM, bytes).text();
  }

  /** `settings`: as `host.rs` reads them. */
  open(store, ...settings) {
    this.#store = store;
    this.#call(OPEN, ...settings);
  }

  /** Takes the rows of owners that don't live, and resolves to the owners of all that is pending. */
  async takeOver(whoLives) {
    const rows = await this.#rows();
    // Asked after the rows were read: an owner lives before it writes its first row, so whoever has a row and lives is among them.
    const alive = await whoLives();
    if (this.#isClosed) return [];
    return this.#tell(STORED, rows.length, ...rows.flat(), ...optional(alive?.join("\n"))).text().split("\n");
  }

  /** Each request that is stored and not answered: id, method, target, state and attempts. */
  async overview() {
    const rows = await this.#rows();
    const lines = this.#call(OVERVIEW, rows.length, ...rows.flat()).text();
    return lines === "" ? [] : lines.split("\n").map((line) => line.split("\t"));
  }

  /** Waits for the answer of a request that was made before, and returns its ticket. */
  watch(id) {
    return this.#tell(WATCH, id)?.integer();
  }

  /** The ticket of a request that is in hand; 0 where there is none. */
  ticketOf(id) {
    return this.#tell(TICKET_OF, id)?.integer();
  }

  /** Takes a request in hand, and returns its ticket; 0 where its id is another request's. */
  request(id, method, target, key, lines, body, isOrdered) {
    return this.#tell(REQUEST, id, method, target, ...optional(key), lines, body, isOrdered)?.integer();
  }

  /** An attempt was answered. */
  answered(attempt, status, lines, body, members) {
    this.#tell(ANSWERED, attempt, status, lines, body, members);
  }

  /** One of those above, of an attempt or a ticket. */
  tell(what, number = 0) {
    this.#tell(what, number);
  }

  close() {
    // What was asked for before is not done any more.
    this.#todo.length = 0;
    this.#tell(CLOSE, 0);
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#quietly((store) => store?.close?.());
  }

  /** Of what the store fails at, nothing comes. */
  async #quietly(act) {
    try {
      await act(this.#store);
    } catch {
      // It is tried again after the next start, if need be.
    }
  }

  #tell(...told) {
    if (this.#isClosed) return undefined;
    const ahead = wallAhead();
    if (Math.abs(ahead - this.#ahead) > DRIFT_MS_MAX) {
      this.#ahead = ahead;
      this.#call(DOUBT_CLOCK, 0);
    }
    const result = this.#call(...told);
    this.#do();
    return result;
  }

  /** One call of the module: what it gives back. What it asks for is put on the list. */
  #call(what, ...parts) {
    const { memory, semel_input, semel_call, semel_output_length } = this.#exports;
    const input = laid([performance.now(), ...parts]);
    // An address past 2 GiB comes as a negative number.
    const start = semel_input(input.length + 1) >>> 0;
    const place = new Uint8Array(memory.buffer, start);
    place[0] = what;
    place.set(input, 1);
    const answer = semel_call() >>> 0;
    // A copy: the next call writes over it.
    const output = reader(new Uint8Array(memory.buffer).slice(answer, answer + semel_output_length()));
    if (output.isEmpty()) throw unreadable();
    const wakes = output.byte() ? output.integer() : Infinity;
    this.#host.count(output.integer(), output.integer());
    const result = reader(output.bytes());
    const actions = reader(output.bytes());
    while (!actions.isEmpty()) this.#todo.push(this.#read(actions));
    this.#wakeAt(wakes);
    return result;
  }

  #wakeAt(wakes) {
    // A timer that is due sooner may run out: it is set anew then. Most calls put the time off, and set none.
    if (wakes < Infinity && wakes >= this.#wakes) return;
    clearTimeout(this.#timer);
    this.#wakes = wakes;
    if (wakes === Infinity || this.#isClosed) return;
    const after = Math.min(Math.max(wakes - performance.now(), 0), TIMER_MS_MAX);
    this.#timer = setTimeout(() => {
      this.#wakes = Infinity;
      this.#tell(WAKE, 0);
    }, Math.ceil(after));
  }

  #do() {
    if (this.#isDoing) return;
    this.#isDoing = true;
    try {
      for (let next; (next = this.#todo.shift()); ) next();
    } finally {
      this.#isDoing = false;
    }
  }

  /** Reads one of the things to do: see `write_action` in `host.rs`. */
  #read({ byte, integer, text, bytes }) {
    const host = this.#host;
    const request = () => [integer(), text(), text(), text()];
    const failure = () => [text(), text(), text(), text(), bytes()];
    const what = byte();
    switch (what) {
      case 0:
      case 7: {
        const [number, id] = [integer(), text()];
        return () => this.#change(number, id, what === 7);
      }
      case 1: {
        const ids = text().split("\n");
        return () => this.#quietly((store) => store.remove(ids, (row) => this.#call(IS_DONE, row).byte() === 1));
      }
      case 2: {
        const made = [integer(), text(), text(), text(), bytes()];
        return () => host.transmit(...made);
      }
      case 3: {
        const attempt = integer();
        return () => host.abort(attempt);
      }
      case 4: {
        const [described, isAwaited] = [request(), byte() === 1];
        const answered = byte() === 1 ? [[integer(), text(), bytes()], undefined] : [undefined, failure()];
        return () => host.deliver(described, isAwaited, ...answered, this.#why);
      }
      case 5: {
        const [id, why] = [text(), failure()];
        return () => host.gaveUp(id, why);
      }
      default: {
        const [described, why] = [request(), failure()];
        return () => host.pause(described, why);
      }
    }
  }

  async #rows() {
    const rows = await this.#store.load();
    if (!Array.isArray(rows) || !rows.every((row) => typeof row?.[0] === "string" && row[1] instanceof Uint8Array)) throw unreadable();
    return rows;
  }

  /** A change of a row, in one transaction of the store. Nobody waits for one that `isPatient`, which a store may make use of. */
  async #change(number, id, isPatient) {
    let isCommitted = false;
    try {
      let isAsked = false;
      await this.#store.change(id, (row) => {
        if (isAsked) throw new Error("semel: a change is made once");
        isAsked = true;
        if (row !== undefined && !(row instanceof Uint8Array)) throw unreadable();
        const made = this.#call(CHANGE, number, ...optional(row));
        const kind = made.byte();
        // A copy: a store may keep all that a view is of.
        return kind === 0 ? null : kind === 1 ? made.bytes().slice() : undefined;
      }, isPatient);
      isCommitted = true;
    } catch (error) {
      // It has changed nothing.
      this.#why = error;
    }
    this.#tell(COMMITTED, number, isCommitted);
    this.#why = undefined;
  }
}
