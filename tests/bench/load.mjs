// A load on one server: so many connections, each with one request on its way at a time.
//
// Requests are prepared bytes on plain sockets, so that the client's own cost, which both sides of a ratio bear, is small.

import { randomUUID } from "node:crypto";
import { connect } from "node:net";

const END_OF_HEAD = Buffer.from("\r\n\r\n");

/** A request to deposit 1, under a new id each time, with the headers that an SDK sends. */
export const deposit = (path) => change(path, '{"amount":1}');

/** The same of any change. */
export function change(path, body) {
  return (ack) => {
    const id = randomUUID();
    const now = Date.now();
    const acks = ack ? `Semel-Ack: "${ack}";until=${now}\r\n` : "";
    const times = `Semel-First-Sent: @${Math.floor(now / 1000)}\r\nSemel-Deadline: ${now + 10_000}\r\n`;
    const head = `POST ${path} HTTP/1.1\r\nHost: bench\r\nIdempotency-Key: ${id}\r\n${times}${acks}Content-Length: ${body.length}\r\n\r\n`;
    return { id, bytes: Buffer.from(head + body) };
  };
}

/** Sends `requests` over `connections`; resolves to requests a second. Each acknowledges the one before it. */
export async function throughput(url, { connections, requests, next }) {
  const { hostname, port } = new URL(url);
  let left = requests;
  const started = process.hrtime.bigint();
  await Promise.all(Array.from({ length: connections }, () => connection(hostname, Number(port), () => (left-- > 0 ? next : undefined))));
  return requests / (Number(process.hrtime.bigint() - started) / 1e9);
}

function connection(host, port, more) {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, noDelay: true });
    let received = Buffer.alloc(0);
    let previous;
    const send = () => {
      const next = more();
      if (!next) return socket.end(resolve);
      const { id, bytes } = next(previous);
      previous = id;
      socket.write(bytes);
    };
    socket.setTimeout(20_000, () => socket.destroy(new Error("no answer")));
    socket.on("connect", send);
    socket.on("error", reject);
    socket.on("data", (chunk) => {
      received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
      const end = received.indexOf(END_OF_HEAD);
      if (end < 0) return;
      const head = received.toString("latin1", 0, end);
      const length = Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1]);
      if (!/^HTTP\/1\.1 20[01] /.test(head) || Number.isNaN(length)) return socket.destroy(new Error(`unexpected answer: ${head}`));
      if (received.length < end + END_OF_HEAD.length + length) return;
      received = Buffer.alloc(0);
      send();
    });
  });
}
