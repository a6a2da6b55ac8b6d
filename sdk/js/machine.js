// A module, of an outbox or of a session, driven: tells it what happened, does what it asks for, and wakes it in time.
//
// Invariants:
// - Nothing is decided here.
// - What the module asks for is done in order, never from within a call of it: what is told meanwhile adds to it.
// - Once it is closed, nothing is told and no timer runs.
// - A module that has trapped is called no more: what it holds may be half of something. Whoever has it is told, once.

import { lay, optional, Reader, roomFor } from "./bytes.js";
import { StoreError } from "./errors.js";

/** What the module is told: see `host.rs`. */
export const REQUEST = 2;
export const ANSWERED = 3;
const OPEN = 0;
const STORED = 1;
const CHANGE = 4;
const COMMITTED = 5;
const OVERVIEW = 6;
export const LOST = 8;
export const DELIVERED = 9;
export const GIVE_UP = 10;
export const RESUME = 11;
export const RESUME_ALL = 12;
export const WAKE = 13;
export const DOUBT_CLOCK = 14;
export const OFFLINE = 16;
export const ONLINE = 17;
export const LEAVE = 19;
export const WATCH = 20;
export const TICKET_OF = 21;
const IS_DONE = 22;
/** What whoever waits gets as it ends. */
export const CLOSED = ["closed", "unknown", "same-id", "it was closed; it goes on at the next open"];
/** For so long a timer can be set, and for not much more; it is set again then. */
const TIMER_MS_MAX = 2e9;
/** So far may the two clocks drift apart by themselves. */
const DRIFT_MS_MAX = 5_000;

/** How far the wall clock is ahead of the one that doesn't go back. On some systems that one stands still in sleep. */
const wallAhead = () => Date.now() - performance.now();

/** A UUID of version 4 of 16 bytes. */
function uuid(bytes) {
  const hex = Array.from(bytes, (byte, at) => (at === 8 ? (byte % 64) + 128 : byte).toString(16).padStart(2, "0")).join("");
  return hex.replace(/(.{8})(.{4}).(.{3})(.{4})/, "$1-$2-4$3-$4-");
}

/** A request as the module writes it: what it is told by, id, method and target. */
const requestOf = (from) => [from.integer(), from.text(), from.text(), from.text()];

const unreadable = () => new StoreError("store-damaged", "a row is damaged, or newer");

export class Machine {
  #exports;
  #store;
  #host;
  /** The take-over that is under way. */
  #taking;
  #todo = [];
  #isDoing;
  #isClosed;
  /** Why the change that is being reported was not made. */
  #why;
  #timer;
  /** When the timer is due, if one is set. */
  #wakes = Infinity;
  #ahead = wallAhead();

  /** `host` does what the module asks for: see `#host` in `semel.js`. */
  constructor(module, host) {
    this.#exports = new WebAssembly.Instance(module).exports;
    // The build names it for this very module. A cache may have another: what is told would be taken for something else.
    if (!this.#exports._call) throw new TypeError("semel: reload: it is newer");
    this.#host = host;
  }

  /** A UUID: of version 4 of 16 bytes; else of 7, by the time and at random, which a key with very many finds beside its last ones. */
  id(bytes) {
    // A page that came without encryption has no such function.
    const id = (!bytes && crypto.randomUUID?.()) || uuid(bytes ?? crypto.getRandomValues(new Uint8Array(16)));
    const time = Date.now().toString(16).padStart(12, "0");
    return bytes ? id : `${time.slice(0, 8)}-${time.slice(8)}-7${id.slice(15)}`;
  }

  /** `settings`: as `host.rs` reads them. */
  open(store, ...settings) {
    this.#store = store;
    this.#call(OPEN, ...settings);
  }

  /** Takes the rows of owners that don't live, and resolves to the owners of all that is pending. Whoever asks meanwhile gets the same: a store may take longer than until the next look. */
  takeOver(whoLives) {
    return (this.#taking ??= this.#takeOver(whoLives).finally(() => (this.#taking = undefined)));
  }

  async #takeOver(whoLives) {
    const rows = await this.#rows();
    // Asked after the rows were read: an owner lives before it writes its first row, so whoever has a row and lives is among them.
    const alive = await whoLives();
    return this.tell(STORED, rows.length, rows, optional(alive?.join("\n")))?.text().split("\n") ?? [];
  }

  /** Each request that is stored and not answered: id, method, target, state and attempts. */
  async overview() {
    const rows = await this.#rows();
    const lines = new Reader(this.#call(OVERVIEW, rows.length, rows)).text();
    return lines === "" ? [] : lines.split("\n").map((line) => line.split("\t"));
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    // What was asked for before is not done any more, but what is to be stored: within an event, say, it was given up.
    for (let next; (next = this.#todo.shift()); ) if (next[0] === this.#change) next[0](...next.slice(1));
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

  /** One of those above, of an attempt, a ticket or an id, and what belongs to it: what is given back, if anything. */
  tell(what, which = 0, ...more) {
    if (this.#isClosed) return undefined;
    const ahead = wallAhead();
    if (Math.abs(ahead - this.#ahead) > DRIFT_MS_MAX) {
      this.#ahead = ahead;
      this.#call(DOUBT_CLOCK, 0);
    }
    // A copy: what is done writes over it.
    const result = this.#call(what, which, ...more)?.slice();
    this.#do();
    return result && new Reader(result);
  }

  /** One call of the module: what it gives back, until the next; undefined where it has trapped. What it asks for is put on the list. */
  #call(what, ...told) {
    try {
      const { memory, input, _call, length } = this.#exports;
      const parts = [performance.now(), told].flat(Infinity);
      const room = roomFor(parts) + 1;
      // An address past 2 GiB comes as a negative number.
      const start = input(room) >>> 0;
      const bytes = new Uint8Array(memory.buffer);
      bytes[start] = what;
      const answer = _call(lay(bytes, start + 1, parts) - start) >>> 0;
      const output = new Reader(new Uint8Array(memory.buffer), answer, answer + length());
      if (output.isEmpty()) throw unreadable();
      const wakes = output.byte() ? output.integer() : Infinity;
      this.#host.count(output.integer(), output.integer());
      const result = output.bytes();
      // How many bytes the rest is.
      output.integer();
      while (!output.isEmpty()) this.#todo.push(this.#read(output));
      this.#wakeAt(wakes);
      return result;
    } catch (error) {
      if (error instanceof StoreError) throw error;
      // Once: without it nothing is called any more.
      this.#exports &&= void console.error("semel:", error);
      this.#host.end(error);
    }
  }

  #wakeAt(wakes) {
    // A timer that is due sooner may run out: it is set anew then. Most calls put the time off, and set none.
    if (wakes === this.#wakes || (wakes < Infinity && wakes > this.#wakes)) return;
    clearTimeout(this.#timer);
    this.#wakes = wakes;
    if (wakes === Infinity || this.#isClosed) return;
    // What is due by now has been so for ever, it may be. For less than nothing no timer is set: Node warns of that, and a browser may take it for weeks.
    const after = Math.max(0, wakes - performance.now());
    this.#timer = setTimeout(() => {
      this.#wakes = Infinity;
      this.tell(WAKE);
    }, Math.min(Math.ceil(after), TIMER_MS_MAX));
  }

  #do() {
    if (this.#isDoing) return;
    this.#isDoing = true;
    try {
      for (let next; (next = this.#todo.shift()); ) next[0](...next.slice(1));
    } finally {
      this.#isDoing = false;
    }
  }

  /** Reads one of the things to do, with what it is done to: see `write_action` in `host.rs`. */
  #read(from) {
    const host = this.#host;
    const copy = () => from.bytes().slice();
    const failure = () => [from.text(), from.text(), from.text(), from.text(), copy()];
    switch (from.byte()) {
      case 0:
        return [this.#change, from.integer(), from.text(), false];
      case 7:
        return [this.#change, from.integer(), from.text(), true];
      case 1: {
        const ids = from.text().split("\n");
        return [() => this.#quietly((store) => store.remove(ids, (row) => this.#call(IS_DONE, row)?.[0] === 1))];
      }
      case 2:
        return [host.transmit, ...requestOf(from), copy()];
      case 3:
        return [host.abort, from.integer()];
      case 4:
        // By now: a store that throws at once is told of while others are done, and this is done after them.
        return [host.deliver, requestOf(from), from.byte() === 1, ...(from.byte() ? [[from.integer(), from.text(), copy()], undefined] : [, failure()]), this.#why];
      case 5:
        return [host.gaveUp, from.text(), failure()];
      default:
        return [host.pause, requestOf(from), failure()];
    }
  }

  async #rows() {
    // A row is a view of bytes, of whichever window: what is an instance of another's class is none of this one's.
    const rows = await this.#store.load();
    if (!Array.isArray(rows) || !rows.every((row) => typeof row?.[0] === "string" && row[1]?.buffer)) throw unreadable();
    return rows;
  }

  /** A change of a row, in one transaction of the store. Nobody waits for one that `isPatient`, which a store may make use of. */
  #change = async (number, id, isPatient) => {
    let isCommitted = false;
    const began = Date.now();
    try {
      await this.#store.change(id, (row) => {
        // It is made again, and what it made before may have been committed, run by another meanwhile and done with: a page may have been frozen in between, or have been closed.
        // What is said is that it may be stored: see `deliver` in `semel.js`.
        if (isCommitted && !row && (this.#isClosed || Date.now() > began + DRIFT_MS_MAX)) throw new StoreError("store-failed", "server lost");
        // A store that never asks has made no change.
        isCommitted = true;
        if (row !== undefined && !row?.buffer) throw unreadable();
        const made = this.#call(CHANGE, number, optional(row));
        // It is to go, to be what comes after its length, or to stay; where there is no answer, this throws. A copy: a store may keep all that a view is of.
        return [null, made.slice(9)][made[0]];
      }, isPatient);
    } catch (error) {
      // It has changed nothing.
      isCommitted = false;
      this.#why = error;
    }
    const waiting = this.tell(COMMITTED, number, isCommitted);
    if (waiting && !waiting.isEmpty()) this.#host.lose(requestOf(waiting), this.#why);
    this.#why = undefined;
  };
}
