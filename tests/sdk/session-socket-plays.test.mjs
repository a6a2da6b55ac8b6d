// Sessions by sockets that are played by chance: one does not open, or hangs, it is closed by either side, what is sent on it is worked off late, twice or
// after it was closed, and what comes back is late, twice, another's, broken or nothing at all.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Semel } from "../../sdk/npm/node.js";
import { CALM_MS_MAX, played } from "./playing.mjs";
import { deposit, SessionStub } from "./session-stub.mjs";
import { until, within } from "./stub.mjs";

const PLAYS = 32;
const STEPS = 40;
const TABS_MAX = 3;
/** Two frames are under way only where more calls than half a window wait. */
const CALLS_MAX = 80;
const CLOSINGS = [[4401, "unauthorized"], [4429, "rate-limited"], [4503, "unavailable"], [4400, "body-invalid"], [4413, "too-large"], [1001, ""], [4999, ""]];

/** The world and the server of each play, by the name of its host. */
const plays = new Map();
const before = globalThis.WebSocket;
after(() => (globalThis.WebSocket = before));

globalThis.WebSocket = class {
  readyState = 0;
  #world;
  #server;
  #hasBegun = false;
  /** The answers to the frame before. */
  #before = [];
  /** What was sent is worked off in order. */
  #last;

  constructor(url) {
    [this.#world, this.#server] = plays.get(new URL(url).host);
    this.#last = this.#open();
  }

  async #open() {
    await this.#world.pass(15);
    if (this.#world.happens(0.08)) return;
    if (this.#world.happens(this.#world.lossy)) return this.#end(1006, "");
    if (this.readyState !== 0) return;
    this.readyState = 1;
    this.onopen();
  }

  send(text) {
    if (this.readyState === 0) throw new Error("it is not open yet");
    if (this.readyState > 1) return;
    for (let times = this.#world.happens(0.05) ? 2 : 1; times > 0; times -= 1) this.#last = this.#last.then(() => this.#work(text));
  }

  close() {
    if (this.readyState > 1) return;
    this.readyState = 2;
    setTimeout(() => this.#end(1005, ""), this.#world.below(20));
  }

  #end(code, reason) {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.#world.log.push(`a socket ends: ${code}`);
    this.onclose({ code, reason });
  }

  #say(data) {
    if (this.readyState === 1 || (this.readyState === 2 && this.#world.happens(0.5))) this.onmessage({ data });
  }

  /** What is under way when a socket is closed may be worked off all the same. */
  async #work(text) {
    const world = this.#world;
    await world.pass(12);
    if (this.readyState > 1 && world.happens(0.6)) return;
    const { frame, requests } = JSON.parse(text);
    if (!this.#hasBegun) {
      this.#hasBegun = true;
      return;
    }
    // The first of all, twice.
    if (frame === undefined) return this.#end(4400, "body-invalid");
    if (world.happens(world.lossy / 2)) return this.#end(1006, "");
    if (world.happens(0.05)) return this.#end(...world.oneOf(...CLOSINGS));
    const answers = JSON.parse(this.#server.batch(requests));
    world.log.push(`frame ${frame}: ${requests.map(({ body }, at) => `${body} ${answers[at].headers["semel-status"]}`)}`);
    await world.pass(10);
    const answer = JSON.stringify({ frame, now: 1, answers });
    const befalls = (share, ...said) => world.happens(share) && (said.forEach((data) => this.#say(data)), true);
    const fewer = JSON.stringify({ frame, now: 1, answers: answers.slice(1) });
    const another = JSON.stringify({ frame: frame + 1_000, now: 1, answers: this.#before });
    this.#before = answers;
    if (befalls(0.03, answer.slice(0, world.below(answer.length))) || befalls(0.02, new Uint8Array(3)) || befalls(0.02, "") || befalls(0.02, fewer) || befalls(0.03)) return;
    befalls(0.1, another);
    if (world.happens(world.lossy / 2)) return this.#end(1006, "");
    this.#say(answer);
    befalls(0.1, answer);
  }
};

test("whatever befalls sockets, each call of a session runs once, in order, its answer goes to who made it, and what is said of it is true", { timeout: 240_000 }, async (t) => {
  t.mock.method(console, "error", () => {});
  assert.deepEqual(await played(PLAYS, play), []);
});

async function play(world) {
  const { faults, log } = world;
  const server = new SessionStub();
  server.each = ({ path, elements }, serve) => world.carry(`${path} ${JSON.stringify(elements)}`, serve);
  const host = `play${plays.size}.test`;
  plays.set(host, [world, server]);
  const transport = world.oneOf("socket", "auto");
  // In memory places are given at once, so two frames are under way; and what is closed is lost.
  const isInMemory = world.below(2) === 0;
  const [calls, answered, told, aborted] = [[], new Set(), new Map(), new Set()];
  let opened = 0;

  const headers = async () => {
    await world.pass(8);
    if (world.happens(0.03)) throw new Error("there is no token");
    return { authorization: "Bearer t" };
  };
  const open = async () => {
    const tab = (opened += 1);
    const semel = await Semel.open({ url: `https://${host}`, identity: "alice", fetch: server.fetch, headers, durability: "memory", retryIntervalMs: 10, attemptTimeoutMs: 100 });
    const onrecovered = async ({ response }) => response && answered.add((await response.json()).ran);
    const onpaused = ({ error, resume }) => {
      if (error.executed === "no") faults.push(`it pauses, and says that nothing ran: ${error.code}`);
      setTimeout(resume, 5);
    };
    const session = await semel.session("accounts/a", "s", { transport, store: isInMemory ? undefined : world.store(), onrecovered, onpaused });
    log.push(`tab ${tab} has epoch ${session.epoch}, after ${session.lastSeq}`);
    return { tab, semel, session };
  };

  const call = ({ tab, session }, body) => {
    const aborting = new AbortController();
    if (world.happens(0.1)) setTimeout(() => aborting.abort(aborted.add(body)), world.below(40));
    // The platform's own, which no batch has: it goes alone.
    const own = world.happens(0.04) ? { "cf-own": body } : {};
    const answer = async () => {
      try {
        const { ran } = await (await deposit(session, body, { headers: own, signal: aborting.signal })).json();
        if (ran !== body) faults.push(`${body} got the answer to ${ran}`);
        answered.add(body);
      } catch (error) {
        log.push(`${body} is told ${error.code}, executed: ${error.executed}`);
        told.set(body, error);
      }
    };
    calls.push({ tab, body, settled: answer() });
  };

  const tabs = [await open()];
  for (let step = 0; step < STEPS; step += 1) {
    const [at, what] = [world.below(tabs.length), world.below(100)];
    if (!tabs[at]) tabs[at] = await open();
    else if (what < 40) call(tabs[at], `b${step}`);
    else if (what < 60) for (let many = world.below(CALLS_MAX); many > 0; many -= 1) call(tabs[at], `b${step}-${many}`);
    else if (what < 62) {
      log.push(`tab ${tabs[at].tab} closes`);
      await tabs[at].semel.close();
      tabs[at] = undefined;
    } else if (what < 64 && tabs.length < TABS_MAX) tabs.push(await open());
    else await world.pass(120);
  }
  world.isCalm = true;
  const holder = tabs.filter(Boolean).reduce((one, other) => (!one || other.session.epoch > one.session.epoch ? other : one), undefined) ?? (await open());
  let last = holder;
  try {
    call(holder, "last");
    await within(Promise.all(calls.map(({ settled }) => settled)), "somebody waits", CALM_MS_MAX);
    for (const { semel } of [holder, ...tabs.filter(Boolean)]) await semel.close();
    last = await open();
    await until(() => world.rows.size === 0, "nothing is left in the store", CALM_MS_MAX);
  } catch (error) {
    faults.push(error.message);
  }
  for (const { semel } of [last, holder, ...tabs.filter(Boolean)]) await semel.close();

  const { effects } = server;
  if (new Set(effects).size < effects.length) faults.push(`something ran twice: ${effects}`);
  for (const body of answered) if (!effects.includes(body)) faults.push(`${body} has an answer, and never ran`);
  for (const [body, error] of told) world.checkTold(body, error, effects.includes(body));
  for (const body of effects) if (!answered.has(body) && !aborted.has(body) && told.get(body)?.code !== (isInMemory ? "closed" : "store-failed")) faults.push(`${body} ran, and nobody has its answer`);
  for (let tab = 1; tab <= opened; tab += 1) {
    const ran = calls.filter((call) => call.tab === tab && effects.includes(call.body) && !told.has(call.body)).map(({ body }) => effects.indexOf(body));
    if (ran.some((at, index) => at < ran[index - 1])) faults.push(`what tab ${tab} asked for ran out of order: ${effects}`);
  }
  return world;
}
