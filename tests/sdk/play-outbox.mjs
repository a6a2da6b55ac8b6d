// A play of an outbox: three tabs that call, ask, give up, close, freeze, go offline and die as chance has it, until it is calm.

import { Semel } from "../../sdk/npm/node.js";
import { Oracle } from "./play-oracle.mjs";
import { HEADERS_MS_MAX } from "./playing.mjs";
import { Stub, URL_OF_STUB } from "./stub.mjs";

const STEPS = 50;
const TABS = 3;
const IDS = 4;
/** So long an answer is kept for another tab, and a little. */
const KEPT_MS = 25 * 3_600_000;
/** Where calls go: path and key. The second path leads to the key of the first. */
const PLACES = [
  ["/accounts/a/deposit", undefined],
  ["/accounts/a/deposit", "accounts/a"],
  ["/accounts/a/withdraw", "accounts/a"],
  ["/accounts/b/deposit", undefined],
  ["/orders", "free"],
  ["/orders", "free"],
];
const OWN = [["/accounts/a/deposit", "accounts/a"], ["/accounts/a/deposit", "accounts/a"], ["/accounts/a/withdraw", undefined]];

export async function playOutbox(world) {
  const oracle = new Oracle(world);
  const server = serverOf(world, oracle);
  const intervals = { retryIntervalMs: world.oneOf(10, 10, 200), attemptTimeoutMs: world.oneOf(100, 100, 1_000) };
  const limits = { maxAttempts: world.oneOf(1, 2, 32), maxPending: world.oneOf(5, 1_000) };
  let opened = 0;

  const open = async (limited = limits) => {
    const page = world.page();
    page.number = opened += 1;
    const giveUpAfterMs = world.oneOf(60, 500, Infinity, Infinity);
    const tab = { name: `tab ${opened}`, page, giveUpAfterMs, taken: new Set() };
    world.says(`${tab.name} opens`);
    await page.run(async () => {
      const fetch = limitedFetch(world, page, server, limited.maxAttempts);
      const options = { url: URL_OF_STUB, identity: "alice", fetch, ...intervals, ...limited, giveUpAfterMs, headers: headersOf(world), onpaused: onpausedOf(world) };
      for (;;) {
        try {
          tab.semel = await Semel.open({ ...options, store: world.store(page) });
          break;
        } catch (error) {
          world.says(`${tab.name} could not open: ${error.message}`);
          await world.sleep(50);
        }
      }
      const { semel } = tab;
      tab.onrecovered = async (recovered) => {
        await world.pass(20);
        if (world.happens(0.2)) throw new Error("not taken");
        world.says(`${tab.name} recovers ${recovered.requestId} ${recovered.response?.status} ${recovered.error?.code} ${recovered.error?.executed}`);
        await oracle.recovers(tab.taken, tab.name, recovered);
      };
      // Until then answers are kept.
      const takes = () => (semel.onrecovered = tab.onrecovered);
      if (world.happens(0.2)) setTimeout(takes, 300);
      else takes();
      // What has an answer may be acknowledged before its caller goes on.
      semel.addEventListener("settled", ({ detail }) => oracle.ends(detail));
    });
    return tab;
  };

  const tabs = await Promise.all(Array.from({ length: TABS }, () => open()));
  for (let step = 0; step < STEPS; step += 1) {
    const at = world.below(TABS);
    const tab = tabs[at];
    const what = world.below(100);
    await world.pass(12);
    if (tab.page.isFrozen) {
      if (what < 15) thaw(world, tab);
      else if (what < 18) die(world, tab);
      else await world.pass(25);
    } else if (what < 46) makeCall(world, oracle, tab);
    else if (what < 50) {
      // Many at once go together, once what makes them do so is loaded: at the first of them.
      for (let times = 2; times > 0; times -= 1) {
        for (let many = world.oneOf(4, 12); many > 0; many -= 1) makeCall(world, oracle, tab, false, { place: ["/orders", "free"], ordered: false });
        await world.pass(6);
      }
    } else if (what < 58) ask(world, oracle, tab);
    else if (what < 62) {
      world.says(`${tab.name} closes`);
      await close(tab);
      tabs[at] = await open();
    } else if (what < 65) die(world, tab);
    else if (what < 69) freeze(world, tab);
    else if (what < 74) turnNetwork(world, tab);
    else if (what < 76) jump(world, tab);
    else if (what < 78) tab.page.hears(world.oneOf("pageshow", "visibilitychange", "resume", "pagehide"));
    else if (what < 79) tab.page.run(() => tab.semel.resume());
    else if (what < 80) tab.page.run(() => tab.semel.pending()).catch(() => {});
    else if (what < 82) cancelled(world, oracle, server);
    else if (what < 84) world.outage(world.oneOf("network", "store"), world.oneOf(30, 100, 300));
    else await world.pass(world.oneOf(25, 25, 25, 500));
    if (tabs[at].page.isGone) tabs[at] = await open();
  }
  await calms(world, oracle, tabs, open);
  return world;
}

function serverOf(world, oracle) {
  const server = new Stub();
  // The clocks of keys are of machines of their own.
  server.aheadMs = world.oneOf(0, 0, -3_600_000, 3_600_000);
  server.aheadMsOfKeys.set("free", server.aheadMs + world.oneOf(0, 50_000));
  server.lapses = (id) => !id.startsWith("id-");
  server.handler = ({ key, id, path, body }) => {
    if (world.happens(0.03)) throw server.problem(key, 500, "rolled-back", { executed: "no" });
    world.says(`runs ${key} ${id} ${path} ${body}`);
    return { status: world.oneOf(200, 200, 201, 404, 409), body: oracle.runs({ key, id, path, body }) };
  };
  const serve = (each) => async () => {
    try {
      return await each();
    } catch (refused) {
      if (refused instanceof Response) return refused;
      throw refused;
    }
  };
  server.each = (call, each) => {
    const { key, kind, id, body } = call;
    const acked = [...call.acks.map(([each]) => each), ...(kind === "acks" ? call.json.ids.map((each) => each.id ?? each) : [])];
    oracle.acknowledges((...of) => server.record(...of), key, acked);
    return world.carry(`${kind} ${key} ${id} ${body.slice(0, 60)} acknowledges ${acked}`, serve(each));
  };
  return server;
}

/** `fetch`, of which a page may have so many under way. Not of them: the clock, and what acknowledges. */
function limitedFetch(world, page, server, most) {
  const fetch = world.fetchOf(page, server);
  let underWay = 0;
  /** When each may be sent again. */
  const notBefore = new Map();
  return async (url, init) => {
    if (page.isClosed) world.faults.push(`${url} was sent though all is closed`);
    if (/health|acks$/.test(url) || init.keepalive) return fetch(url, init);
    if ((underWay += 1) > most) world.faults.push(`${underWay} attempts are under way, of at most ${most}`);
    let hasEnded = false;
    const ends = () => {
      if (!hasEnded) underWay -= 1;
      hasEnded = true;
    };
    init.signal.addEventListener("abort", ends);
    const id = init.headers.get?.("idempotency-key")?.replace(/"(cancel-)?/g, "");
    if (world.time.ms + page.steadyMs < notBefore.get(id)) world.faults.push(`${id} was sent sooner than the server asked for`);
    try {
      const answer = await fetch(url, init);
      const after = answer.headers.get("retry-after");
      if (after && !hasEnded) notBefore.set(id, world.time.ms + page.steadyMs + after * 1_000);
      return answer;
    } finally {
      ends();
    }
  };
}

function headersOf(world) {
  if (world.below(2)) return undefined;
  return async () => {
    await world.pass(HEADERS_MS_MAX);
    if (world.happens(0.05)) throw new Error("no token");
    return { authorization: "Bearer token" };
  };
}

function onpausedOf(world) {
  return ({ requestId, error, resume, giveUp }) => {
    world.says(`${requestId} pauses: ${error.code}`);
    // What is another's for good has nothing to wait for.
    const goesOn = world.isCalm ? error.code !== "fingerprint-mismatch" : world.happens(0.7);
    setTimeout(goesOn ? resume : giveUp, world.oneOf(1, 5, 50));
  };
}

/** A call, with an id of few or with none; alone in what it says then. */
function makeCall(world, oracle, { name, page, semel, giveUpAfterMs }, isOwn = world.below(10) < 5, given = {}) {
  const id = isOwn ? `id-${world.below(IDS)}` : undefined;
  const { place: [path, key] = world.oneOf(...(isOwn ? OWN : PLACES)), ordered = world.below(10) < 6 } = given;
  const body = isOwn ? `${id} ${world.below(2)}` : `call-${oracle.calls.length}`;
  const call = { tab: name, page, id, path, key, body, ordered, giveUpAfterMs, madeMs: world.time.ms, thaws: page.thaws, what: `${name}'s ${id} ${path} ${body}` };
  oracle.calls.push(call);
  world.says(`${name} calls ${id} ${path} ${key} ${body} ${ordered ? "in order" : ""}`);
  page.run(async () => {
    const aborting = new AbortController();
    if (world.happens(0.35)) setTimeout(() => aborting.abort(), world.below(world.oneOf(1, 40, 300)));
    try {
      await oracle.answers(call, await semel.fetch(path, { method: "POST", body: bodyOf(world, body), ordered, key, signal: aborting.signal, ...(id && { id }) }));
      world.says(`${call.what} is answered`);
    } catch (error) {
      call.error = error;
      world.says(`${call.what} is told ${error.code ?? error}, executed: ${error.executed}, ${error.requestId}`);
    }
    [call.isOver, call.endedMs] = [true, world.time.ms];
  });
}

/** Texts, and streams that take some time, or break off. */
function bodyOf(world, body) {
  if (!world.happens(0.2)) return body;
  const parts = [body.slice(0, 3), body.slice(3)];
  return new ReadableStream({
    async pull(into) {
      await world.pass(15);
      if (world.happens(0.1)) return into.error(new Error("the file is gone"));
      const part = parts.shift();
      return part === undefined ? into.close() : into.enqueue(new TextEncoder().encode(part));
    },
  });
}

function ask(world, oracle, { name, page, semel }) {
  const id = `id-${world.below(IDS)}`;
  const call = { page, id, isAsking: true, what: `${name} who asks for ${id}` };
  oracle.calls.push(call);
  world.says(call.what);
  page.run(async () => {
    const aborting = new AbortController();
    if (world.happens(0.2)) setTimeout(() => aborting.abort(), world.below(40));
    try {
      await oracle.takes(call.what, id, await semel.outcome(id, { signal: aborting.signal }));
    } catch (error) {
      call.asked = error;
      world.says(`${call.what} is told ${error.code ?? error}, executed: ${error.executed}`);
    }
    call.isOver = true;
  });
}

async function close({ page, semel }) {
  await page.run(() => semel.close());
  page.isClosed = true;
}

function die(world, { name, page }) {
  world.says(`${name} is gone`);
  page.goes();
}

function freeze(world, { name, page }) {
  world.says(`${name} is frozen`);
  // One in WebKit's cache of pages has lost its lock.
  page.isUnlit = world.happens(0.2);
  page.frozenMs = world.time.ms;
  page.freeze();
}

function thaw(world, { name, page }) {
  const ms = world.time.ms - page.frozenMs;
  const slept = world.happens(0.3) ? ms : 0;
  world.says(`${name} thaws after ${ms}, of which it slept ${slept}`);
  page.isUnlit = false;
  page.thaw(slept);
  page.hears(world.oneOf("pageshow", "resume"));
}

function turnNetwork(world, { name, page }) {
  world.says(`${name} goes ${page.isOnline ? "offline" : "online"}`);
  page.goesOffline(!page.isOnline);
}

function jump(world, { name, page }) {
  page.wallMs += world.oneOf(-3_600_000, -60_000, -10_000, -1_000, 1_000, 10_000, 60_000, 3_600_000);
  world.says(`the clock of ${name} is ${page.wallMs} ahead`);
}

/** Another device of the same user cancels what is under way. */
function cancelled(world, oracle, server) {
  const call = server.attempts.at(-1);
  if (!call?.id) return;
  const [id, deadline] = [`cancel-${call.id}`, String(Math.floor(server.now() + 1_000))];
  const headers = { "idempotency-key": `"${id}"`, "semel-principal": '"alice"', "semel-deadline": deadline };
  server.fetch(`${URL_OF_STUB}/semel/v1/keys/${call.key.replaceAll("/", "%2F")}/cancel`, { method: "POST", headers, body: JSON.stringify({ id: call.id }) }).catch(() => {});
}

/** All that was promised comes, and nothing is left. */
async function calms(world, oracle, tabs, open) {
  // What is doubled comes late, and where a page was frozen some time passes first.
  await world.pass(world.oneOf(25, 1_000, 150_000));
  world.isCalm = true;
  world.says("calm");
  for (const { page, semel, onrecovered } of tabs) {
    if (page.isFrozen) thaw(world, { page });
    if (!page.isOnline) page.goesOffline(true);
    page.run(() => Object.assign(semel, { onrecovered }));
    if (world.hasPresence && world.below(2)) continue;
    await close({ page, semel });
  }
  // What is stored now is found at the next look: where nobody can tell who lives, there is none.
  await world.sleep(5_000);
  const last = await open({ maxAttempts: 32, maxPending: 1_000 });
  await world.comesTo(() => `nobody waits: ${oracle.waiting.map(({ what }) => what)}`, () => !oracle.waiting.length);
  await world.comesTo(() => "nothing is pending", async () => !(await last.page.run(() => last.semel.pending())).length);
  const counts = JSON.stringify(last.semel.getSnapshot());
  if (counts !== '{"pending":0,"paused":0,"online":true}') world.faults.push(`what is shown in the end: ${counts}`);
  for (const tab of [...tabs, last]) await close(tab);
  await world.sleep(KEPT_MS);
  // What was kept, and had still to be acknowledged, is let go of at the look after that.
  for (let many = 0; many < 3 && (many === 0 || world.rows.size); many += 1) {
    const next = await open({ maxAttempts: 32, maxPending: 1_000 });
    makeCall(world, oracle, next, false);
    await world.sleep(20_000);
    await close(next);
  }
  if (world.rows.size) world.faults.push(`left in the store: ${[...world.rows.keys()]}`);
  oracle.checkEnds();
  oracle.checkTold();
  oracle.checkPatience();
  oracle.checkOrder();
}
