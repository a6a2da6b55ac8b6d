// The sockets of a key's object: who is on each, and its frames in order. They hibernate: what is kept of one is with the platform.
//
// Invariants:
// - Nothing of a frame runs before it is known who sends it, nor after the socket was closed from here.
// - A frame is answered before the next of its socket is begun. The platform holds every answer back until its commit is durable.
// - Who says nothing was not refused: the network may hold the first frame up.
// - What waits has a bound, in time for who does not say who it is, in bytes for who sends faster than is answered. Those who have
//   yet to say who they are take no room from those who have, nor from each other what a first frame and a little more needs.

import { note } from "./module.js";

/** A socket says so soon who is on it; of more that have not yet than so many, the oldest silent one of whoever has most makes room. */
const FIRST_FRAME_MS = 10_000;
const STRANGERS_MAX = 100;
/** On so many it is known who sends; of more, the oldest of the principal who has most makes room. */
const SOCKETS_MAX = 1_000;
/** The platform keeps 16 KiB with a socket; without a platform that tells addresses, a client may say any. */
const ADDRESS_CHARS_MAX = 64;
/** Of one socket, so many bytes wait to be answered, each frame counted as that much at least. */
const WAITING_BYTES_MAX = 8 << 20;
/** And of all sockets of the key; but of all together on which it is not known yet who sends, as many as of one. */
const ALL_WAITING_BYTES_MAX = 32 << 20;
/** These are not counted, on each of them. */
const STRANGER_BYTES = 64 << 10;
const FRAME_BYTES_MIN = 1 << 10;

const isOpen = (socket) => socket.readyState === 1;
const UNAUTHORIZED = [4401, "unauthorized"];
export const UNAVAILABLE = [4503, "unavailable"];

/** Of IPv6 the first 64 bits, as the rates have it: who has an address there has them all. */
function networkOf(address) {
  if (address.includes(".")) return address;
  const groups = (text) => text.split(":").filter(Boolean);
  const leftOut = Math.max(8 - groups(address).length, 0);
  return groups(address.replace("::", `:${"0:".repeat(leftOut)}`))
    .slice(0, 4)
    .join(":");
}

/** The first of whoever has most of the sockets, whose owners these are; undefined if there are none. */
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
  /** When the first token ends, in Unix ms: the object has to be awake. */
  endsMs = Infinity;
  /** Those who have yet to say who they are, with the timers of those who are silent, the oldest first. */
  #strangers = new Map();
  /** The principals of the others, the oldest first. What was closed is in neither, though its peer may have yet to hear of it. */
  #principals = new Map();
  /** Of a socket: the frame that comes last, and the bytes of all that wait. */
  #waiting = new WeakMap();
  /** And of all sockets, by whether it was known who sends when they came. */
  #known = { bytes: 0, max: ALL_WAITING_BYTES_MAX };
  #strange = { bytes: 0, max: WAITING_BYTES_MAX };

  /**
   * `admit(text, key)` resolves to `[asker, end in ms or undefined]`, `answer(key, asker, text)` to `[text]`, both to
   * `[close code, reason]` of a socket that is to be closed; `wake()` sees to the alarm.
   */
  constructor(ctx, admit, answer, wake) {
    this.#ctx = ctx;
    this.#admit = admit;
    this.#answer = answer;
    this.#wake = wake;
    // The platform has the newest first.
    for (const socket of ctx.getWebSockets().reverse()) {
      const { asker, endsMs } = socket.deserializeAttachment() ?? {};
      if (asker === undefined) socket.close(...UNAVAILABLE);
      else if (isOpen(socket)) this.#know(socket, asker, endsMs);
    }
  }

  /** It is known who sends, and there is room for that. */
  #know(socket, asker, endsMs = Infinity) {
    this.endsMs = Math.min(this.endsMs, endsMs);
    // Many tokens may name one principal.
    this.#principals.set(socket, asker.split("\n")[1]);
    if (this.#principals.size > SOCKETS_MAX) this.#close(oldestOfMost(this.#principals), UNAVAILABLE);
  }

  /** Opens one; undefined where too many are open on which somebody is being asked for, and none is silent. */
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

  /** Takes a frame; resolves when it is answered. */
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
        // Its peer has gone, and asks again for what it needs. The next frame has its turn, and what waits is counted on.
        note("error", `a frame's answer was not sent: ${error}`);
      }
    });
    return waiting.last;
  }

  /** `[text]`, `[close code, reason]`, or nothing. Whatever fails, the next frame has its turn. */
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

  /** The first frame. */
  async #meet(socket, message, key) {
    // It is in time, and still a stranger.
    clearTimeout(this.#strangers.get(socket));
    if (this.#strangers.has(socket)) this.#strangers.set(socket, undefined);
    // Whatever comes of it, it is a stranger no more: its peer may never say that it has heard that it is closed.
    const [asker, endsMs] = await this.#admit(message, key).finally(() => this.closed(socket));
    if (typeof asker === "number") return [asker, endsMs];
    socket.serializeAttachment({ key, asker, endsMs });
    // It may have gone meanwhile.
    if (isOpen(socket)) this.#know(socket, asker, endsMs);
    this.#wake();
    return [];
  }

  /**
   * Closes one that nobody has said anything on; which, if there was one. It is the oldest of the network that has most of them, so that who
   * opens many closes their own. Its peer may try again: it was not refused.
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

  /** A socket is no longer waited for, and takes no room. */
  closed(socket) {
    clearTimeout(this.#strangers.get(socket));
    this.#strangers.delete(socket);
    this.#principals.delete(socket);
  }

  /** Its peer has closed it, and waits to hear that it is: the connection stays open until then. */
  left(socket) {
    this.closed(socket);
    socket.close();
  }

  /** Closes those whose token has ended. */
  end(nowMs) {
    this.endsMs = Infinity;
    for (const socket of this.#principals.keys()) {
      const { endsMs = Infinity } = socket.deserializeAttachment();
      if (endsMs <= nowMs) this.#close(socket, UNAUTHORIZED);
      else this.endsMs = Math.min(this.endsMs, endsMs);
    }
  }
}
