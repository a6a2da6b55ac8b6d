// The probe's Worker: the host, with an object that fails where a request asks for it, and paths under `/probe/` by which tests control it.

import { DurableObject } from "cloudflare:workers";
import * as gathering from "./gathering.js";
import { SemelObject as Hosted } from "./host.js";
import { valueIn } from "./lines.js";
import { consumer } from "./queue.js";
import { SemelRegistry as Registry } from "./registry.js";
import { gatherBy, serve } from "./router.js";

gatherBy(gathering);

/** `fail`: whether every alarm fails, which the platform gives up after six failures. `failed`: how many have failed. */
const alarms = { fail: false, failed: 0 };

/**
 * The header that says what goes wrong: `held NAME`, `late MS`, `hangs`, `overloaded`, `reset before`, `reset after`. With `all ` in front, it
 * happens to the call that brings several requests together. The value `counts` has the answer tell what the object has counted so far.
 */
const HEADER = "probe-object";
const faultOf = (lines) => valueIn(lines, HEADER) ?? "";
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The names that were released. Whoever is held goes on once its name is here. */
const released = new Set();

export class SemelObject extends Hosted {
  /** `syncs`: how often the host asked whether all is durable. `calls`, `requests`: how often the object was called, and for how many requests. */
  #counts = { syncs: 0, calls: 0, requests: 0 };

  constructor(ctx, env) {
    super(ctx, env);
    const sync = ctx.storage.sync.bind(ctx.storage);
    ctx.storage.sync = () => {
      this.#counts.syncs += 1;
      aheadMs += syncMs;
      return sync();
    };
  }

  ask(...asked) {
    this.#count(1);
    const [, , , lines] = asked;
    return this.#under(faultOf(lines), () => super.ask(...asked));
  }

  askAll(calls) {
    this.#count(calls.length);
    const faults = calls.map(([, , , lines]) => faultOf(lines));
    // If one of them has a fault of its own, nothing is done here, and each is then asked for by itself.
    if (faults.some((fault) => fault !== "" && fault !== "counts" && fault !== "reset after" && !fault.startsWith("all "))) return [[], 0];
    const fault = faults.find((its) => its.startsWith("all "))?.slice("all ".length) ?? "";
    return this.#under(fault, () => super.askAll(calls));
  }

  #count(requests) {
    this.#counts.calls += 1;
    this.#counts.requests += requests;
  }

  async #under(fault, work) {
    const [what, argument] = fault.split(" ");
    // Nothing else of the object goes on meanwhile, as if it had more to do than it can.
    if (what === "held") {
      await this.ctx.blockConcurrencyWhile(async () => {
        while (!released.has(argument)) await pause(5);
      });
    }
    if (what === "hangs") await new Promise(() => {});
    // The platform's error for an object with too long a queue.
    if (what === "overloaded") throw Object.assign(new Error("Durable Object is overloaded."), { overloaded: true });
    if (what === "reset" && argument === "before") this.ctx.abort("reset");
    const answer = await work();
    // The answer is made, and is on its way for this long.
    if (what === "late") await pause(Number(argument));
    return answer;
  }

  alarm() {
    if (!alarms.fail) return super.alarm();
    alarms.failed += 1;
    throw new Error("the probe was asked to fail its alarm");
  }

  forget(beforeS) {
    if (beforeS % 10 === STUCK_S) throw new Error("the probe was asked to forget nothing");
    return super.forget(beforeS);
  }

  run(attempt, known) {
    const answer = super.run(attempt, known);
    const [, , , lines] = attempt();
    // This is in the turn of the commit, so what was written is not durable yet.
    if (faultOf(lines) === "reset after") this.ctx.abort("reset");
    if (faultOf(lines) === "counts") answer[1] += `probe-counts:${JSON.stringify(this.#counts)}\n`;
    return answer;
  }
}

/** If the instant of a job ends in this number of seconds, no key does its part. */
const STUCK_S = 7;

/** A registry that also takes many reports in one commit. */
export class SemelRegistry extends Registry {
  reports(shard, keys) {
    const now = Date.now();
    for (const [key, bytes] of keys) this.report(shard, [key, now, now, 1, 0, bytes, 1, 1, 0, 0]);
  }
}

/** A registry that fails on every report, and takes a minute to list. */
export class DeafRegistry extends DurableObject {
  async list() {
    await new Promise((resolve) => setTimeout(resolve, 60_000));
    return [0, []];
  }

  report() {
    throw new Error("the deaf registry was asked to listen");
  }
}

/** Has the registry list keys that need not exist: `[shard, [[key, bytes]…]]` of each shard. */
async function report(request, env) {
  const tell = ([shard, keys]) => env.REGISTRY.get(env.REGISTRY.idFromName(String(shard))).reports(shard, keys);
  await Promise.all((await request.json()).map(tell));
  return new Response();
}

/** How far the Worker's clock is ahead of the machine's. */
let aheadMs = 0;
/** The time at which the clock stands, if it does, and for how many more requests. */
let standsMs;
let standsFor = 0;
const machineNow = Date.now.bind(Date);
Date.now = () => (standsMs ?? machineNow()) + aheadMs;

/** How much the clock goes on each time that an object asks whether all is durable. */
let syncMs = 0;

/** Sets the time that each such question takes from now on. */
async function slowSyncs(request) {
  syncMs = Number(await request.text());
  return new Response();
}

/**
 * Puts the clock on by so many ms, so that no test waits in real time. Or stops it until so many requests have come: `stands for COUNT`. Each of
 * these finds all the time that it had when it was sent, however slowly it arrives; after them the clock shows the machine's time again. Answers with
 * what the clock shows.
 */
async function putOn(request) {
  const what = await request.text();
  const [, count] = /^stands for (\d+)$/.exec(what) ?? [];
  if (count === undefined) aheadMs += Number(what);
  else [standsMs, standsFor] = [machineNow(), Number(count)];
  return Response.json(Date.now());
}

/** Counts a request that has come. After the last one, the clock goes on. */
function goOn() {
  if (standsFor > 0) standsFor -= 1;
  if (standsFor === 0) standsMs = undefined;
}

/** Timers of so many ms or more that are set from now on never ring. */
let neverFromMs = Infinity;
const machineTimer = setTimeout;
const machineSignal = AbortSignal.timeout.bind(AbortSignal);
const NEVER_MS = 2 ** 31 - 1;
const unlessNever = (ms) => (ms >= neverFromMs ? NEVER_MS : ms);
globalThis.setTimeout = (act, ms, ...more) => machineTimer(act, unlessNever(ms), ...more);
AbortSignal.timeout = (ms) => machineSignal(unlessNever(ms));

/** Stops such timers, so that what a test looks at is not over before the test has seen it. */
async function stopTimers(request) {
  neverFromMs = Number(await request.text());
  return new Response();
}

/** How many requests have come to the Worker, apart from the probe's own. */
let came = 0;

/** The gates by name. A request whose `GATE_HEADER` names one waits, and goes on, together with others, once the name is released. */
const gates = new Map();
const GATE_HEADER = "probe-gate";

function gate(name) {
  if (!gates.has(name)) gates.set(name, Promise.withResolvers());
  return gates.get(name);
}

async function release(request) {
  const name = await request.text();
  released.add(name);
  gate(name).resolve();
  return new Response();
}

/**
 * A timer of the Worker decides whether a request is answered within so many ms of its arrival; the answer says so as `probe-in-time: yes` or `no`.
 * Of two timers of the Worker, the one that is due first fires first, however long the machine stands still.
 */
const BY_HEADER = "probe-by";

async function answeredBy(afterMs, answered) {
  let isInTime = true;
  const timer = setTimeout(() => (isInTime = false), afterMs);
  const answer = await answered;
  clearTimeout(timer);
  const told = new Response(answer.body, answer);
  told.headers.set("probe-in-time", isInTime ? "yes" : "no");
  return told;
}

async function passed(name) {
  // To the runtime, a request that waits for nothing of its own has hung.
  const timer = setTimeout(() => {}, 60_000);
  await gate(name).promise;
  clearTimeout(timer);
}

async function served(request, env) {
  const { headers } = request;
  if (headers.has(GATE_HEADER)) await passed(headers.get(GATE_HEADER));
  const answered = serve(request, env);
  goOn();
  return headers.has(BY_HEADER) ? answeredBy(Number(headers.get(BY_HEADER)), answered) : answered;
}

/** Has alarms fail from now on, or not. Answers with how many have failed. */
async function failAlarms(request) {
  if (request.method === "POST") alarms.fail = (await request.text()) === "fail";
  return Response.json(alarms.failed);
}

/**
 * Makes changes of keys, and answers with how many were in each call of a key's object. The body has for each key:
 * `[key, how many, characters of each head, bytes of each body, how long their callers wait in ms, how many turns lie between two (none by default)]`.
 * The objects are made up. A change that is asked for by itself is answered only once all were made.
 */
async function gather(request) {
  const calls = {};
  const asks = [];
  const asked = Promise.withResolvers();
  const askFor = async ([key, count, head, bytes, waitMs, turns = 0]) => {
    const sizes = (calls[key] ??= []);
    const answer = () => new Array(5);
    const object = {
      ask: async () => {
        sizes.push(1);
        await asked.promise;
        await pause(20);
        return answer();
      },
      askAll: async (all) => {
        sizes.push(all.length);
        return [all.map(answer), 0];
      },
    };
    const change = ["POST", "", "", "idempotency-key:".padEnd(head, "x"), new Uint8Array(bytes)];
    for (let number = 0; number < count; number += 1) {
      for (let turn = 0; turn < (number && turns); turn += 1) await pause(0);
      const { told, leave } = gathering.placeOf(key, () => object, change, Date.now() + waitMs) ?? {};
      asks.push(told ?? object.ask().finally(leave));
    }
  };
  await Promise.all((await request.json()).map(askFor));
  asked.resolve();
  await Promise.all(asks);
  return Response.json(calls);
}

/** Serves changes that come in one turn: `[path, headers, body]` of each. Answers with the status and the `Semel-Status` of each. */
async function together(request, env) {
  const { url } = request;
  const answers = (await request.json()).map(([path, headers, body]) => serve(new Request(new URL(path, url), { method: "POST", headers, body }), env));
  return Response.json((await Promise.all(answers)).map(({ status, headers }) => [status, headers.get("semel-status")]));
}

/** Tells whether so many changes, each with so many characters of a head and bytes of a body, go into the module together. */
async function group(request) {
  const [count, head, bytes] = await request.json();
  const attempts = Array.from({ length: count }, () => () => ["POST", "", "", "".padEnd(head, "x"), new Uint8Array(bytes), 0, 0]);
  const answers = gathering.group(attempts, { group: () => [] }, () => {});
  return Response.json(answers !== undefined);
}

/** Delivers messages of a queue, as the platform does. */
async function deliver(request, env) {
  const { queue, messages } = await request.json();
  const made = messages.map((message) => ({ ...message, timestamp: new Date(message.timestamp) }));
  return Response.json(await env.SELF.queue(queue, made));
}

export default {
  queue: consumer({ path: "/{does}" }),
  fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (pathname === "/probe/reports") return report(request, env);
    if (pathname === "/probe/alarms") return failAlarms(request);
    if (pathname === "/probe/clock") return putOn(request);
    if (pathname === "/probe/timers") return stopTimers(request);
    if (pathname === "/probe/syncs") return slowSyncs(request);
    if (pathname === "/probe/came") return Response.json(came);
    if (pathname === "/probe/release") return release(request);
    if (pathname === "/probe/gather") return gather(request);
    if (pathname === "/probe/group") return group(request);
    if (pathname === "/probe/together") return together(request, env);
    if (pathname === "/deliver") return deliver(request, env);
    came += 1;
    return served(request, env);
  },
};
