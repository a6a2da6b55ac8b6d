// Tabs that take a session over from each other, in a world where anything may fail: each call runs once, and nobody is told what is not so.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Semel } from "../../sdk/npm/node.js";
import { CALM_MS_MAX, played } from "./playing.mjs";
import { deposit, SessionStub } from "./session-stub.mjs";
import { until, URL_OF_STUB, within } from "./stub.mjs";

const PLAYS = 48;
const STEPS = 50;
const TABS_MAX = 3;

test("of calls in a session that goes from tab to tab each runs once, its answer goes to who made it, and what is said of it is true", { timeout: 120_000 }, async (t) => {
  t.mock.method(console, "error", () => {});
  assert.deepEqual(await played(PLAYS, play), []);
});

async function play(world) {
  const { faults, log } = world;
  const server = new SessionStub();
  server.each = ({ path, elements }, serve) => world.carry(`${path} ${JSON.stringify(elements)}`, serve);
  const told = new Map();
  const [answered, aborted, waiting] = [new Set(), new Set(), []];
  let opened = 0;

  const open = async () => {
    const tab = `tab ${(opened += 1)}`;
    const semel = await Semel.open({ url: URL_OF_STUB, identity: "alice", fetch: server.fetch, durability: "memory", retryIntervalMs: 10, attemptTimeoutMs: 100 });
    const onrecovered = async ({ response, error, requestId }) => {
      if (world.happens(0.2)) throw new Error("not taken");
      log.push(`${tab} recovers ${requestId}: ${error?.code}`);
      if (response) answered.add((await response.json()).ran);
    };
    const session = await semel.session("accounts/a", "s", { store: world.store(), onrecovered });
    log.push(`${tab} has epoch ${session.epoch}, after ${session.lastSeq}`);
    return { tab, semel, session };
  };

  const call = async ({ tab, session }, body) => {
    const aborting = new AbortController();
    if (world.happens(0.3)) setTimeout(() => aborting.abort(aborted.add(body)), world.below(40));
    // What has a header of its own goes alone, and not with others.
    const headers = world.happens(0.15) ? { "x-alone": body } : {};
    log.push(`${tab} calls ${body}`);
    try {
      const { ran } = await (await deposit(session, body, { headers, signal: aborting.signal })).json();
      if (ran !== body) faults.push(`${body} got the answer to ${ran}`);
      answered.add(body);
    } catch (error) {
      log.push(`${body} is told ${error.code}, executed: ${error.executed}`);
      told.set(body, error);
    }
  };

  const tabs = [await open()];
  for (let step = 0; step < STEPS; step += 1) {
    const [at, what] = [world.below(tabs.length), world.below(100)];
    if (!tabs[at]) tabs[at] = await open();
    else if (what < 60) waiting.push(call(tabs[at], `b${step}`));
    else if (what < 64) {
      const { tab, semel, session } = tabs[at];
      log.push(`${tab} closes`);
      if (what < 62) session.close();
      else await semel.close();
      tabs[at] = undefined;
    } else if (what < 70 && tabs.length < TABS_MAX) tabs.push(await open());
    else await world.pass(25);
  }
  world.isCalm = true;
  for (const tab of tabs) await tab?.semel.close();
  world.living.clear();
  const last = await open();
  try {
    await within(Promise.all([...waiting, call(last, "last")]), "somebody waits", CALM_MS_MAX);
    await until(() => world.rows.size === 0, "nothing is left in the store", CALM_MS_MAX);
  } catch (error) {
    faults.push(error.message);
  }
  await last.semel.close();

  if (new Set(server.effects).size < server.effects.length) faults.push(`something ran twice: ${server.effects}`);
  for (const body of answered) if (!server.effects.includes(body)) faults.push(`${body} has an answer, and never ran`);
  for (const [body, error] of told) world.checkTold(body, error, server.effects.includes(body));
  for (const body of server.effects) {
    const isForgone = aborted.has(body) || told.get(body)?.code === "store-failed";
    if (!answered.has(body) && !isForgone) faults.push(`${body} ran, and nobody has its answer`);
  }
  return world;
}
