// The sockets of a key's object: who is on each, and its frames in order. Sockets hibernate, so the platform keeps the state of each.
//
// A socket is a "stranger" until its first frame has said, with a token, who the client is.
//
// Invariants:
// - No request of a frame runs before it is known who sends it, or after this side has closed the socket.
// - A frame is answered before the next frame of its socket begins. The platform holds every answer back until its commit is durable.
// - A silent stranger is closed as `unavailable`, not as refused: the network may have delayed its first frame.
// - Waiting is bounded: in time for strangers, in bytes for clients that send faster than they are answered. Strangers take no room from known clients,
//   and each stranger has room for a first frame and a little more, whatever the others do.

import { note } from "./module.js";

/** How long a stranger may be silent. And how many strangers there may be: beyond, the oldest silent one of the network that has most makes room. */
const FIRST_FRAME_MS = 10_000;
const STRANGERS_MAX = 100;
/** How many known sockets there may be: beyond, the oldest of the principal that has most makes room. */
const SOCKETS_MAX = 1_000;
/** The platform keeps 16 KiB with a socket, and where it does not set the address header, a client may send anything in it. */
const ADDRESS_CHARS_MAX = 64;
/** How many bytes of frames may wait on one socket. Each frame counts as `FRAME_BYTES_MIN` at least. */
const WAITING_BYTES_MAX = 8 << 20;
/** How many bytes may wait on all known sockets of the key. All strangers together have as much as one known socket. */
const ALL_WAITING_BYTES_MAX = 32 << 20;
/** On each stranger, this many bytes are not counted. */
const STRANGER_BYTES = 64 << 10;
const FRAME_BYTES_MIN = 1 << 10;

const isOpen = (socket) => socket.readyState === 1;
const UNAUTHORIZED = [4401, "unauthorized"];
export const UNAVAILABLE = [4503, "unavailable"];

/** The network of an address: for IPv6 its first 64 bits, as for rates, because a client usually has all addresses below them. */
function networkOf(address) {
  if (address.includes(".")) return address;
  const groups = (text) => text.split(":").filter(Boolean);
  const leftOut = Math.max(8 - groups(address).length, 0);
  return groups(address.replace("::", `:${"0:".repeat(leftOut)}`))
    .slice(0, 4)
    .join(":");
}

/** `owners`: sockets with their owners. Returns the first socket of the owner that has most; undefined if there are none. */
function oldestOfMost(owners) {
  const counts = new Map();
  for (const owner of owners.values()) counts.set(owner, (counts.get(owner) ?? 0) + 1);
  const most = Math.max(...counts.values());
  return [...owners.keys()].find((socket) => counts.get(owners.get(socket)) === most);
}

export class Sockets {
  #ctx;
  #admit;
  #answer;
  #wake;
  /** When the first token expires, in Unix ms: the object must be awake then. */
  endsMs = Infinity;
  /** The strangers, oldest first, each with its timer while it is silent. */
  #strangers = new Map();
  /** The known sockets with their principals, oldest first. A closed socket is in neither map, even if its peer does not know yet. */
  #principals = new Map();
  /** For each socket: a promise of its last frame's answer, and the bytes of all its frames that wait. */
  #waiting = new WeakMap();
  /** The bytes that wait on all sockets, counted by what the socket was when the frame came: known, or a stranger. */
  #known = { bytes: 0, max: ALL_WAITING_BYTES_MAX };
  #strange = { bytes: 0, max: WAITING_BYTES_MAX };

  /**
   * `admit(text, key)` resolves to `[asker, end in Unix ms or undefined]`, and `answer(key, asker, text)` to `[text]`. Both resolve to
   * `[close code, reason]` if the socket is to be closed. `wake()` sets the alarm.
   */
  constructor(ctx, admit, answer, wake) {
    this.#ctx = ctx;
    this.#admit = admit;
    this.#answer = answer;
    this.#wake = wake;
    // The platform lists the newest first.
    for (const socket of ctx.getWebSockets().reverse()) {
      const { asker, endsMs } = socket.deserializeAttachment() ?? {};
      if (asker === undefined) socket.close(...UNAVAILABLE);
      else if (isOpen(socket)) this.#know(socket, asker, endsMs);
    }
  }

  /** A socket becomes known. Makes room for it if there are too many. */
  #know(socket, asker, endsMs = Infinity) {
    this.endsMs = Math.min(this.endsMs, endsMs);
    // By principal and not by token: a principal may have many tokens.
    this.#principals.set(socket, asker.split("\n")[1]);
    if (this.#principals.size > SOCKETS_MAX) this.#close(oldestOfMost(this.#principals), UNAVAILABLE);
  }

  /** Opens a socket. Undefined if there are too many strangers and none is silent: all of them are being verified. */
  open(request) {
    if (this.#strangers.size >= STRANGERS_MAX && !this.#closeSilent()) return undefined;
    const { 0: client, 1: socket } = new WebSocketPair();
    this.#ctx.acceptWebSocket(socket);
    const address = (request.headers.get("cf-connecting-ip") ?? "").slice(0, ADDRESS_CHARS_MAX);
    socket.serializeAttachment({ key: request.headers.get("semel-key"), address });
    const late = () => this.#close(socket, UNAVAILABLE);
    this.#strangers.set(socket, setTimeout(late, FIRST_FRAME_MS));
    return new Response(null, { status: 101, webSocket: client });
  }

  /** Takes a frame. Resolves when it is answered. */
  message(socket, message) {
    if (!isOpen(socket)) return undefined;
    const waiting = this.#waiting.get(socket) ?? { last: Promise.resolve(), bytes: 0 };
    this.#waiting.set(socket, waiting);
    const bytes = Math.max(message.length ?? message.byteLength, FRAME_BYTES_MIN);
    const isStranger = this.#strangers.has(socket);
    const all = isStranger ? this.#strange : this.#known;
    const counted = isStranger && waiting.bytes + bytes <= STRANGER_BYTES ? 0 : bytes;
    if (waiting.bytes + bytes > WAITING_BYTES_MAX || all.bytes + counted > all.max) return this.#close(socket, [4429, "rate-limited"]);
    waiting.bytes += bytes;
    all.bytes += counted;
    waiting.last = waiting.last.then(async () => {
      const [answer, reason] = await this.#answerTo(socket, message);
      waiting.bytes -= bytes;
      all.bytes -= counted;
      if (!isOpen(socket)) return;
      try {
        if (reason !== undefined) this.#close(socket, [answer, reason]);
        else if (answer !== undefined) socket.send(answer);
      } catch (error) {
        // The peer is gone, and will ask again for what it needs. The chain and the counts must go on.
        note("error", `a frame's answer was not sent: ${error}`);
      }
    });
    return waiting.last;
  }

  /** Resolves to `[text]`, `[close code, reason]` or `[]`. Never rejects, so that the next frame has its turn. */
  async #answerTo(socket, message) {
    if (!isOpen(socket)) return [];
    if (typeof message !== "string") return [4400, "body-invalid"];
    try {
      const { key, asker } = socket.deserializeAttachment();
      return await (asker === undefined ? this.#meet(socket, message, key) : this.#answer(key, asker, message));
    } catch (error) {
      note("error", `a frame failed: ${error}`);
      return UNAVAILABLE;
    }
  }

  /** Verifies the first frame. */
  async #meet(socket, message, key) {
    // It came in time; the socket is a stranger until the token is verified.
    clearTimeout(this.#strangers.get(socket));
    if (this.#strangers.has(socket)) this.#strangers.set(socket, undefined);
    // Whatever the result, it is no stranger any more. If it is refused, its peer may never confirm the close, and must not take up a place.
    const [asker, endsMs] = await this.#admit(message, key).finally(() => this.closed(socket));
    if (typeof asker === "number") return [asker, endsMs];
    socket.serializeAttachment({ key, asker, endsMs });
    // The client may have left meanwhile.
    if (isOpen(socket)) this.#know(socket, asker, endsMs);
    this.#wake();
    return [];
  }

  /**
   * Closes a silent stranger, and returns it; undefined if there is none. It is the oldest of the network that has most, so that a client that opens many
   * loses its own. Its peer may try again: it was not refused.
   */
  #closeSilent() {
    const silent = new Map();
    for (const [socket, timer] of this.#strangers) if (timer !== undefined) silent.set(socket, networkOf(socket.deserializeAttachment().address));
    const oldest = oldestOfMost(silent);
    if (oldest) this.#close(oldest, UNAVAILABLE);
    return oldest;
  }

  #close(socket, why) {
    this.closed(socket);
    socket.close(...why);
  }

  /** Forgets a socket: it takes no room any more. */
  closed(socket) {
    clearTimeout(this.#strangers.get(socket));
    this.#strangers.delete(socket);
    this.#principals.delete(socket);
  }

  /** The peer has closed the socket. Closing this side too ends the connection. */
  left(socket) {
    this.closed(socket);
    socket.close();
  }

  /** Closes sockets whose token has expired. */
  end(nowMs) {
    this.endsMs = Infinity;
    for (const socket of this.#principals.keys()) {
      const { endsMs = Infinity } = socket.deserializeAttachment();
      if (endsMs <= nowMs) this.#close(socket, UNAUTHORIZED);
      else this.endsMs = Math.min(this.endsMs, endsMs);
    }
  }
}
