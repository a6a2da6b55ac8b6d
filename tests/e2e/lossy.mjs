// A proxy between a client and a worker that loses requests and answers.
//
// Invariants:
// - All randomness comes from one seed, and every request draws equally many numbers. So the faults depend only on the order of arrival.
// - To lose something is to break the connection to the client. The proxy itself never sends it again.
// - No connection is used twice. On a connection that it has used before, a browser resends on its own, which would hide faults.

import { setMaxListeners } from "node:events";
import { createServer, request as send } from "node:http";
import { setTimeout as delay } from "node:timers/promises";

const HOP_BY_HOP = new Set(["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"]);

/**
 * Starts a proxy to the worker at `target()`, which is called for every request, because a worker that is killed comes back on another port. The other
 * members are the initial `settings`:
 * - `loseRequests`, `loseAnswers`, `duplicate`: from 0 to 1. An answer can only be lost if its request was not
 * - `delayMsMax`: the longest delay of a request, and of a duplicate
 * - `spare`: gets a request, and returns whether it is spared from faults
 * - `instead`: gets a request, and may return `{ status, headers, body }` to answer it without the worker
 * - `hold`: gets a request, and may return a promise. A request that is not lost waits for it before it goes to the worker. See `gate`
 */
export async function startLossy({ target, seed, ...faults }) {
  const proxy = new Lossy(target, seed, faults);
  await proxy.listen();
  return proxy;
}

class Lossy {
  settings = { loseRequests: 0, loseAnswers: 0, duplicate: 0, delayMsMax: 0, spare: () => false, instead: () => undefined, hold: () => undefined };
  counts = { requests: 0, instead: 0, lostRequests: 0, forwarded: 0, duplicates: 0, unreachable: 0, lostAnswers: 0, answered: 0 };
  /**
   * What the proxy has seen of each `Idempotency-Key`: `{ method, path, attempts, lostAnswers, outcome }`. `outcome`: an answer with it got through.
   */
  changes = new Map();
  #target;
  #random;
  #server = createServer((request, response) => this.#track(this.#handle(request, response)));
  #closing = new AbortController();
  #running = new Set();

  constructor(target, seed, faults) {
    this.#target = target;
    this.#random = randomOf(seed);
    Object.assign(this.settings, faults);
    setMaxListeners(0, this.#closing.signal);
  }

  async listen() {
    await new Promise((resolve, reject) => this.#server.on("error", reject).listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${this.#server.address().port}`;
  }

  /** Lets everything through from now on. */
  calm() {
    Object.assign(this.settings, { loseRequests: 0, loseAnswers: 0, duplicate: 0, delayMsMax: 0 });
  }

  /** Resolves once nothing is on its way any more, duplicates included. */
  async close() {
    this.#closing.abort();
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
    await Promise.allSettled(this.#running);
  }

  #track(promise) {
    const settled = promise.catch(() => {}).finally(() => this.#running.delete(settled));
    this.#running.add(settled);
  }

  async #handle(request, response) {
    this.counts.requests += 1;
    const change = this.#change(request);
    const fate = this.#fate(request);
    const breakOff = () => request.socket.destroy();
    const instead = this.settings.instead(request);
    if (instead) {
      this.counts.instead += 1;
      await bodyOf(request);
      return response.writeHead(instead.status, { ...instead.headers, connection: "close" }).end(instead.body ?? "");
    }
    if (fate.loseRequest) {
      this.counts.lostRequests += 1;
      return breakOff();
    }
    const body = await bodyOf(request);
    const held = this.settings.hold(request);
    if (held) await this.#unlessClosed(held);
    if (fate.duplicate) {
      this.counts.duplicates += 1;
      this.#track(this.#forward(request, body, fate.duplicateMs));
    }
    let answer;
    try {
      answer = await this.#forward(request, body, fate.delayMs);
    } catch {
      this.counts.unreachable += 1;
      return breakOff();
    }
    this.counts.forwarded += 1;
    if (fate.loseAnswer) {
      this.counts.lostAnswers += 1;
      if (change) change.lostAnswers += 1;
      return breakOff();
    }
    this.counts.answered += 1;
    if (change && ["executed", "replayed"].includes(answer.semel)) change.outcome = true;
    response.writeHead(answer.status, answer.headers).end(answer.body);
  }

  #change(request) {
    const id = request.headers["idempotency-key"]?.replaceAll('"', "");
    if (id === undefined) return undefined;
    const change = this.changes.get(id) ?? { method: request.method, path: request.url, attempts: 0, lostAnswers: 0, outcome: false };
    change.attempts += 1;
    this.changes.set(id, change);
    return change;
  }

  #fate(request) {
    const [first, second, third, fourth, fifth] = [1, 2, 3, 4, 5].map(this.#random);
    const { loseRequests, loseAnswers, duplicate, delayMsMax, spare } = this.settings;
    const spared = spare(request);
    return {
      loseRequest: !spared && first < loseRequests,
      loseAnswer: !spared && second < loseAnswers,
      duplicate: !spared && third < duplicate,
      delayMs: spared ? 0 : fourth * delayMsMax,
      duplicateMs: fifth * delayMsMax,
    };
  }

  /** Settles as the promise does; rejects once the proxy is closed. */
  #unlessClosed(promise) {
    const { signal } = this.#closing;
    return Promise.race([promise, new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }))]);
  }

  /** Resolves to the whole answer. If the client goes away, that changes nothing: its request is on its way. */
  async #forward(request, body, delayMs) {
    const { signal } = this.#closing;
    if (delayMs > 0) await delay(delayMs, undefined, { signal });
    const { hostname, port, host } = new URL(this.#target());
    const headers = onward(request.rawHeaders, ["host", "content-length"]);
    headers.push("host", host, "connection", "close");
    if (request.headers["content-length"] !== undefined || body.length > 0) headers.push("content-length", String(body.length));
    const answer = await new Promise((resolve, reject) => {
      send({ hostname, port, method: request.method, path: request.url, headers, signal, agent: false }, resolve).on("error", reject).end(body);
    });
    return {
      status: answer.statusCode,
      headers: [...onward(answer.rawHeaders, []), "connection", "close"],
      semel: answer.headers["semel-status"],
      body: await bodyOf(answer),
    };
  }
}

/**
 * A gate for `hold`, at which requests that `matches` wait until it is opened. `held`: the URLs of those that came. A request at the gate is in the
 * network: past the client, and not yet at the worker. So a test can keep a request there for as long as it likes.
 */
export function gate(matches) {
  const held = [];
  let open;
  const opened = new Promise((resolve) => (open = resolve));
  const hold = (request) => {
    if (!matches(request)) return undefined;
    held.push(request.url);
    return opened;
  };
  return { held, open, hold };
}

/** Resolves to what `condition` returns, once that is truthy. Rejects after `timeoutMs`. */
export async function until(condition, what, timeoutMs = 20_000) {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const met = await condition();
    if (met) return met;
    if (Date.now() > deadline) throw new Error(`in ${timeoutMs} ms it did not come to this: ${what}`);
    await delay(20);
  }
}

/** Resolves once the ledger at `server` has no outcome of these `changes` any more, because every one was acknowledged. */
export async function acknowledged(server, changes) {
  const open = [...changes];
  const statusOf = async ([id, { path }]) => {
    const account = /^\/accounts\/([^/]+)\//.exec(path)[1];
    return (await server.send("GET", `/semel/v1/keys/accounts%2F${account}/outcomes/${id}`)).semel;
  };
  const next = async () => {
    while (open.length > 0 && (await statusOf(open[0])) === "acknowledged") open.shift();
    return open.length === 0;
  };
  await until(next, "all outcomes are acknowledged").catch(async ({ message }) => {
    throw new Error(`${message}: ${await statusOf(open[0])} is ${JSON.stringify(open[0])}, with ${open.length - 1} others to come`);
  });
}

/** Names and values of headers that may be passed on, without `others`. */
function onward(rawHeaders, others) {
  const kept = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index].toLowerCase();
    if (!HOP_BY_HOP.has(name) && !others.includes(name)) kept.push(rawHeaders[index], rawHeaders[index + 1]);
  }
  return kept;
}

async function bodyOf(message) {
  const chunks = [];
  for await (const chunk of message) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Mulberry32: a generator of numbers from 0 to 1 that gives the same ones for the same seed. */
export function randomOf(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
