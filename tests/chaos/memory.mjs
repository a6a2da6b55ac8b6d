// Whether a process stops growing under a load that stays the same.
//
// What is new grows for a while: caches fill up, and heaps take what they are given before they collect any garbage. A
// process that keeps no more than it needs becomes level after that; one that leaks a little with each request never does. So
// rounds of equal load are made until what was in use in the last few is hardly above that of as many before them. If that
// does not come in many more rounds than any warming up takes, it leaks.
//
// Invariants:
// - The bound is of bytes for each request, and does not grow with the process: a share of what is in use would let through,
//   in the end, whatever leaks steadily.
// - It is less than the least that a request could leave behind for good, as its constant says.

import { deposit, throughput } from "../bench/load.mjs";

const CALLERS = 12;
/** The accounts of the load, the server's first: no client makes deposits there. */
export const WEIGHED = ["weighed", ...Array.from({ length: CALLERS }, (_, caller) => `weighed-${caller}`)];
/** The same of a client that makes sessions: it has one. */
export const WEIGHED_IN_SESSION = "weighed-till";
const [WEIGHED_BY_SERVER, ...WEIGHED_BY_CLIENTS] = WEIGHED;

/** The first rounds count for nothing: what was loaded and is dropped then would hide what comes. */
const WARM_UP = 5;
/** So many rounds are compared with as many before them. */
const WINDOW = 5;
const ROUNDS_MAX = 25;

/** Of a client, whose garbage is collected first: its row of a request, with id, target, headers and body, takes more. */
const CLIENT_BYTES_A_REQUEST = 256;
const CLIENT_REQUESTS_OF_A_ROUND = 150;
/** Hardly anything moves in a page's heap, and each of its requests takes long. */
const PAGE_REQUESTS_OF_A_ROUND = 40;

/** Of the server, whose resident memory has garbage in it: an id, a fingerprint and the outcome of a deposit take more. */
const SERVER_BYTES_A_REQUEST = 400;
const SERVER_REQUESTS_OF_A_ROUND = 2_000;
/** Its heap takes the longer to become level, the faster the machine is. After that it is judged as often as others are. */
const SERVER_WARM_UP = 30;
const CONNECTIONS = 4;
/** In one `POST acks`. */
const ACKS_MAX = 256;

/**
 * Whether the last samples, in bytes, are level, with so many `requests` in a round that may leave so many bytes each. What is
 * kept for good is in every sample, garbage that was not collected in some: so the least of each window counts.
 */
export function isLevel(samples, { requests, bytesARequest, warmUp = WARM_UP }) {
  if (samples.length < warmUp + 2 * WINDOW) return false;
  const least = (from, to) => Math.min(...samples.slice(from, to));
  return least(-WINDOW) < least(-2 * WINDOW, -WINDOW) + WINDOW * requests * bytesARequest;
}

/** Makes rounds of `load` until `usedBytes` is level, or there were too many: `{ isLevel, samples }`. */
export async function weigh({ load, usedBytes, rounds = ROUNDS_MAX, ...bound }) {
  const samples = [];
  while (!isLevel(samples, bound) && samples.length < rounds) {
    await load();
    samples.push(await usedBytes());
  }
  return { isLevel: isLevel(samples, bound), samples };
}

/** For `weigh`: changes by a client. `leaks`: whether it is to keep something of every answer; then the first judgement will do. */
export function clientLoad(caller, leaks) {
  const requests = caller.name === "page" ? PAGE_REQUESTS_OF_A_ROUND : CLIENT_REQUESTS_OF_A_ROUND;
  const [bytesARequest, rounds] = [CLIENT_BYTES_A_REQUEST, leaks ? WARM_UP + 2 * WINDOW : ROUNDS_MAX];
  const load = () => caller.load(WEIGHED_BY_CLIENTS, requests, leaks);
  return { name: caller.name, load, usedBytes: () => caller.usedBytes(), requests, bytesARequest, rounds };
}

/** For `weigh`: deposits that are acknowledged. */
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
    // The last of each connection had nothing to ride on.
    const ids = [...open].slice(0, ACKS_MAX);
    await server.acknowledge(`accounts/${WEIGHED_BY_SERVER}`, ids);
    for (const id of ids) open.delete(id);
  };
  const [warmUp, rounds] = [SERVER_WARM_UP, SERVER_WARM_UP - WARM_UP + ROUNDS_MAX];
  return { name: "workerd", load, usedBytes: () => server.residentBytes(), requests, bytesARequest, warmUp, rounds };
}
