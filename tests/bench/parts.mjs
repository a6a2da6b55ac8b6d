// The parts of the benchmark: each measures some rows of the table, and all that they are compared with.
//
// Invariant: a part is a function of `{ sides, rounds, forMs, … }` that resolves to `{ rows, curves, handlers }`, and leaves nothing running that
// `sides` does not end.

import { randomUUID } from "node:crypto";
import { buildCrowd } from "../e2e/crowd.mjs";
import { inChromium } from "./chromium.mjs";
import { frames } from "./frames.mjs";
import { WARM_UP_ROUNDS, deposit, load, repeated, warmUp } from "./load.mjs";
import { handlers } from "./handlers.mjs";
import { paced } from "./paced.mjs";
import { interleaved, median, quantile, ratio } from "./rounds.mjs";
import { rowsWritten } from "./rows-written.mjs";
import { sessionLoop } from "./sdk.mjs";
import { cpuOf } from "./sides.mjs";
import { judged } from "./table.mjs";

const CONNECTIONS = [1, 4, 16, 64, 256];
const ROWS_OF_CONNECTIONS = [1, 16, 64];
const FRAMES = [1, 4, 16, 64, 256];
const ROWS_OF_FRAMES = [64, 256];
const RECORDS = [1_000, 10_000, 100_000, 1_000_000];
const MANY = 64;
const SOME = 16;
/** Outcomes are replayed of so many ids. */
const RECORDED = 1_000;
/**
 * Rounds of an open load are few and long, 24 s unless said otherwise: a full collection of garbage holds up all that is under way every five to ten seconds.
 * In short rounds it is luck which of them have one, and so is a median of theirs.
 */
const PACED = { rounds: 5, times: 48 };
const ACCOUNT = "bench";
const PATH = `/accounts/${ACCOUNT}/deposit`;

const perSecond = (rate) => `${Math.round(rate).toLocaleString("en-US")}/s`;
const rates = (made) => ({ value: ratio(made.semel, made.floor), floor: perSecond(median(made.floor)), ours: perSecond(median(made.semel)) });

/** How many deposits a second a server makes of `connections`, on one key or on one for each of them. */
const closed = ({ url }, connections, forMs, pathOf = () => PATH, idOf = undefined) => load(url, { connections, forMs, of: (number) => deposit(pathOf(number), idOf) });

/** The floor and the ledger on one disk: they are started once, and their objects live on. */
async function both(sides, forMs) {
  const servers = { floor: await sides.floor(), semel: await sides.ledger() };
  for (const server of Object.values(servers)) await warmUp(server.url, forMs, deposit(PATH));
  return servers;
}

/** Deposits over more and more connections, and what they cost the server. */
async function connections({ servers, rounds, forMs, counts = CONNECTIONS }) {
  const [rows, curve] = [[], []];
  for (const count of counts) {
    const cpu = { floor: [], semel: [] };
    const side = (name) => async () => {
      const before = await cpuOf(servers[name]);
      const { rate, took } = await closed(servers[name], count, forMs);
      cpu[name].push(((await cpuOf(servers[name])) - before) / took.length);
      return rate;
    };
    const made = await interleaved({ floor: side("floor"), semel: side("semel") }, rounds);
    curve.push({ at: count, floor: median(made.floor), semel: median(made.semel) });
    if (ROWS_OF_CONNECTIONS.includes(count)) rows.push(judged(`connections-${count}`, rates(made)));
    if (count === SOME) rows.push(cpuRow(cpu));
  }
  return { rows, curves: { connections: curve } };
}

/** The first round of each warmed it up. */
function cpuRow(cpu) {
  const [floor, semel] = [cpu.floor.slice(1), cpu.semel.slice(1)];
  const micros = (ms) => `${(median(ms) * 1000).toFixed(0)} µs`;
  return judged("cpu", { value: median(semel) / median(floor), floor: micros(floor), ours: micros(semel) });
}

const pathOfKey = (number) => `/accounts/${ACCOUNT}-${number}/deposit`;

async function keys({ servers, rounds, forMs }) {
  const side = (name) => async () => (await closed(servers[name], MANY, forMs, pathOfKey)).rate;
  return { rows: [judged("keys-64", rates(await interleaved({ floor: side("floor"), semel: side("semel") }, rounds)))] };
}

/** What no engine can save where each request has a commit of its own: the bound, of the floor, and Semel in the same rounds. */
async function bound({ sides, servers, rounds, forMs }) {
  const all = { ...servers, bound: await sides.bound() };
  await warmUp(all.bound.url, forMs, deposit(PATH));
  const found = [];
  for (const [work, count, pathOf] of [["1 connection", 1], ["16 connections", SOME], ["64 connections on 64 keys", MANY, pathOfKey]]) {
    const side = ([name, server]) => [name, async () => (await closed(server, count, forMs, pathOf)).rate];
    const made = await interleaved(Object.fromEntries(Object.entries(all).map(side)), rounds);
    found.push({ work, bound: ratio(made.bound, made.floor), semel: ratio(made.semel, made.floor), ofBound: ratio(made.semel, made.bound) });
  }
  return { rows: [], bound: found };
}

/** What is many times as fast, beside the floor at 64 connections. */
async function many({ servers: { floor, semel }, rounds, forMs }) {
  const framed = (size, ms) => frames(semel.url, { account: `${ACCOUNT}-socket`, size, forMs: ms });
  // An object that nobody asks for ten seconds ends, and what was sent to it before is no plain replay at the next.
  await framed(MANY, WARM_UP_ROUNDS * forMs);
  const recorded = Array.from({ length: RECORDED }, () => repeated(`/accounts/${ACCOUNT}-replayed/deposit`));
  let [left, next] = [RECORDED, 0];
  await load(semel.url, { connections: SOME, requests: RECORDED, of: () => () => recorded[--left]() });
  const again = () => recorded[(next += 1) % RECORDED]();
  await warmUp(semel.url, forMs, again);
  const side = (size) => [size, () => framed(size, forMs)];
  const made = await interleaved(
    {
      floor: async () => (await closed(floor, MANY, forMs)).rate,
      replay: async () => (await load(semel.url, { connections: MANY, forMs, of: () => again })).rate,
      ...Object.fromEntries(FRAMES.map(side)),
    },
    rounds,
  );
  const row = (id, name) => judged(id, rates({ floor: made.floor, semel: made[name] }));
  const curve = FRAMES.map((size) => ({ at: size, semel: median(made[size]), floor: median(made.floor) }));
  return { rows: [row("replay", "replay"), ...ROWS_OF_FRAMES.map((size) => row(`socket-${size}`, size))], curves: { frames: curve } };
}

/** The SDK in Node, beside the same floor. Its calls are those of all rounds together. */
async function sdk({ servers: { floor, semel }, rounds, forMs, sdkRequests }) {
  const each = Math.ceil(sdkRequests / rounds);
  await sessionLoop(semel.url, `${ACCOUNT}-sdk`, each);
  const sides = { floor: async () => (await closed(floor, MANY, forMs)).rate, semel: () => sessionLoop(semel.url, `${ACCOUNT}-sdk`, each) };
  return { rows: [judged("node-sdk", rates(await interleaved(sides, rounds, { isWarm: true })))] };
}

/** Deposits at keys that have few and very many records, each on a server of its own; of the latter a second one, under ids at random all over. */
async function records({ sides, rounds, forMs, recordsMax }) {
  const crowd = await buildCrowd();
  const counts = RECORDS.filter((count, index) => index === 0 || count <= recordsMax);
  const [few, most] = [counts[0], counts.at(-1)];
  const measured = {};
  for (const [name, count, idOf] of [...counts.map((count) => [count, count]), ["scattered", most, randomUUID]]) {
    const state = `records-${name}`;
    const empty = await sides.ledger({ state });
    await load(empty.url, { connections: 1, requests: 1, of: () => deposit(PATH) });
    await empty.kill();
    await crowd(empty, "records", count, Math.floor(Date.now() / 1000));
    const server = await sides.ledger({ state });
    measured[name] = async () => (await closed(server, SOME, forMs, () => PATH, idOf)).rate;
  }
  const made = await interleaved(measured, rounds);
  const shown = (count) => `with ${count.toLocaleString("en-US")}: ${perSecond(median(made[count]))}`;
  const scattered = ratio(made.scattered, made[few]).toFixed(2);
  const figures = { value: ratio(made[most], made[few]), floor: shown(few), ours: `${shown(most)}; under random ids: ${scattered}` };
  return { rows: [judged("records", figures)], curves: { records: counts.map((count) => ({ at: count, semel: median(made[count]) })) } };
}

/** How long requests take where the server has half of what it can do. */
async function latency({ servers, rounds, forMs }) {
  const peak = await interleaved(Object.fromEntries(Object.entries(servers).map(([name, server]) => [name, async () => (await closed(server, MANY, forMs)).rate])), rounds);
  const side = (name) => async () => {
    const took = (await paced(servers[name].url, { rate: median(peak[name]) / 2, forMs: PACED.times * forMs, next: deposit(PATH) })).map(({ ms }) => ms);
    return { slowest: quantile(took, 0.99), half: median(took) };
  };
  const made = await interleaved({ floor: side("floor"), semel: side("semel") }, Math.min(rounds, PACED.rounds));
  const slowest = (name) => made[name].map((round) => round.slowest);
  const half = (name) => median(made[name].map((round) => round.half));
  const shown = (name) => `${median(slowest(name)).toFixed(1)} ms at ${perSecond(median(peak[name]) / 2)}; half of them ${half(name).toFixed(1)} ms`;
  return { rows: [judged("p99", { value: ratio(slowest("semel"), slowest("floor")), floor: shown("floor"), ours: shown("semel") })] };
}

async function browser({ after, servers: { semel }, rounds, calls }) {
  const { beyond, ...ms } = await inChromium(after, semel.url, { rounds, calls });
  const shown = (name) => `${ms[name].toFixed(2)} ms`;
  return { rows: [judged("browser-sdk", { value: beyond, floor: `${shown("fetch")} and ${shown("store")}, ${shown("both")} in a row`, ours: shown("semel") })] };
}

async function written({ after }) {
  const { plain, session, batched } = await rowsWritten(after);
  return { rows: [judged("rows-plain", { value: plain }), judged("rows-session", { value: session, ours: `in batches of 64: ${batched.toFixed(2)}` })] };
}

/** The rows that tell most of the disk, where it is free. */
async function memory({ servers, rounds, forMs }) {
  const { rows } = await connections({ servers, rounds, forMs, counts: ROWS_OF_CONNECTIONS });
  return { rows: [], inMemory: [...rows, ...(await keys({ servers, rounds, forMs })).rows] };
}

/** In the order in which they run. What `starts` has both servers; `inMemory` has them on a disk in memory. */
export const PARTS = {
  connections: { measure: connections, starts: both },
  keys: { measure: keys, starts: both },
  bound: { measure: bound, starts: both },
  many: { measure: many, starts: both },
  sdk: { measure: sdk, starts: both },
  latency: { measure: latency, starts: both },
  browser: { measure: browser, starts: both },
  rows: { measure: written },
  records: { measure: records },
  memory: { measure: memory, starts: both, isInMemory: true },
  handlers: { measure: handlers },
};
