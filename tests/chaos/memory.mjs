// Whether a process stops growing under a load that stays the same.
//
// What is new grows for a while: caches fill up, and heaps take what they are given before they collect any garbage. A
// process that keeps no more than it needs becomes level after that; one that leaks a little with each request never does. So
// rounds of equal load are made until the peak of the last few is hardly above that of as many before them. If that does
// not come in many more rounds than any warming up takes, it leaks.

import { deposit, throughput } from "../bench/load.mjs";

/** The account of the load: no client makes deposits there. */
export const WEIGHED = "weighed";

/** So many rounds are compared with as many before them. */
const WINDOW = 5;
const ROUNDS_MAX = 60;
/** By so much the peak of a level process may rise from one window to the next. */
const NOISE = 0.05;

const CONNECTIONS = 4;
const REQUESTS_OF_A_ROUND = 400;
/** In one `POST acks`. */
const ACKS_MAX = 256;

/** Whether the last samples, in bytes, are level. */
export function isLevel(samples) {
  if (samples.length < 2 * WINDOW) return false;
  const peak = (from, to) => Math.max(...samples.slice(from, to));
  return peak(-WINDOW) <= peak(-2 * WINDOW, -WINDOW) * (1 + NOISE);
}

/** Makes rounds of `load` until `usedBytes` is level: `{ isLevel, samples }`. */
export async function weigh({ load, usedBytes }) {
  const samples = [];
  while (!isLevel(samples) && samples.length < ROUNDS_MAX) {
    await load();
    samples.push(await usedBytes());
  }
  return { isLevel: isLevel(samples), samples };
}

/** For `weigh`: deposits that are acknowledged. */
export function serverLoad(server) {
  const make = deposit(`/accounts/${WEIGHED}/deposit`);
  const open = new Set();
  const next = (ack) => {
    open.delete(ack);
    const request = make(ack);
    open.add(request.id);
    return request;
  };
  const load = async () => {
    await throughput(server.address.href, { connections: CONNECTIONS, requests: REQUESTS_OF_A_ROUND, next });
    // The last of each connection had nothing to ride on.
    const ids = [...open].slice(0, ACKS_MAX);
    await server.acknowledge(`accounts/${WEIGHED}`, ids);
    for (const id of ids) open.delete(id);
  };
  return { name: "workerd", load, usedBytes: () => server.residentBytes() };
}
