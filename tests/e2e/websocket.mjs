// A WebSocket over plain TCP, for tests: it sends any header and any bytes, and reads only while a test lets it.

import { randomBytes } from "node:crypto";
import { connect } from "node:net";

const TEXT = 1;
const BINARY = 2;
const CLOSE = 8;
const WAIT_MS = 20_000;

/** Asks for a socket. Resolves to `{ status, headers, socket }`; `socket` is only there if the status is 101. */
export function open(url, path, headers = {}) {
  const { hostname, port, host } = new URL(url);
  const all = { host, connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13", "sec-websocket-key": randomBytes(16).toString("base64"), ...headers };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return new Promise((resolve, reject) => {
    const tcp = connect({ host: hostname, port: Number(port) });
    let head = Buffer.alloc(0);
    const take = (chunk) => {
      head = Buffer.concat([head, chunk]);
      const end = head.indexOf("\r\n\r\n");
      if (end < 0) return;
      tcp.off("data", take);
      const [first, ...rest] = head.subarray(0, end).toString("latin1").split("\r\n");
      const status = Number(first.split(" ")[1]);
      const answered = Object.fromEntries(rest.map((line) => [line.slice(0, line.indexOf(":")).toLowerCase(), line.slice(line.indexOf(":") + 1).trim()]));
      if (status !== 101) tcp.destroy();
      resolve({ status, headers: answered, socket: status === 101 ? new Socket(tcp, head.subarray(end + 4)) : undefined });
    };
    tcp.on("data", take);
    tcp.on("error", reject);
    // After the answer, this changes nothing any more.
    tcp.on("close", () => reject(new Error("the connection was closed before the answer")));
    tcp.on("connect", () => tcp.write(`GET ${path} HTTP/1.1\r\n${lines.join("")}\r\n`));
  });
}

class Socket {
  #tcp;
  #bytes = Buffer.alloc(0);
  #texts = [];
  #waiting = [];
  /** Resolves to `[code, reason]`; the code is 1006 if the connection ended without a close frame. */
  closed;
  #close;
  /** Why nothing comes any more, once it is closed. */
  #error;

  constructor(tcp, rest) {
    this.#tcp = tcp;
    this.closed = new Promise((resolve) => (this.#close = resolve));
    tcp.on("data", (chunk) => this.#read(chunk));
    tcp.on("close", () => this.#end(1006, ""));
    this.#read(rest);
  }

  #end(code, reason) {
    this.#close([code, reason]);
    this.#error ??= new Error(`the socket was closed: ${code} ${reason}`);
    for (const { reject } of this.#waiting.splice(0)) reject(this.#error);
  }

  #read(chunk) {
    this.#bytes = Buffer.concat([this.#bytes, chunk]);
    for (;;) {
      const bytes = this.#bytes;
      if (bytes.length < 2) return;
      let length = bytes[1] & 127;
      let at = 2;
      if (length === 126) [length, at] = bytes.length < 4 ? [Infinity, 4] : [bytes.readUInt16BE(2), 4];
      else if (length === 127) [length, at] = bytes.length < 10 ? [Infinity, 10] : [Number(bytes.readBigUInt64BE(2)), 10];
      if (bytes.length < at + length) return;
      const payload = bytes.subarray(at, at + length);
      this.#bytes = bytes.subarray(at + length);
      const opcode = bytes[0] & 15;
      if (opcode === TEXT) this.#take(payload.toString("utf8"));
      if (opcode === CLOSE) this.#end(payload.length < 2 ? 1005 : payload.readUInt16BE(0), payload.subarray(2).toString("utf8"));
    }
  }

  #take(text) {
    const waiting = this.#waiting.shift();
    if (waiting === undefined) this.#texts.push(text);
    else waiting.resolve(text);
  }

  /** Sends text, or bytes as a binary frame. */
  send(message) {
    const payload = Buffer.from(message);
    const head = Buffer.alloc(14);
    head[0] = 0x80 | (typeof message === "string" ? TEXT : BINARY);
    let at = 2;
    if (payload.length < 126) head[1] = payload.length;
    else if (payload.length < 65_536) [head[1], at] = [126, head.writeUInt16BE(payload.length, 2)];
    else [head[1], at] = [127, head.writeBigUInt64BE(BigInt(payload.length), 2)];
    head[1] |= 0x80;
    // The mask is zero: it is present, as it must be, but changes nothing.
    this.#tcp.write(Buffer.concat([head.subarray(0, at + 4), payload]));
  }

  /** Sends bytes that are no frame. */
  raw(bytes) {
    this.#tcp.write(bytes);
  }

  /** Resolves to the next text. Rejects if the socket was closed, even before this call. */
  next() {
    if (this.#texts.length > 0) return Promise.resolve(this.#texts.shift());
    if (this.#error !== undefined) return Promise.reject(this.#error);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error("no answer")), WAIT_MS);
      const end = (settle) => (value) => {
        clearTimeout(timer);
        settle(value);
      };
      this.#waiting.push({ resolve: end(resolve), reject: end(reject) });
    });
  }

  /** Reads nothing until `resume`. */
  pause() {
    this.#tcp.pause();
  }

  resume() {
    this.#tcp.resume();
  }

  /** Ends the connection without a close frame. */
  destroy() {
    this.#tcp.destroy();
  }
}
