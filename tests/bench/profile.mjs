// What the time of a request is spent on: CPU profiles of workerd under load, by V8's profiler, for the floor, the bound and the ledger.
//
// The loads are those whose rows the document explains: each request on its own, on one key and on many, and requests that share commits.
// A profile shows what runs on the JavaScript thread. The wait for the disk is "(program)", like everything that is not V8's.

import playwright from "playwright-core/lib/utilsBundle";
import { deposit, load, warmUp } from "./load.mjs";

const { ws: WebSocket } = playwright;
const INTERVAL_US = 500;
const SHOWN = 20;
const IDLE = "(idle)";
const PATH = "/accounts/bench/deposit";
const LOADS = [
  { work: "1 connection", connections: 1, pathOf: () => PATH },
  { work: "64 connections on 64 keys", connections: 64, pathOf: (number) => `/accounts/bench-${number}/deposit` },
  { work: "16 connections", connections: 16, pathOf: () => PATH },
];
/** In rounds: enough for a thousand requests, one after another. */
const TIMES = 10;

/** Profiles the sides on the disk of `sides`. Resolves to lines of text. */
export async function profiles(sides, forMs) {
  const lines = [];
  for (const [name, side] of [["floor", "floor"], ["bound", "bound"], ["Semel", "ledger"]]) {
    const { url, inspector } = await sides[side]({ inspected: true });
    await warmUp(url, forMs, deposit(PATH));
    for (const { work, connections, pathOf } of LOADS) {
      const loaded = (times) => load(url, { connections, forMs: times * forMs, of: (number) => deposit(pathOf(number)) });
      // Makes objects and opens connections first, so that this is not measured.
      await loaded(1);
      const { rows, took } = await profiled(inspector, () => loaded(TIMES));
      const busy = rows.filter(([what]) => !what.startsWith(IDLE)).reduce((sum, [, us]) => sum + us, 0);
      lines.push(`\n${name}, ${work}: ${(busy / took.length).toFixed(0)} µs a request on the thread with the JavaScript`);
      for (const [what, us] of rows.slice(0, SHOWN)) lines.push(`${(us / took.length).toFixed(1).padStart(8)} µs  ${what}`);
    }
  }
  return lines;
}

/** Resolves to the µs of each function while `work` runs, the most first, and to what `work` resolved to. */
async function profiled(inspector, work) {
  const [{ webSocketDebuggerUrl }] = await (await fetch(`${inspector}/json`)).json();
  const socket = new WebSocket(webSocketDebuggerUrl);
  await new Promise((resolve, reject) => socket.on("open", resolve).on("error", reject));
  let asked = 0;
  const ask = (method, params = {}) =>
    new Promise((resolve, reject) => {
      const id = (asked += 1);
      const take = (message) => {
        const answer = JSON.parse(message);
        if (answer.id !== id) return;
        socket.off("message", take);
        if (answer.error) reject(new Error(`${method}: ${answer.error.message}`));
        else resolve(answer.result);
      };
      socket.on("message", take);
      socket.send(JSON.stringify({ id, method, params }));
    });
  await ask("Profiler.enable");
  await ask("Profiler.setSamplingInterval", { interval: INTERVAL_US });
  await ask("Profiler.start");
  const { took } = await work();
  const { profile } = await ask("Profiler.stop");
  socket.close();
  return { took, rows: usBy(profile, nameOf) };
}

/** The µs of a profile by the name that `nameOf` gives each place in the code, the most first. */
export function usBy({ nodes, samples, timeDeltas }, nameOf) {
  const named = new Map(nodes.map(({ id, callFrame }) => [id, nameOf(callFrame)]));
  const us = new Map();
  for (const [index, id] of samples.entries()) us.set(named.get(id), (us.get(named.get(id)) ?? 0) + timeDeltas[index]);
  return [...us].sort(([, one], [, other]) => other - one);
}

/** The whole module has one name: its functions have none in what ships. */
function nameOf({ functionName, url }) {
  if (url.startsWith("wasm:")) return "the module, in Rust";
  return `${functionName || "(anonymous)"} ${url.split("/").at(-1)}`.trim();
}
