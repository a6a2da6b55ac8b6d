// A TCP proxy between the clients and a workerd that comes and goes. It cuts, truncates, stalls and duplicates. It relays WebSockets with the same
// faults.
//
// Invariants:
// - What happens to a connection follows from one seed and from the order in which requests arrive, and every connection draws equally many numbers.
//   The order
//   depends on the machine.
// - It parses no more than it needs to find where a request ends. Apart from one header (see `closing`), bytes pass unchanged, or not at all.
// - What it has let go is on its way: a client that leaves takes nothing back.

import { setMaxListeners } from "node:events";
import { connect, createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { changesIn, closing, isUpgrade, messageIn, statusesIn } from "./http.mjs";
import { stream } from "./random.mjs";
import { relay } from "./relay.mjs";

/** Every other faulty answer breaks this near to the end of its head, where a client fails that reads less than the whole answer. */
const NEAR_BYTES = 40;
const STALL_MS = [50, 4_000];
const DUPLICATE_MS = [0, 3_000];

/** The shares of connections that suffer each fault, from 0 to 1. A connection suffers at most one of the first three. */
export const ROUGH = { cut: 0.2, truncate: 0.15, stall: 0.12, duplicate: 0.12 };
/** As rough, but without waiting. */
export const BRISK = { ...ROUGH, stall: 0 };
export const CALM = { cut: 0, truncate: 0, stall: 0, duplicate: 0 };

/** The counter of each fault, by what it hit. */
const COUNTED = {
  request: { cut: "requestsCut", truncate: "requestsTruncated", stall: "requestsStalled" },
  answer: { cut: "answersCut", truncate: "answersTruncated", stall: "answersStalled" },
};
const NO_FAULTS = Object.fromEntries(Object.values(COUNTED).flatMap(Object.values).map((name) => [name, 0]));

/** Starts a proxy. `target()` is called for every connection, and returns the address, `{ hostname, port }`; undefined while there is no server. */
export async function startProxy({ target, seed, shares = ROUGH }) {
  const proxy = new Proxy(target, stream(seed, "proxy"), shares);
  await proxy.listen();
  return proxy;
}

class Proxy {
  counts = { requests: 0, ...NO_FAULTS, duplicates: 0, unreachable: 0, whole: 0, batches: 0, sockets: 0, socketsCut: 0, socketsTruncated: 0, socketsStalled: 0 };
  /**
   * By the number of a deposit: `{ ids, heard }`, its request ids, and the `Semel-Status` of the answers that passed completely, those in batches
   * included. What goes over a socket is not seen.
   */
  deposits = new Map();
  /** How many answers had each `Semel-Status`, without duplicates. */
  statuses = new Map();
  shares;
  #target;
  #random;
  #sockets = new Set();
  #ending = new AbortController();
  #server = createServer({ allowHalfOpen: true }, (client) => this.#serve(this.#kept(client)).catch(ignore).finally(() => client.destroy()));

  constructor(target, random, shares) {
    this.#target = target;
    this.#random = random;
    this.shares = shares;
    setMaxListeners(0, this.#ending.signal);
  }

  async listen() {
    await new Promise((resolve, reject) => this.#server.on("error", reject).listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${this.#server.address().port}`;
  }

  async close() {
    this.#ending.abort();
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #kept(socket) {
    this.#sockets.add(socket);
    socket.on("error", ignore).on("close", () => this.#sockets.delete(socket));
    return socket.setNoDelay();
  }

  #fate() {
    const [kind, side, place, stall, duplicate, later] = [1, 2, 3, 4, 5, 6].map(this.#random.next);
    const { cut, truncate, stall: stalled, duplicate: duplicated } = this.shares;
    const between = ([least, most], share) => least + share * (most - least);
    let fault;
    if (kind < cut) fault = "cut";
    else if (kind < cut + truncate) fault = "truncate";
    else if (kind < cut + truncate + stalled) fault = "stall";
    return {
      fault,
      side: side < 0.5 ? "request" : "answer",
      place,
      stallMs: between(STALL_MS, stall),
      duplicateMs: duplicate < duplicated ? between(DUPLICATE_MS, later) : undefined,
    };
  }

  async #serve(client) {
    const read = await requestOf(client);
    if (!read) return;
    const { bytes, head } = read;
    this.counts.requests += 1;
    const fate = this.#fate();
    if (isUpgrade(head)) return this.#socket(client, bytes, fate);
    const asked = this.#asked(read);
    if (fate.duplicateMs !== undefined) this.#duplicate(bytes, fate.duplicateMs).catch(ignore);
    const server = this.#kept(await this.#connected());
    try {
      const goesOn = fate.fault === undefined || fate.side === "answer" || (await this.#faultyRequest(bytes, fate, client, server));
      if (!goesOn) return;
      if (fate.side === "answer" || fate.fault === undefined) server.write(bytes);
      await this.#answer(server, client, fate, asked);
    } finally {
      server.destroy();
    }
  }

  /** Notes the changes that a request asks for. */
  #asked(request) {
    const changes = changesIn(request);
    const isBatch = /^POST \S+\/batch /.test(request.head);
    if (isBatch) this.counts.batches += 1;
    const deposits = changes.map(({ n, id }) => {
      const deposit = this.deposits.get(n) ?? { ids: new Set(), heard: new Set() };
      if (id !== undefined) deposit.ids.add(id);
      if (n !== undefined) this.deposits.set(n, deposit);
      return deposit;
    });
    return { deposits, isBatch };
  }

  /** Relays a socket. Once it is gone, what it sent may be sent again over another. */
  async #socket(client, bytes, { fault, duplicateMs, ...fate }) {
    this.counts.sockets += 1;
    const server = this.#kept(await this.#connected());
    const dealt = () => (this.counts[{ cut: "socketsCut", truncate: "socketsTruncated", stall: "socketsStalled" }[fault]] += 1);
    const sent = await relay({ client, server, first: bytes, fault, ...fate, dealt, pause: (ms) => this.#pause(ms) });
    if (duplicateMs !== undefined) await this.#duplicate(sent, duplicateMs);
  }

  async #connected() {
    const address = this.#target();
    try {
      if (!address) throw new Error("there is no server");
      return await connected(address);
    } catch (error) {
      this.counts.unreachable += 1;
      throw error;
    }
  }

  /** Resolves to whether the answer is to be passed on. */
  async #faultyRequest(bytes, { fault, place, stallMs }, client, server) {
    const at = Math.floor(place * (bytes.length + 1));
    await written(server, bytes.subarray(0, at));
    this.counts[COUNTED.request[fault]] += 1;
    if (fault === "cut") {
      server.resetAndDestroy();
      client.resetAndDestroy();
      return false;
    }
    if (fault === "truncate") {
      server.end();
    } else {
      await this.#pause(stallMs);
      await written(server, bytes.subarray(at));
    }
    return true;
  }

  async #answer(server, client, { fault, side, place, stallMs }, asked) {
    const faulty = side === "answer" && fault !== undefined;
    let left = faulty ? undefined : Infinity;
    const passed = [];
    client.on("close", () => server.destroy());
    for await (const chunk of server) {
      left ??= placeIn(chunk, place);
      const before = chunk.subarray(0, left);
      left -= before.length;
      passed.push(before);
      await written(client, before);
      if (before.length === chunk.length) continue;
      this.counts[COUNTED.answer[fault]] += 1;
      if (fault === "stall") {
        await this.#pause(stallMs);
        left = Infinity;
        passed.push(chunk.subarray(before.length));
        await written(client, chunk.subarray(before.length));
        continue;
      }
      this.#heard(Buffer.concat(passed), asked);
      return fault === "cut" ? client.resetAndDestroy() : ended(client);
    }
    this.#heard(Buffer.concat(passed), asked);
    await ended(client);
  }

  /** Notes an answer that passed completely. */
  #heard(bytes, { deposits, isBatch }) {
    const message = messageIn(bytes);
    if (!message || bytes.length < message.length) return;
    const statuses = statusesIn({ head: message.head, body: bytes.toString("utf8", message.headLength, message.length) }, isBatch);
    this.counts.whole += 1;
    for (const [at, semel] of statuses.entries()) {
      this.statuses.set(semel, (this.statuses.get(semel) ?? 0) + 1);
      deposits[at]?.heard.add(semel);
    }
  }

  /** Sends a whole request once more. Nobody gets that answer. */
  async #duplicate(bytes, afterMs) {
    await this.#pause(afterMs);
    const server = this.#kept(await this.#connected());
    await written(server, bytes);
    this.counts.duplicates += 1;
    server.resume();
  }

  #pause(ms) {
    return delay(ms, undefined, { signal: this.#ending.signal });
  }
}

const ignore = () => {};

/** The place of a fault in an answer that begins with `bytes`: anywhere, or near the end of its head. */
function placeIn(bytes, place) {
  const { length, headLength } = messageIn(bytes) ?? { length: bytes.length };
  if (place < 0.5 || headLength === undefined) return Math.floor(place * 2 * (length + 1));
  return Math.max(0, headLength - NEAR_BYTES + Math.floor((place - 0.5) * 4 * NEAR_BYTES));
}

/** Resolves to a complete request; to undefined if the client leaves before its end. */
async function requestOf(client) {
  let bytes = Buffer.alloc(0);
  return new Promise((resolve) => {
    const look = (chunk) => {
      bytes = Buffer.concat([bytes, chunk]);
      const message = messageIn(bytes);
      if (!message || bytes.length < message.length) return;
      client.off("data", look);
      if (isUpgrade(message.head)) return resolve({ head: message.head, bytes: client.pause() && bytes });
      // The rest that the client sends is dropped, but must be read to notice when the client leaves.
      client.resume();
      const body = bytes.toString("utf8", message.headLength, message.length);
      resolve({ head: message.head, body, bytes: closing(bytes.subarray(0, message.length), message) });
    };
    client.on("data", look).on("end", () => resolve(undefined)).on("close", () => resolve(undefined));
  });
}

function connected({ hostname, port }) {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
    socket.once("connect", () => resolve(socket)).once("error", reject);
  });
}

/** Resolves once the system has taken the bytes. */
function written(socket, bytes) {
  if (bytes.length === 0) return undefined;
  return new Promise((resolve, reject) => socket.write(bytes, (error) => (error ? reject(error) : resolve())));
}

const ended = (socket) => new Promise((resolve) => socket.end(resolve));
