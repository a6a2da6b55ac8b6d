// Tabs of one outbox, in a world where anything may fail, which use few ids for many payloads: an id runs once, and nobody is told what is not so.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Semel } from "../../sdk/npm/node.js";
import { CALM_MS_MAX, played } from "./playing.mjs";
import { Stub, until, URL_OF_STUB, within } from "./stub.mjs";

const PLAYS = 48;
const STEPS = 40;
const TABS = 3;
const IDS = 8;

test("of few ids for many payloads each runs once, its answer goes to who asked for that, and nothing is acknowledged that nobody has", { timeout: 120_000 }, async (t) => {
  t.mock.method(console, "error", () => {});
  assert.deepEqual(await played(PLAYS, play), []);
});

async function play(world) {
  const { faults, log } = world;
  const [ran, heard, told, waiting] = [new Map(), new Set(), [], []];
  const server = new Stub();
  server.handler = ({ id, body }) => {
    ran.set(id, [...(ran.get(id) ?? []), body]);
    return { status: 200, body: { id, body } };
  };
  server.each = (call, serve) => {
    const { key, kind, id, body } = call;
    const acked = [...call.acks.map(([each]) => each), ...(kind === "acks" ? call.json.ids.map((each) => each.id ?? each) : [])];
    // Each cancellation has an id of its own.
    for (const each of acked) if (server.record(key, each)?.state === "executed" && ran.has(each) && !heard.has(each)) faults.push(`${each} was acknowledged, and nobody has its answer`);
    return world.carry(`${kind} ${id} ${body} acknowledges ${acked}`, () => serve());
  };
  const take = async (what, id, response) => {
    const said = await response.json();
    heard.add(said.id);
    if (id !== undefined && said.id !== id) faults.push(`${what} ${id} got the answer to ${said.id}`);
    return said;
  };

  let opened = 0;
  const open = async () => {
    const tab = `tab ${(opened += 1)}`;
    const onrecovered = async ({ requestId, response }) => {
      if (world.happens(0.2)) throw new Error("not taken");
      if (response) await take("who recovers", requestId, response);
    };
    // What is another's for good has nothing to wait for.
    const onpaused = ({ resume, giveUp }) => (world.happens(0.7) ? setTimeout(resume, 5) : giveUp());
    const giveUpAfterMs = world.below(10) < 3 ? 60 : Infinity;
    const semel = await Semel.open({ url: URL_OF_STUB, identity: "alice", fetch: server.fetch, store: world.store(), retryIntervalMs: 10, attemptTimeoutMs: 100, giveUpAfterMs, onrecovered, onpaused });
    // What has an answer may be acknowledged before its caller goes on.
    semel.addEventListener("settled", ({ detail }) => detail.status && heard.add(detail.requestId));
    log.push(`${tab} opens`);
    return { tab, semel };
  };

  const call = async ({ tab, semel }, own) => {
    const body = `${own} ${world.below(2)}`;
    const aborting = new AbortController();
    if (world.happens(0.3)) setTimeout(() => aborting.abort(), world.below(40));
    const [key, id, ordered] = [world.oneOf("accounts/a", undefined), world.below(10) < 7 ? own : undefined, world.below(10) < 6];
    log.push(`${tab} calls ${id} ${body}`);
    try {
      const said = await take("who calls", id, await semel.fetch("/accounts/a/deposit", { method: "POST", body, ordered, key, signal: aborting.signal, ...(id && { id }) }));
      if (said.body !== body) faults.push(`who calls ${id} ${body} got the answer to ${said.body}`);
    } catch (error) {
      log.push(`${id} ${body} is told ${error.code}, executed: ${error.executed}`);
      told.push([error, body]);
    }
  };

  const tabs = await Promise.all(Array.from({ length: TABS }, open));
  for (let step = 0; step < STEPS; step += 1) {
    const [at, what, id] = [world.below(TABS), world.below(100), `id-${world.below(IDS)}`];
    if (what < 55) waiting.push(call(tabs[at], id));
    else if (what < 70) waiting.push(tabs[at].semel.outcome(id).then((response) => take("who asks for", id, response), (error) => told.push([error])));
    else if (what < 80) {
      await tabs[at].semel.close();
      tabs[at] = await open();
    } else await world.pass(25);
  }
  // A row that is stored once the last tab has loaded is found as that looks again, after five seconds: most are there by then.
  await sleep(100);
  world.isCalm = true;
  for (const { semel } of tabs) await semel.close();
  world.living.clear();
  const last = await open();
  try {
    await within(Promise.all(waiting), "somebody waits", CALM_MS_MAX);
    await until(async () => (await last.semel.pending()).length === 0, "nothing is pending", CALM_MS_MAX);
  } catch (error) {
    faults.push(error.message);
  }
  await last.semel.close();

  for (const [id, bodies] of ran) if (bodies.length > 1) faults.push(`${id} ran as ${bodies}`);
  for (const [error, body] of told) {
    const bodies = ran.get(error.requestId);
    // Of an id that is in use for another payload, only that one is known to have run.
    const isKnown = body === undefined || bodies === undefined || bodies.includes(body);
    if (isKnown && error.requestId) world.checkTold(`${error.requestId} ${body}`, error, bodies !== undefined);
  }
  return world;
}
