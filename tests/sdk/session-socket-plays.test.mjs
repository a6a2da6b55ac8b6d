// Plays at random with sessions over sockets. A socket may not open, or hang, or be closed by either side. The server may handle a frame late, twice,
// or after the socket was closed. An answer may come late or twice, be for another frame, be broken, or never come.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Semel } from "../../sdk/npm/node.js";
import { bodyIn, befallElements } from "./play-session.mjs";
import { HEADERS_MS_MAX, played, playedOnce } from "./playing.mjs";
import { SessionStub } from "./session-stub.mjs";

const PLAYS = 32;
const STEPS = 40;
const TABS_MAX = 3;
/** Two frames are under way at the same time only if more calls wait than half a window takes. */
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
  /** The answers to the previous frame. */
  #before = [];
  /** The end of the queue in which frames are handled, in order. */
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
    this.#world.says(`a socket ends: ${code}`);
    this.onclose({ code, reason });
  }

  #say(data) {
    if (this.readyState === 1 || (this.readyState === 2 && this.#world.happens(0.5))) this.onmessage({ data });
  }

  /** Handles a frame. A frame that is under way when the socket is closed may be handled all the same. */
  async #work(text) {
    const world = this.#world;
    await world.pass(12);
    if (this.readyState > 1 && world.happens(0.6)) return;
    const { frame, requests } = JSON.parse(text);
    if (!this.#hasBegun) {
      this.#hasBegun = true;
      return;
    }
    // The first frame, which has the credentials, came twice.
    if (frame === undefined) return this.#end(4400, "body-invalid");
    if (world.happens(world.lossy / 2)) return this.#end(1006, "");
    if (world.happens(0.05)) return this.#end(...world.oneOf(...CLOSINGS));
    const answers = JSON.parse(this.#server.batch(requests));
    world.says(`frame ${frame}: ${requests.map(({ body }, at) => `${body} ${answers[at].headers["semel-status"]}`)}`);
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

test("whatever befalls its sockets, a session runs each call once, in order, and tells its maker only what is true", { timeout: 240_000 }, async (t) => {
  for (const name of ["error", "warn"]) t.mock.method(console, name, () => {});
  assert.deepEqual(await played(PLAYS, play), []);
});

test("the same seed plays the same session over sockets again", { timeout: 120_000 }, async (t) => {
  for (const name of ["error", "warn"]) t.mock.method(console, name, () => {});
  const [one, other] = [await playedOnce(3, play), await playedOnce(3, play)];
  assert.ok(one.log.length > 100);
  assert.deepEqual(other.log, one.log);
});

async function play(world) {
  const { faults } = world;
  const server = new SessionStub();
  befallElements(world, server);
  server.each = ({ path, elements }, serve) => world.carry(`${path} ${JSON.stringify(elements)}`, async () => serve());
  const host = `play${plays.size}.test`;
  plays.set(host, [world, server]);
  const transport = world.oneOf("socket", "auto");
  // With rows in memory, places are given at once, so two frames can be under way, and a closed tab loses its calls.
  const isInMemory = world.below(2) === 0;
  const [calls, answered, told, recovered, aborted] = [[], new Set(), new Map(), [], new Set()];
  const checkAnswer = (body, { ran }) => {
    if (ran !== body) faults.push(`${body} got the answer to ${ran}`);
    answered.add(ran);
  };
  let opened = 0;

  const headers = async () => {
    await world.pass(HEADERS_MS_MAX);
    if (world.happens(0.03)) throw new Error("there is no token");
    return { authorization: "Bearer t" };
  };
  const open = () => {
    const page = world.page();
    return page.run(openIn, page);
  };
  const openIn = async (page) => {
    const tab = (opened += 1);
    const semel = await Semel.open({ url: `https://${host}`, identity: "alice", fetch: world.fetchOf(page, server), headers, durability: "memory", retryIntervalMs: 10, attemptTimeoutMs: 100 });
    const onrecovered = async ({ response, error, url }) => {
      const body = bodyIn(url);
      if (error) recovered.push([body, error]);
      else checkAnswer(body, await response.json());
    };
    const onpaused = ({ error, resume }) => {
      // By HTTP, the refusal of a whole batch may say that nothing ran.
      if (error.executed === "no" && transport === "socket") faults.push(`it pauses, and says that nothing ran: ${error.code}`);
      setTimeout(resume, 5);
    };
    for (;;) {
      try {
        const session = await semel.session("accounts/a", "s", { transport, store: isInMemory ? undefined : world.store(page), onrecovered, onpaused });
        world.says(`tab ${tab} has epoch ${session.epoch}, after ${session.lastSeq}`);
        return { tab, page, semel, session };
      } catch (error) {
        world.says(`tab ${tab} could not open: ${error.message}`);
        await world.sleep(10);
      }
    }
  };

  const call = (at, body) => at.page.run(callIn, at, body);
  const callIn = ({ tab, session }, body) => {
    const aborting = new AbortController();
    if (world.happens(0.1)) setTimeout(() => aborting.abort(aborted.add(body)), world.below(40));
    // No batch accepts a header of the platform (`cf-`), so such a call goes alone.
    const own = world.happens(0.04) ? { "cf-own": body } : {};
    const answer = async () => {
      try {
        checkAnswer(body, await (await session.fetch(`/accounts/a/deposit?${body}`, { method: "POST", body, headers: own, signal: aborting.signal })).json());
      } catch (error) {
        world.says(`${body} is told ${error.code}, executed: ${error.executed}`);
        told.set(body, error);
      }
    };
    const made = { tab, body, isSettled: false };
    calls.push(made);
    answer().then(() => (made.isSettled = true));
  };

  const close = ({ page, semel }) => page.run(() => semel.close());

  const tabs = [await open()];
  for (let step = 0; step < STEPS; step += 1) {
    const [at, what] = [world.below(tabs.length), world.below(100)];
    if (!tabs[at]) tabs[at] = await open();
    else if (what < 40) call(tabs[at], `b${step}`);
    else if (what < 60) for (let many = world.below(CALLS_MAX); many > 0; many -= 1) call(tabs[at], `b${step}-${many}`);
    else if (what < 62) {
      world.says(`tab ${tabs[at].tab} closes`);
      await close(tabs[at]);
      tabs[at] = undefined;
    } else if (what < 64 && tabs.length < TABS_MAX) tabs.push(await open());
    else await world.pass(120);
  }
  world.isCalm = true;
  const holder = tabs.filter(Boolean).reduce((one, other) => (!one || other.session.epoch > one.session.epoch ? other : one), undefined) ?? (await open());
  call(holder, "last");
  const waiting = () => calls.filter(({ isSettled }) => !isSettled).map(({ body }) => body);
  await world.comesTo(() => `nobody waits: ${waiting()}`, () => waiting().length === 0);
  for (const each of [holder, ...tabs.filter(Boolean)]) await close(each);
  // A closed tab may still store what it was asked to. And tabs that can't tell which others live look only once for what those left.
  await world.sleep(5_000);
  const last = await open();
  await world.comesTo(() => `nothing is left in the store: ${[...world.rows.keys()]}`, () => world.rows.size === 0);
  await close(last);

  const { effects } = server;
  if (new Set(effects).size < effects.length) faults.push(`something ran twice: ${effects}`);
  for (const body of answered) if (!effects.includes(body)) faults.push(`${body} has an answer, and never ran`);
  for (const [body, error] of [...told, ...recovered]) world.checkTold(body, error, effects.includes(body));
  const forgone = isInMemory ? "closed" : "store-failed";
  // Tabs without a common store, or which can't tell who lives, don't wait for each other. So an outcome may be acknowledged before its tab hears it.
  const mayBeAcknowledged = isInMemory || !world.hasPresence;
  const isAcknowledged = (body) => mayBeAcknowledged && [...told, ...recovered].some(([whose, { code }]) => whose === body && code === "acknowledged");
  for (const body of effects) if (!answered.has(body) && !aborted.has(body) && told.get(body)?.code !== forgone && !isAcknowledged(body)) faults.push(`${body} ran, and nobody has its answer`);
  // If a store reports a row as lost and still has it, the row belongs to another tab from then on. If nobody can tell who lives, several tabs have
  // the row.
  const isOrdered = world.lost.size === 0 && (isInMemory || world.hasPresence);
  for (let tab = 1; tab <= opened && isOrdered; tab += 1) {
    const ran = calls.filter((call) => call.tab === tab && effects.includes(call.body) && !told.has(call.body)).map(({ body }) => effects.indexOf(body));
    if (ran.some((at, index) => at < ran[index - 1])) faults.push(`what tab ${tab} asked for ran out of order: ${effects}`);
  }
}
