// The parts of the benchmark. Each measures some rows of the table, and what they are compared with.
//
// Invariant: a part is a function of `{ sides, rounds, forMs, … }`. It resolves to `{ rows, curves, handlers }`, and leaves nothing running that
// `sides`
// does not end.

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
import { each, ofRound } from "./starts.mjs";
import { judged } from "./table.mjs";

const CONNECTIONS = [1, 4, 16, 64, 256];
const ROWS_OF_CONNECTIONS = [1, 16, 64];
const FRAMES = [1, 4, 16, 64, 256];
const ROWS_OF_FRAMES = [64, 256];
const RECORDS = [1_000, 10_000, 100_000, 1_000_000];
const MANY = 64;
const SOME = 16;
/** How many ids there are whose outcomes are replayed. */
const RECORDED = 1_000;
/**
 * The rounds of an open load are few and long, 24 s by default. A full garbage collection holds up everything every five to ten seconds: in short rounds,
 * it would be luck which of them have one, and so would their median. Each start gets equally many rounds.
 */
const PACED = { rounds: 9, times: 48 };
const ACCOUNT = "bench";
const PATH = `/accounts/${ACCOUNT}/deposit`;

const perSecond = (rate) => `${Math.round(rate).toLocaleString("en-US")}/s`;
const rates = (made) => ({ value: ratio(made.semel, made.floor), floor: perSecond(median(made.floor)), ours: perSecond(median(made.semel)) });

/** Resolves to how many deposits a second a server makes over `connections`: all on one key, or as `pathOf` says. */
const closed = ({ url }, connections, forMs, pathOf = () => PATH, idOf = undefined) => load(url, { connections, forMs, of: (number) => deposit(pathOf(number), idOf) });

/** The floor and the ledger on one disk, for each start. Their objects stay alive. */
const both = (sides, forMs) =>
  each(async (start) => {
    const servers = { floor: await sides.floor({ state: `floor-${start}` }), semel: await sides.ledger({ state: `ledger-${start}` }) };
    for (const server of Object.values(servers)) await warmUp(server.url, forMs, deposit(PATH));
    return servers;
  });

/** Measures deposits over more and more connections, and the CPU that they cost the server. */
async function connections({ servers, rounds, forMs, counts = CONNECTIONS }) {
  const [rows, curve] = [[], []];
  for (const count of counts) {
    const cpu = { floor: [], semel: [] };
    const side = (name) => async (round) => {
      const server = ofRound(servers, round)[name];
      const before = await cpuOf(server);
      const { rate, took } = await closed(server, count, forMs);
      cpu[name].push(((await cpuOf(server)) - before) / took.length);
      return rate;
    };
    const made = await interleaved({ floor: side("floor"), semel: side("semel") }, rounds);
    curve.push({ at: count, floor: median(made.floor), semel: median(made.semel) });
    if (ROWS_OF_CONNECTIONS.includes(count)) rows.push(judged(`connections-${count}`, rates(made)));
    if (count === SOME) rows.push(cpuRow(cpu));
  }
  return { rows, curves: { connections: curve } };
}

/** The first round of each side is left out, because it warmed the server up. */
function cpuRow(cpu) {
  const [floor, semel] = [cpu.floor.slice(1), cpu.semel.slice(1)];
  const micros = (ms) => `${(median(ms) * 1000).toFixed(0)} µs`;
  return judged("cpu", { value: median(semel) / median(floor), floor: micros(floor), ours: micros(semel) });
}

const pathOfKey = (number) => `/accounts/${ACCOUNT}-${number}/deposit`;

async function keys({ servers, rounds, forMs }) {
  const side = (name) => async (round) => (await closed(ofRound(servers, round)[name], MANY, forMs, pathOfKey)).rate;
  return { rows: [judged("keys-64", rates(await interleaved({ floor: side("floor"), semel: side("semel") }, rounds)))] };
}

/**
 * Measures what no engine can save if each request has a commit of its own: the bound relative to the floor, read and unread (bound.js), and Semel in
 * the same rounds.
 */
async function bound({ sides, servers, rounds, forMs }) {
  const beginningOf = (name) => (name === "unread" ? "/unread" : "");
  const starts = await each(async (start) => {
    const server = await sides.bound({ state: `bound-${start}` });
    for (const name of ["bound", "unread"]) await warmUp(server.url, forMs, deposit(beginningOf(name) + PATH));
    return { ...servers[start], bound: server, unread: server };
  });
  const found = [];
  for (const [work, count, pathOf] of [["1 connection", 1, () => PATH], ["16 connections", SOME, () => PATH], ["64 connections on 64 keys", MANY, pathOfKey]]) {
    const side = (name) => [name, async (round) => (await closed(ofRound(starts, round)[name], count, forMs, (number) => beginningOf(name) + pathOf(number))).rate];
    const made = await interleaved(Object.fromEntries(["floor", "semel", "bound", "unread"].map(side)), rounds);
    found.push({ work, bound: ratio(made.bound, made.floor), unread: ratio(made.unread, made.floor), semel: ratio(made.semel, made.floor), ofBound: ratio(made.semel, made.bound) });
  }
  return { rows: [], bound: found };
}

/** Measures what is many times as fast as the floor with 64 connections. */
async function many({ servers, rounds, forMs }) {
  const framed = ({ url }, size, ms) => frames(url, { account: `${ACCOUNT}-socket`, size, forMs: ms });
  const starts = await each(async (start) => {
    const { floor, semel } = servers[start];
    await framed(semel, MANY, WARM_UP_ROUNDS * forMs);
    const recorded = Array.from({ length: RECORDED }, () => repeated(`/accounts/${ACCOUNT}-replayed/deposit`));
    let [left, next] = [RECORDED, 0];
    await load(semel.url, { connections: SOME, requests: RECORDED, of: () => () => recorded[--left]() });
    const again = () => recorded[(next += 1) % RECORDED]();
    await warmUp(semel.url, forMs, again);
    return { floor, semel, again };
  });
  const side = (size) => [size, (round) => framed(ofRound(starts, round).semel, size, forMs)];
  const replay = async (round) => {
    const { semel, again } = ofRound(starts, round);
    return (await load(semel.url, { connections: MANY, forMs, of: () => again })).rate;
  };
  const made = await interleaved(
    {
      floor: async (round) => (await closed(ofRound(starts, round).floor, MANY, forMs)).rate,
      replay,
      ...Object.fromEntries(FRAMES.map(side)),
    },
    rounds,
  );
  const row = (id, name) => judged(id, rates({ floor: made.floor, semel: made[name] }));
  const curve = FRAMES.map((size) => ({ at: size, semel: median(made[size]), floor: median(made.floor) }));
  return { rows: [row("replay", "replay"), ...ROWS_OF_FRAMES.map((size) => row(`socket-${size}`, size))], curves: { frames: curve } };
}

/** Measures the SDK in Node, against the same floor. `sdkRequests`: the calls of all rounds together. */
async function sdk({ servers, rounds, forMs, sdkRequests }) {
  const calls = Math.ceil(sdkRequests / rounds);
  const loop = ({ semel }) => sessionLoop(semel.url, `${ACCOUNT}-sdk`, calls);
  for (const start of servers) await loop(start);
  const sides = { floor: async (round) => (await closed(ofRound(servers, round).floor, MANY, forMs)).rate, semel: (round) => loop(ofRound(servers, round)) };
  return { rows: [judged("node-sdk", rates(await interleaved(sides, rounds, { isWarm: true })))] };
}

/**
 * Measures deposits at keys with few and with very many records, each on a server of its own. With the most records, a second server gets random ids.
 */
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

/** Measures how long requests take while each server has half of its peak load; and Semel's, too, while it has the floor's load. */
async function latency({ servers, rounds, forMs }) {
  const reached = (name) => async (round) => (await closed(ofRound(servers, round)[name], MANY, forMs)).rate;
  const peak = await interleaved({ floor: reached("floor"), semel: reached("semel") }, rounds);
  const rate = { floor: median(peak.floor) / 2, semel: median(peak.semel) / 2 };
  const side = (name, at) => async (round) => {
    const took = (await paced(ofRound(servers, round)[name].url, { rate: rate[at], forMs: PACED.times * forMs, next: deposit(PATH) })).map(({ ms }) => ms);
    return { slowest: quantile(took, 0.99), half: median(took) };
  };
  const made = await interleaved({ floor: side("floor", "floor"), semel: side("semel", "semel"), alike: side("semel", "floor") }, Math.min(rounds, PACED.rounds));
  const slowest = (name) => made[name].map((round) => round.slowest);
  const times = (name) => ratio(slowest(name), slowest("floor"));
  const half = (name) => median(made[name].map((round) => round.half));
  const shown = (name, at) => `${median(slowest(name)).toFixed(1)} ms at ${perSecond(rate[at])}; median ${half(name).toFixed(1)} ms`;
  const ours = `${shown("semel", "semel")}. ${times("alike").toFixed(2)} at the floor's load: ${shown("alike", "floor")}`;
  return { rows: [judged("p99", { value: times("semel"), floor: shown("floor", "floor"), ours })] };
}

async function browser({ after, servers: [{ semel }], rounds, calls }) {
  const { beyond, boundBeyond, ...ms } = await inChromium(after, semel.url, { rounds, calls });
  const shown = (name) => `${ms[name].toFixed(2)} ms`;
  return { rows: [judged("browser-sdk", { value: beyond, floor: `\`fetch\` ${shown("fetch")}, write ${shown("store")}, one after the other ${shown("both")}`, ours: `${shown("semel")}; by hand ${boundBeyond.toFixed(2)} ms beyond` })] };
}

async function written({ after }) {
  const { plain, session, batched } = await rowsWritten(after);
  return { rows: [judged("rows-plain", { value: plain }), judged("rows-session", { value: session, ours: `in batches of 64: ${batched.toFixed(2)}` })] };
}

/** Measures the rows that depend most on the disk, with a disk that costs nothing. */
async function memory({ servers, rounds, forMs }) {
  const { rows } = await connections({ servers, rounds, forMs, counts: ROWS_OF_CONNECTIONS });
  return { rows: [], inMemory: [...rows, ...(await keys({ servers, rounds, forMs })).rows] };
}

/** The parts in the order in which they run. `starts` makes both servers for each start; with `isInMemory`, their disk is in memory. */
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
