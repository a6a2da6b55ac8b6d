// Drives a module, of an outbox or of a session: tells it what happened, does what it asks for, and wakes it in time.
//
// Invariants:
// - All decisions are the module's.
// - The module's actions are done in order, and never from within a call of it. Events that are told meanwhile add actions to the end.
// - After `close`, the module is told nothing and no timer runs.
// - A module that has trapped is not called again, because its state may be half-written. Its host is told, once.

import { lay, optional, Reader, roomFor } from "./bytes.js";
import { StoreError } from "./errors.js";

/** The kinds of calls of the module: see `host.rs`. */
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
/** The failure that waiting callers get when it is closed. */
export const CLOSED = ["closed", "unknown", "same-id", "a stored request goes on at the next open"];
/** The longest timer, a little below what runtimes take. When it runs out, the next is set. */
const TIMER_MS_MAX = 2e9;
/** How far the two clocks may drift apart normally. */
const DRIFT_MS_MAX = 5_000;

/** How far the wall clock is ahead of the monotonic clock, which on some systems stands still while the machine sleeps. */
const wallAhead = () => Date.now() - performance.now();

/** Makes a UUID of version 4 from 16 bytes. */
function uuid(bytes) {
  const hex = Array.from(bytes, (byte, at) => (at === 8 ? (byte % 64) + 128 : byte).toString(16).padStart(2, "0")).join("");
  return hex.replace(/(.{8})(.{4}).(.{3})(.{4})/, "$1-$2-4$3-$4-");
}

/** A request as the module writes it: ticket or attempt, id, method and target. */
const requestOf = (from) => [from.integer(), from.text(), from.text(), from.text()];

const unreadable = () => new StoreError("store-damaged", "a row is damaged, or newer");

export class Machine {
  #exports;
  #store;
  #host;
  /** The take-over under way, if there is one. */
  #taking;
  #todo = [];
  #isDoing;
  #isClosed;
  /** The error of the change that is being reported as not made. */
  #why;
  #timer;
  /** When the timer is due; Infinity: none is set. */
  #wakes = Infinity;
  #ahead = wallAhead();

  /** `host` does the module's actions: see `#host` in `semel.js`. */
  constructor(module, host) {
    this.#exports = new WebAssembly.Instance(module).exports;
    // The build gives the function a name that belongs to this very module. A cache may deliver another version, which would misread calls.
    if (!this.#exports._call) throw new TypeError("semel: reload: it is newer");
    this.#host = host;
  }

  /**
   * A UUID. With `bytes` (a hash): of version 4, made of them. Otherwise of version 7, time and random bits, so that a key with very many records finds recent
   * ones side by side.
   */
  id(bytes) {
    // Not `randomUUID`, which is missing in pages that were loaded without TLS.
    const id = uuid(bytes ?? crypto.getRandomValues(new Uint8Array(16)));
    const time = Date.now().toString(16).padStart(12, "0");
    return bytes ? id : `${time.slice(0, 8)}-${time.slice(8)}-7${id.slice(15)}`;
  }

  /** `settings`: as `host.rs` reads them. */
  open(store, ...settings) {
    this.#store = store;
    this.#call(OPEN, ...settings);
  }

  /**
   * Takes over the rows of owners that are gone. Resolves to the owners of all pending rows. Calls meanwhile get the same promise, because a slow store may
   * take longer than the interval of looks.
   */
  takeOver(whoLives) {
    return (this.#taking ??= this.#takeOver(whoLives).finally(() => (this.#taking = undefined)));
  }

  async #takeOver(whoLives) {
    const rows = await this.#rows();
    // Asked after the rows were read. An owner announces itself before it writes its first row, so all live owners of these rows are in the list.
    const alive = await whoLives();
    return this.tell(STORED, rows.length, rows, optional(alive?.join("\n")))?.text().split("\n") ?? [];
  }

  /** The stored requests without a definitive answer: `[id, method, target, state, attempts]` each. */
  async overview() {
    const rows = await this.#rows();
    const lines = new Reader(this.#call(OVERVIEW, rows.length, rows)).text();
    return lines ? lines.split("\n").map((line) => line.split("\t")) : [];
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    // Pending actions are dropped, except changes of rows: a request may have been given up just now, within an event handler.
    for (let next; (next = this.#todo.shift()); ) if (next[0] === this.#change) next[0](...next.slice(1));
    // Not every store has a `close`, and there may be no store yet.
    this.#quietly((store) => store.close());
  }

  /** Calls the store, and ignores a failure. */
  async #quietly(act) {
    try {
      await act(this.#store);
    } catch {
      // If it matters, it is tried again after the next start.
    }
  }

  /** Tells the module an event of one of the kinds above. `which`: an attempt, a ticket or an id. Returns a Reader of the result, if there is one. */
  tell(what, which = 0, ...more) {
    if (this.#isClosed) return undefined;
    const ahead = wallAhead();
    if (Math.abs(ahead - this.#ahead) > DRIFT_MS_MAX) {
      this.#ahead = ahead;
      this.#call(DOUBT_CLOCK, 0);
    }
    // A copy, because the actions make calls that overwrite it.
    const result = this.#call(what, which, ...more)?.slice();
    this.#do();
    return result && new Reader(result);
  }

  /** Makes one call. Returns the result, valid until the next call; undefined if the module has trapped. Its actions are added to the list. */
  #call(what, ...told) {
    try {
      const { memory, input, _call } = this.#exports;
      const parts = [performance.now(), told].flat(Infinity);
      const room = roomFor(parts) + 1;
      // wasm returns signed numbers: an address past 2 GiB is negative.
      const start = input(room) >>> 0;
      const bytes = new Uint8Array(memory.buffer);
      bytes[start] = what;
      const answer = _call(lay(bytes, start + 1, parts) - start) >>> 0;
      if (!answer) throw unreadable();
      const output = new Reader(new Uint8Array(memory.buffer), answer);
      const wakes = output.byte() ? output.integer() : Infinity;
      this.#host.count(output.integer(), output.integer());
      const result = output.bytes();
      const actions = new Reader(output.bytes());
      while (!actions.isEmpty()) this.#todo.push(this.#read(actions));
      this.#wakeAt(wakes);
      return result;
    } catch (error) {
      if (error instanceof StoreError) throw error;
      // Without exports nothing is called any more, so this happens once.
      this.#exports &&= void console.error("semel:", error);
      this.#host.end(error);
    }
  }

  #wakeAt(wakes) {
    // If a timer is due sooner, it may run out, and the next is set then. Most calls postpone, so most set no timer.
    if (wakes === this.#wakes || (wakes < Infinity && wakes > this.#wakes)) return;
    clearTimeout(this.#timer);
    this.#wakes = wakes;
    if (wakes === Infinity || this.#isClosed) return;
    // It may be long overdue. Never negative: Node warns about that, and a browser may take a large negative number for weeks.
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

  /** Reads one action: the function to call and its arguments. See `write_action` in `host.rs`. */
  #read(from) {
    const host = this.#host;
    const copy = () => from.bytes().slice();
    const failure = () => [from.text(), from.text(), from.text(), from.text(), copy()];
    const kind = from.byte();
    switch (kind) {
      case 1: {
        const ids = from.text().split("\n");
        return [() => this.#quietly((store) => store.remove(ids, (row) => this.#call(IS_DONE, row)?.[0] === 1))];
      }
      case 2:
        return [host.transmit, ...requestOf(from), copy()];
      case 3:
        return [host.abort, from.integer()];
      case 4:
        // `#why` is read now: other actions may be done before this one, and a store that throws synchronously would change it.
        return [host.deliver, requestOf(from), from.byte() === 1, ...(from.byte() ? [[from.integer(), from.text(), copy()], undefined] : [, failure()]), this.#why];
      case 5:
        return [host.gaveUp, from.text(), failure()];
      case 6:
        return [host.pause, requestOf(from), failure()];
      // 0; or 7: nobody waits for the change.
      default:
        return [this.#change, from.integer(), from.text(), kind > 0];
    }
  }

  async #rows() {
    // Not `instanceof Uint8Array`: a row may come from another window, such as the frame of indexeddb.js.
    const rows = await this.#store.load();
    if (!rows?.every?.((row) => typeof row?.[0] === "string" && row[1]?.buffer)) throw unreadable();
    return rows;
  }

  /** Changes a row in one transaction of the store. `isPatient`: nobody waits for it, so the store may delay it. */
  #change = async (number, id, isPatient) => {
    let isCommitted = false;
    let isInDoubt;
    const began = Date.now();
    try {
      await this.#store.change(id, (row) => {
        // The store repeats its transaction, and nobody knows whether the first one was committed. If it was, another tab may have taken the row over, sent it
        // and deleted it, while this page was frozen. If it was frozen for long, or is closed, no row is written, and the error means "may be stored".
        // Otherwise the row is written anew, and the request may have run: see `deliver` in `semel.js`.
        // Null: it is the first time.
        const found = isCommitted ? row : null;
        const isGone = found === undefined;
        // A third time finds the row of the second, and takes no doubt away.
        isInDoubt ||= isGone;
        if (isGone && (this.#isClosed || Date.now() > began + DRIFT_MS_MAX)) throw new StoreError("store-failed", "UnknownError");
        // A store that never calls this has made no change.
        isCommitted = true;
        if (row !== undefined && !row?.buffer) throw unreadable();
        const made = this.#call(CHANGE, number, optional(row));
        // 0: leave the row; 1: the new row follows after its length; 2: delete it. Throws if the module has trapped. Copied, because a store may keep the whole
        // buffer of a view. What is found again is written again: a transaction without a write would not be synced, and the first may not have been.
        return [found, made.slice(9)][made[0]];
      }, isPatient);
      if (isInDoubt) this.#host.doubt?.(id);
    } catch (error) {
      // The store rejected, so nothing was changed.
      isCommitted = false;
      this.#why = error;
    }
    const waiting = this.tell(COMMITTED, number, isCommitted);
    if (waiting && !waiting.isEmpty()) this.#host.lose(requestOf(waiting), this.#why);
    this.#why = undefined;
  };
}
