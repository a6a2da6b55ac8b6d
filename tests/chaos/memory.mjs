// Checks whether a process stops growing under a constant load.
//
// A new process grows for a while: caches fill up, and heaps take the room that they are given before they collect any garbage. After that, a process
// that
// keeps no more than it needs stays level; one that leaks a little with each request never does. So rounds of equal load are made until the last few
// rounds
// hardly use more memory than as many rounds before. If that does not happen within many more rounds than any warm-up takes, the process leaks.
//
// Invariants:
// - The bound is in bytes for each request, and does not grow with the process. A share of the memory in use would, in the end, let any steady leak
//   pass.
// - The bound is less than the least that a request could leave behind for good; the constants say why.

import { deposit, throughput } from "../bench/load.mjs";

const CALLERS = 12;
/** The accounts of the load, the server's first. No client makes deposits there. */
export const WEIGHED = ["weighed", ...Array.from({ length: CALLERS }, (_, caller) => `weighed-${caller}`)];
/** The account of the load for a client with sessions: it has only one. */
export const WEIGHED_IN_SESSION = "weighed-till";
const [WEIGHED_BY_SERVER, ...WEIGHED_BY_CLIENTS] = WEIGHED;

/** The first rounds do not count: what is loaded then and dropped later would hide a growth. */
const WARM_UP = 5;
/** How many rounds are compared with as many before them. */
const WINDOW = 5;
const ROUNDS_MAX = 25;

/** The bound for a client, whose garbage is collected first. Its row for a request, with id, target, headers and body, takes more. */
const CLIENT_BYTES_A_REQUEST = 256;
const CLIENT_REQUESTS_OF_A_ROUND = 150;
/** Fewer, because a page's heap hardly moves, and each of its requests takes long. */
const PAGE_REQUESTS_OF_A_ROUND = 40;

/** The bound for the server, whose resident memory includes garbage. An id, a fingerprint and the outcome of a deposit take more. */
const SERVER_BYTES_A_REQUEST = 400;
const SERVER_REQUESTS_OF_A_ROUND = 2_000;
/** The faster the machine, the longer its heap takes to become level. After that, it is judged as often as other processes. */
const SERVER_WARM_UP = 30;
const CONNECTIONS = 4;
/** The most ids in one `POST acks`. */
const ACKS_MAX = 256;

/**
 * Whether the last samples, in bytes, are level, if each of the `requests` of a round may leave `bytesARequest`. What is kept for good is in every
 * sample, but garbage that was not collected is only in some. So the least of each window counts.
 */
export function isLevel(samples, { requests, bytesARequest, warmUp = WARM_UP }) {
  if (samples.length < warmUp + 2 * WINDOW) return false;
  const least = (from, to) => Math.min(...samples.slice(from, to));
  return least(-WINDOW) < least(-2 * WINDOW, -WINDOW) + WINDOW * requests * bytesARequest;
}

/** Makes rounds of `load` until `usedBytes` is level, or until there were too many. Resolves to `{ isLevel, samples }`. */
export async function weigh({ load, usedBytes, rounds = ROUNDS_MAX, ...bound }) {
  const samples = [];
  while (!isLevel(samples, bound) && samples.length < rounds) {
    await load();
    samples.push(await usedBytes());
  }
  return { isLevel: isLevel(samples, bound), samples };
}

/** A load for `weigh`: changes by a client. With `leaks`, the client keeps something of every answer; then the first judgement will do. */
export function clientLoad(caller, leaks) {
  const requests = caller.name === "page" ? PAGE_REQUESTS_OF_A_ROUND : CLIENT_REQUESTS_OF_A_ROUND;
  const [bytesARequest, rounds] = [CLIENT_BYTES_A_REQUEST, leaks ? WARM_UP + 2 * WINDOW : ROUNDS_MAX];
  const load = () => caller.load(WEIGHED_BY_CLIENTS, requests, leaks);
  return { name: caller.name, load, usedBytes: () => caller.usedBytes(), requests, bytesARequest, rounds };
}

/** A load for `weigh`: deposits at the server, which are acknowledged. */
export function serverLoad(server) {
  const [requests, bytesARequest] = [SERVER_REQUESTS_OF_A_ROUND, SERVER_BYTES_A_REQUEST];
  const make = deposit(`/accounts/${WEIGHED_BY_SERVER}/deposit`);
  const open = new Set();
  const next = (ack) => {
    open.delete(ack);
    const request = make(ack);
    open.add(request.id);
    return request;
  };
  const load = async () => {
    await throughput(server.address.href, { connections: CONNECTIONS, requests, next });
    // The last deposit of each connection had no later request to carry its acknowledgement.
    const ids = [...open].slice(0, ACKS_MAX);
    await server.acknowledge(`accounts/${WEIGHED_BY_SERVER}`, ids);
    for (const id of ids) open.delete(id);
  };
  const [warmUp, rounds] = [SERVER_WARM_UP, SERVER_WARM_UP - WARM_UP + ROUNDS_MAX];
  return { name: "workerd", load, usedBytes: () => server.residentBytes(), requests, bytesARequest, warmUp, rounds };
}
