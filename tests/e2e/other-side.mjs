// An API behind Semel. It makes orders, remembers what came, and fails when told to.
//
// Invariant: what it has done is counted here, whatever was heard of it.

import { once } from "node:events";
import { createServer } from "node:http";
import { createServer as createListener } from "node:net";

/** Starts it. `after` is node:test's. `knowsIds`: it makes an order once for each `Idempotency-Key`, and repeats the first answer. */
export async function otherSide(after, { knowsIds = false } = {}) {
  const side = new OtherSide(knowsIds);
  await side.listen();
  after(() => side.close());
  return side;
}

class OtherSide {
  /** How often each order was made, by its ref. */
  made = new Map();
  /** The requests that arrived complete: `{ method, url, headers, body }`. */
  requests = [];
  /** What goes wrong with the next changes: for each, a function of the answer, its status and its body, called after the effect. */
  trouble = [];
  /** For each of the next changes, a function that gets what lets the change have its effect. */
  heldChanges = [];
  /** For each of the next reads, a function that gets what lets the read be answered. */
  heldReads = [];
  /** Called at each connection. If it returns false, nothing is read from the connection. */
  onConnection = () => true;
  #knowsIds;
  #answers = new Map();
  #server;
  #sockets = new Set();
  #port = 0;

  constructor(knowsIds) {
    this.#knowsIds = knowsIds;
  }

  get url() {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** How many changes have arrived. */
  get changes() {
    return this.requests.filter(({ method }) => method !== "GET").length;
  }

  async listen() {
    const http = createServer((request, response) => this.#serve(request, response));
    // The sockets start paused, because HTTP reads a socket that it has once got, even if that is paused at once.
    this.#server = createListener({ pauseOnConnect: true }, (socket) => {
      this.#sockets.add(socket);
      socket.on("error", () => {}).on("close", () => this.#sockets.delete(socket));
      if (!this.onConnection(socket)) return;
      http.emit("connection", socket);
      socket.resume();
    });
    this.#server.listen(this.#port, "127.0.0.1");
    await once(this.#server, "listening");
    this.#port = this.#server.address().port;
  }

  /** Stops listening, and ends all connections. */
  async close() {
    if (!this.#server.listening) return;
    const closed = once(this.#server, "close");
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  async #serve(request, response) {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const { method, url, headers } = request;
    const body = Buffer.concat(chunks).toString();
    this.requests.push({ method, url, headers, body });
    if (method === "GET") {
      const hold = this.heldReads.shift();
      if (hold) await new Promise(hold);
      return this.#find(url, headers, response);
    }
    const holdChange = this.heldChanges.shift();
    if (holdChange) await new Promise(holdChange);
    const id = headers["idempotency-key"];
    const known = this.#knowsIds ? this.#answers.get(id) : undefined;
    const made = known ?? this.#make(JSON.parse(body || "{}"));
    this.#answers.set(id, made);
    const trouble = this.trouble.shift();
    if (trouble) return trouble(response, 201, made);
    this.#answer(response, 201, made);
  }

  #make({ ref }) {
    const times = (this.made.get(ref) ?? 0) + 1;
    this.made.set(ref, times);
    return JSON.stringify({ ref, times });
  }

  #find(url, headers, response) {
    const isConditional = Object.keys(headers).some((name) => name.startsWith("if-") || name === "range");
    if (isConditional) return this.#answer(response, 412, "{}");
    const ref = decodeURIComponent(url.split("/").at(-1));
    const times = this.made.get(ref);
    if (times === undefined) this.#answer(response, 404, "{}");
    else this.#answer(response, 200, JSON.stringify({ ref, times }));
  }

  #answer(response, status, body) {
    response.writeHead(status, { "content-type": "application/json", "x-from": "the other side", "set-cookie": "a=b" });
    response.end(body);
  }
}
