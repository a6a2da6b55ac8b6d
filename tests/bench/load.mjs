// Loads one server: over a number of connections, each with one request under way at a time, for a time or a number of requests.
//
// Requests are prepared bytes on plain sockets, so that the client's own cost, which both sides of a ratio bear, is small.

import { randomUUID } from "node:crypto";
import { connect } from "node:net";

const END_OF_HEAD = Buffer.from("\r\n\r\n");
const ANSWER_MS_MAX = 20_000;
/**
 * How long a server is loaded before it is measured, in rounds. V8 compiles code again and better for some ten thousand requests: the module's
 * functions and those of JavaScript.
 */
export const WARM_UP_ROUNDS = 30;
const WARM_UP_CONNECTIONS = 16;
/** How long an attempt may be under way: the SDK's timeout. */
export const DEADLINE_MS = 10_000;

/** An id as the SDK makes it: a UUID of version 7. */
export function requestId() {
  const time = Date.now().toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}

/** Makes requests that deposit 1, each with a new id, and with the headers that an SDK sends. */
export const deposit = (path, idOf) => change(path, '{"amount":1}', idOf);

/** The same for any change. */
export const change =
  (path, body, idOf = requestId) =>
  (ack) =>
    attempt(path, body, idOf(), Math.floor(Date.now() / 1000), ack);

/** Makes attempts at the same change. All but the first are replayed. */
export function repeated(path, body = '{"amount":1}') {
  const [id, firstSentS] = [requestId(), Math.floor(Date.now() / 1000)];
  return () => attempt(path, body, id, firstSentS);
}

function attempt(path, body, id, firstSentS, ack) {
  const now = Date.now();
  const acks = ack ? `Semel-Ack: "${ack}";until=${now}\r\n` : "";
  const times = `Semel-First-Sent: @${firstSentS}\r\nSemel-Deadline: ${now + DEADLINE_MS}\r\n`;
  const head = `POST ${path} HTTP/1.1\r\nHost: bench\r\nIdempotency-Key: ${id}\r\n${times}${acks}Content-Length: ${body.length}\r\n\r\n`;
  return { id, bytes: Buffer.from(head + body) };
}

/** Sends `requests` over `connections`. Each request acknowledges the one before it. Resolves to requests a second. */
export const throughput = async (url, { connections, requests, next }) => (await load(url, { connections, requests, of: () => next })).rate;

/** Loads a server until its code is compiled. `forMs`: the length of a round. */
export const warmUp = (url, forMs, next) => load(url, { connections: WARM_UP_CONNECTIONS, forMs: WARM_UP_ROUNDS * forMs, of: () => next });

/**
 * Sends what `of(connection)` makes over each of `connections`, for `forMs`, or until there were `requests`. Resolves to `rate`, in requests a second,
 * and to `took`: for each request how many ms it took, and when its answer came.
 */
export async function load(url, { connections, forMs = Infinity, requests = Infinity, of }) {
  const startedMs = performance.now();
  let left = requests;
  const took = [];
  const one = async (number) => {
    const next = of(number);
    const line = await Line.to(url);
    let id;
    // Sends one request at least, however short the time is.
    for (let isFirst = true; left > 0 && (isFirst || performance.now() - startedMs < forMs); isFirst = false) {
      left -= 1;
      const request = next(id);
      ({ id } = request);
      const sentMs = performance.now();
      await line.ask(request.bytes);
      const answeredMs = performance.now();
      took.push({ ms: answeredMs - sentMs, atMs: answeredMs - startedMs });
    }
    line.close();
  };
  await Promise.all(Array.from({ length: connections }, (_, number) => one(number)));
  return { rate: (took.length * 1000) / (performance.now() - startedMs), took };
}

/** A connection that is kept alive, with one request under way at a time. */
export class Line {
  #socket;
  #received = Buffer.alloc(0);
  #waiting;
  #broken;

  constructor(socket) {
    this.#socket = socket;
    socket.setTimeout(ANSWER_MS_MAX, () => socket.destroy(new Error("no answer")));
    socket.on("data", (chunk) => this.#take(chunk));
    socket.on("error", (error) => (this.#broken = error));
    socket.on("close", () => this.#waiting?.reject(this.#broken ?? new Error("the server has closed the connection")));
  }

  static to(url) {
    const { hostname: host, port } = new URL(url);
    return new Promise((resolve, reject) => {
      const socket = connect({ host, port: Number(port), noDelay: true });
      socket.once("error", reject);
      socket.once("connect", () => {
        socket.off("error", reject);
        resolve(new Line(socket));
      });
    });
  }

  /** Sends a request. Resolves once its answer is complete. The answer must be a success. */
  ask(bytes) {
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      if (this.#socket.destroyed) return reject(this.#broken ?? new Error("the connection is closed"));
      this.#socket.write(bytes);
    });
  }

  close() {
    this.#socket.end();
  }

  #take(chunk) {
    const received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
    this.#received = received;
    const end = received.indexOf(END_OF_HEAD);
    if (end < 0) return;
    const head = received.toString("latin1", 0, end);
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1]);
    if (!/^HTTP\/1\.1 20[01] /.test(head) || Number.isNaN(length)) return this.#socket.destroy(new Error(`unexpected answer: ${received.toString("latin1")}`));
    if (received.length < end + END_OF_HEAD.length + length) return;
    this.#received = Buffer.alloc(0);
    this.#waiting.resolve();
  }
}
