// The origin of one library's page: serves its files, and passes requests to its server, with the scripted faults.
//
// Invariants:
// - Every library meets the same faults: they happen to HTTP requests, and are made here.
// - A request that carries several orders meets the first of their fates that is a fault.
// - No connection is used twice. On a connection that it has used before, a browser resends on its own, which would add attempts.
import { createServer } from "node:http";
import { fateOf } from "./orders.mjs";

/**
 * Starts an origin. `files`: `{ type, content }` by path. `backend`: `ordersOf(path, body)` returns the orders that a request carries, and
 * `answer(request, body)` resolves to `{ status, headers, body }`.
 */
export async function startOrigin({ files, backend }) {
  const origin = new Origin(files, backend);
  await origin.listen();
  return origin;
}

class Origin {
  /** How often each fate was dealt. */
  dealt = {};
  /** How many requests with orders there were. */
  attempts = 0;
  /** Whether the orders that are to hang get no answer. */
  hangs = false;
  /** Whether nothing is answered at all. */
  isDown = false;
  #files;
  #backend;
  #seen = new Map();
  #held = new Set();
  #server = createServer((request, response) => this.#handle(request, response).catch(() => request.socket.destroy()));

  constructor(files, backend) {
    this.#files = files;
    this.#backend = backend;
  }

  async listen() {
    await new Promise((resolve, reject) => this.#server.on("error", reject).listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${this.#server.address().port}`;
  }

  /** Ends what hangs: those attempts are lost, and later ones pass. */
  release() {
    this.hangs = false;
    for (const socket of this.#held) socket.destroy();
    this.#held.clear();
  }

  async close() {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  async #handle(request, response) {
    if (this.isDown) return request.socket.destroy();
    const file = request.method === "GET" ? this.#files[request.url] : undefined;
    if (file) return send(response, 200, { "content-type": file.type, "cache-control": "no-store" }, file.content);
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const fate = this.#fate(request.method === "POST" ? this.#backend.ordersOf(request.url, body) : []);
    if (fate === "lose-request") return request.socket.destroy();
    if (fate === "hang") return void this.#held.add(request.socket);
    if (fate === "unavailable") return send(response, 503, { "content-type": "text/plain" }, "try again later");
    const answer = await this.#backend.answer(request, body);
    if (fate === "lose-answer") return request.socket.destroy();
    if (fate === "hang-after") return void this.#held.add(request.socket);
    send(response, answer.status, answer.headers, answer.body);
  }

  #fate(orders) {
    if (orders.length === 0) return "pass";
    this.attempts += 1;
    const fates = orders.map((n) => {
      const attempt = (this.#seen.get(n) ?? 0) + 1;
      this.#seen.set(n, attempt);
      return fateOf(n, attempt, this.hangs);
    });
    const fate = fates.find((one) => one !== "pass") ?? "pass";
    this.dealt[fate] = (this.dealt[fate] ?? 0) + 1;
    return fate;
  }
}

function send(response, status, headers, body) {
  response.writeHead(status, { ...headers, connection: "close" }).end(body);
}
