// A play of an outbox: three tabs randomly call, ask, give up, close, freeze, go offline and die, until everything is calm.

import { actsWithin, close, EVENTS } from "./play-callbacks.mjs";
import { anyOf, ask, idOf, makeCall, OWN } from "./play-calls.mjs";
import { isOfPayload, Oracle } from "./play-oracle.mjs";
import { HEADERS_MS_MAX, semelOf } from "./playing.mjs";
import { problem, Stub, URL_OF_STUB } from "./stub.mjs";

const STEPS = 50;
const TABS = 3;
/** A little longer than an answer is kept for another tab. */
const KEPT_MS = 25 * 3_600_000;
/** What may happen to a tab, with weights. In some plays, some of it is more likely. */
const STEPS_OF = { call: 38, burst: 4, together: 4, ask: 8, close: 4, die: 3, giveUp: 3, freeze: 4, network: 5, jump: 2, hear: 2, resume: 1, pending: 1, cancel: 2, outage: 2, stall: 1, poison: 2, anew: 2, thrownAway: 0, forget: 0, backup: 0, login: 2, wait: 20 };

export async function playOutbox(world) {
  const oracle = new Oracle(world);
  const server = serverOf(world, oracle);
  const dials = dialsOf(world);
  Object.assign(world, { isGuarded: dials.isGuarded, tokens: 1 });
  const intervals = { retryIntervalMs: world.oneOf(10, 10, 200), attemptTimeoutMs: world.oneOf(100, 100, 1_000) };
  const limits = { maxAttempts: world.oneOf(1, 2, 32), maxPending: world.oneOf(5, 1_000) };
  const tabs = [];
  let opened = 0;

  const open = async (identity = world.oneOf(...dials.identities), limited = limits) => {
    const page = world.page();
    page.number = opened += 1;
    const giveUpAfterMs = world.oneOf(60, 500, Infinity, Infinity);
    const tab = { name: `tab ${opened}`, page, giveUpAfterMs, taken: new Set(), identity, tabs, dials };
    // Another tab is opened in its place.
    tab.closes = async () => {
      world.says(`${tab.name} closes`);
      close(tab);
      tabs[tabs.indexOf(tab)] = await open();
    };
    // Called by everything that calls the application.
    page.calls = (where) => actsWithin(world, oracle, tab, where);
    page.openedMs = world.time.ms;
    world.says(`${tab.name} opens`);
    if (world.happens(dials.opensFrozen)) world.outside.run(() => freezesFor(world, tab, world.oneOf(100, 40_000, 100_000)));
    await page.run(async () => {
      const fetch = limitedFetch(world, oracle, page, server, limited.maxAttempts);
      const options = { url: URL_OF_STUB, identity, ids: dials.ids, fetch, ...intervals, ...limited, giveUpAfterMs, headers: headersOf(world, tab), onpaused: onpausedOf(world, page) };
      for (;;) {
        try {
          tab.semel = await semelOf(page).open({ ...options, store: world.store(page) });
          break;
        } catch (error) {
          world.says(`${tab.name} could not open: ${error.message}`);
          // It always answers what is read.
          if (error.code === "store-blocked") world.faults.push(`${tab.name} was told that its store is blocked`);
          await world.sleep(50);
        }
      }
      const { semel } = tab;
      tab.onrecovered = async (recovered) => {
        page.calls("onrecovered");
        await world.pass(20);
        if (world.happens(0.2)) throw new Error("not taken");
        world.says(`${tab.name} recovers ${recovered.requestId} ${recovered.response?.status} ${recovered.error?.code} ${recovered.error?.executed}`);
        await oracle.recovers(tab, recovered);
      };
      // Until it is set, answers are kept.
      const takes = () => (semel.onrecovered = tab.onrecovered);
      if (world.happens(0.2)) setTimeout(takes, 300);
      else takes();
      // A request with an answer may be acknowledged before its caller goes on.
      semel.addEventListener("settled", ({ detail }) => oracle.ends(detail));
      for (const event of EVENTS) semel.addEventListener(event, () => page.calls(event));
      semel.subscribe(() => page.calls("subscribe"));
    });
    return tab;
  };

  tabs.push(...(await Promise.all(Array.from({ length: TABS }, () => open()))));
  for (let step = 0; step < STEPS; step += 1) {
    const at = world.below(TABS);
    const tab = tabs[at];
    await world.pass(12);
    if (tab.page.isFrozen) {
      const what = world.below(100);
      if (what < 15) thaw(world, tab);
      else if (what < 18) die(world, oracle, tab);
      else await world.pass(25);
    } else {
      await STEP[dials.step()](world, oracle, tab, server);
    }
    if (tabs[at].page.isGone || tabs[at].page.isClosed) tabs[at] = await open();
  }
  await calms(world, oracle, tabs, open, dials.identities);
  return world;
}

/** The probabilities of this play. */
function dialsOf(world) {
  const more = { ...STEPS_OF };
  for (const name of ["call", "burst", "ask", "close", "network", "outage", "stall", "anew"]) more[name] *= world.oneOf(1, 1, 1, 4);
  for (const name of ["thrownAway", "forget", "backup"]) more[name] = world.oneOf(0, 0, 0, 0, 3);
  const all = Object.entries(more).flatMap(([name, many]) => Array.from({ length: many }, () => name));
  return {
    step: () => world.oneOf(...all),
    own: world.oneOf(0.2, 0.5, 0.8),
    /** How many ids the application has. */
    many: world.oneOf(1, 2, 4),
    places: world.oneOf(OWN, OWN.slice(0, 1)),
    ids: world.oneOf("uuid", "uuid", "uuid", "hash"),
    identities: world.oneOf(["alice"], ["alice"], ["alice"], ["alice", "bob"]),
    /** How likely a caller that is told the end of a call makes the same id again. */
    again: world.oneOf(0, 0.2, 0.6),
    aborts: world.oneOf(0.1, 0.35, 0.7),
    /** How likely the application acts while it is called. */
    acts: world.oneOf(0, 0, 0.05, 0.2),
    /** How likely a page is frozen before its store has answered for the first time. */
    opensFrozen: world.oneOf(0, 0, 0.3),
    /** Whether the server demands a token, which is renewed from time to time. */
    isGuarded: world.below(3) === 0,
  };
}

const STEP = {
  call: (world, oracle, tab) => makeCall(world, oracle, tab),
  // The same id several times at once, by this tab and others.
  burst: (world, oracle, tab) => {
    const id = idOf(world, tab.dials);
    for (let many = world.oneOf(2, 2, 4); many > 0; many -= 1) makeCall(world, oracle, anyOf(world, tab), true, { id });
  },
  // Many at once are sent together, once the module for that is loaded. The first of them load it.
  together: async (world, oracle, tab) => {
    for (let times = 2; times > 0; times -= 1) {
      for (let many = world.oneOf(4, 12); many > 0; many -= 1) makeCall(world, oracle, tab, false, { place: ["/orders", "free"], ordered: false });
      await world.pass(6);
    }
  },
  ask: (world, oracle, tab) => {
    const id = idOf(world, tab.dials);
    for (let many = world.oneOf(1, 1, 3); many > 0; many -= 1) ask(world, oracle, anyOf(world, tab), id);
  },
  close: (_, __, tab) => tab.closes(),
  die: (world, oracle, tab) => die(world, oracle, tab),
  freeze,
  network: (world, _, tab) => turnNetwork(world, tab),
  jump: (world, _, tab) => jump(world, tab),
  hear: (world, _, tab) => tab.page.hears(world.oneOf("pageshow", "visibilitychange", "resume", "pagehide")),
  resume: (_, __, { page, semel }) => page.run(() => semel.resume()),
  // By its id, whoever asked for it, and whether or not it is in hand here.
  giveUp: (world, _, { page, semel, dials }) => page.run(() => semel.giveUp(idOf(world, dials))),
  pending: (_, oracle, tab) => {
    tab.page.run(async () => oracle.lists(tab.name, await tab.semel.pending())).catch(() => {});
  },
  cancel: (world, oracle, _, server) => cancelled(world, oracle, server),
  outage: (world) => world.outage(world.oneOf("network", "store"), world.oneOf(30, 100, 300)),
  stall: (world) => world.stall(world.oneOf(50, 500, 40_000)),
  // A handler that crashed has left nothing, whatever is asked next.
  poison: (world, oracle, tab, server) => {
    const [, key] = world.oneOf(...tab.dials.places);
    if (key) server.poison(key, idOf(world, tab.dials), tab.identity);
  },
  // A call that is given up before it was sent is made again at once, while others wait for the first one.
  anew: async (world, oracle, tab) => {
    const [id, place, at] = [idOf(world, tab.dials), world.oneOf(...tab.dials.places), world.below(2)];
    if (tab.page.isOnline && world.below(2)) turnNetwork(world, tab);
    const call = makeCall(world, oracle, tab, true, { id, place, body: `${id} ${at}` });
    for (let many = world.oneOf(1, 2); many > 0; many -= 1) {
      await world.pass(40);
      const other = anyOf(world, tab);
      if (world.below(3)) makeCall(world, oracle, other, true, { id, place, body: `${id} ${at}` });
      else ask(world, oracle, other, id);
    }
    await world.pass(40);
    call.abort();
    await world.pass(12);
    for (let many = world.oneOf(1, 2); many > 0; many -= 1) {
      makeCall(world, oracle, anyOf(world, tab), true, { id, place, body: `${id} ${1 - at}` });
    }
    if (!tab.page.isOnline && world.below(2)) turnNetwork(world, tab);
  },
  // What a browser does that runs out of space, under open tabs, and while something is on its way to the store.
  thrownAway: async (world, oracle, tab) => {
    const [id, place, at] = [idOf(world, tab.dials), world.oneOf(...tab.dials.places), world.below(2)];
    makeCall(world, oracle, tab, true, { id, place, body: `${id} ${at}` });
    await world.pass(60);
    if (world.below(2)) world.stall(300);
    await world.pass(100);
    world.throwsAway();
    oracle.isStoreLost = true;
    if (tab.page.isFrozen || world.below(2)) return;
    await tab.closes();
    makeCall(world, oracle, anyOf(world, tab), true, { id, place, body: `${id} ${1 - at}` });
  },
  // As README.md describes it: nothing of an identity stays on this device.
  forget: async (world, oracle, { identity, tabs }) => {
    const all = tabs.filter((tab) => tab.identity === identity);
    if (all.some(({ page }) => page.isFrozen)) return;
    all.forEach(close);
    while (all.some(({ page }) => page.storing)) await world.sleep(5);
    world.forgets(identity);
    oracle.isStoreLost = true;
  },
  // From now on another token is valid, and this tab has it, or somebody else's.
  login: (world, _, tab) => {
    if (world.below(2)) world.tokens += 1;
    tab.token = world.below(5) ? world.tokens : "another's";
    tab.page.run(() => tab.semel.resume());
  },
  backup: (world, oracle, _, server) => {
    if (!world.backup) return (world.backup = [server.kept, oracle.ran.length]);
    world.says(`the keys are as they were, after ${world.backup[1]} runs`);
    server.kept = world.backup[0];
    oracle.putBack(world.backup[1]);
  },
  wait: (world) => world.pass(world.oneOf(25, 25, 25, 500)),
};

function serverOf(world, oracle) {
  const server = new Stub();
  // Keys are on different machines, with different clocks.
  server.aheadMs = world.oneOf(0, 0, -3_600_000, 3_600_000);
  server.aheadMsOfKeys.set("free", server.aheadMs + world.oneOf(0, 50_000));
  server.lapses = (id) => !isOfPayload(id);
  server.handler = ({ key, id, path, body, principal }) => {
    if (world.happens(0.03)) throw server.problem(key, 500, "rolled-back", { executed: "no" });
    world.says(`runs ${key} ${id} ${path} ${body}`);
    return { status: world.oneOf(200, 200, 201, 404, 409), body: oracle.runs({ key, id, path, body, principal }) };
  };
  const serve = (call, each) => async () => {
    if (!isLet(world, call)) return problem(...world.oneOf([401, "unauthorized"], [403, "forbidden"]), { executed: "no", retry: "after-fix" });
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
    return world.carry(`${kind} ${key} ${id} ${body.slice(0, 60)} acknowledges ${acked}`, serve(call, each));
  };
  return server;
}

/** Whether a call shows the token that is valid now. */
function isLet(world, { kind, headers }) {
  return !world.isGuarded || kind === "health" || headers.get("authorization") === `Bearer ${world.tokens}`;
}

/** A `fetch` that checks how many attempts of a page are under way. The clock and acknowledgements do not count. */
function limitedFetch(world, oracle, page, server, most) {
  const fetch = world.fetchOf(page, server);
  let underWay = 0;
  /** By id: when it may be sent again. */
  const notBefore = new Map();
  return async (url, init) => {
    if (page.isClosed) world.faults.push(`${url} was sent though all is closed`);
    if (!init.keepalive) page.calls("fetch");
    init.signal?.throwIfAborted();
    if (/health|acks$/.test(url) || init.keepalive) return fetch(url, init);
    if ((underWay += 1) > most) world.faults.push(`${underWay} attempts are under way, of at most ${most}`);
    let hasEnded = false;
    const ends = () => {
      if (!hasEnded) underWay -= 1;
      hasEnded = true;
    };
    init.signal.addEventListener("abort", ends);
    const said = init.headers.get?.("idempotency-key");
    const id = said?.replace(/"(cancel-)?/g, "");
    if (said === `"${id}"` && Number(init.headers.get("semel-deadline")) > 0) oracle.sends(page, id, Buffer.from(init.body).toString(), server.knows(id));
    // After its row was thrown away, a request is made anew, and nobody knows about the pause.
    if (world.time.ms + page.steadyMs < notBefore.get(id) && !world.lost.has(id)) world.faults.push(`${id} was sent sooner than the server asked for`);
    try {
      const answer = await fetch(url, init);
      const after = answer.headers.get("retry-after");
      if (answer.status === 409) oracle.doubts(id);
      if (after && !hasEnded) notBefore.set(id, world.time.ms + page.steadyMs + after * 1_000);
      return answer;
    } finally {
      ends();
    }
  };
}

function headersOf(world, tab) {
  if (!tab.dials.isGuarded && world.below(2)) return undefined;
  tab.token = world.tokens;
  return async () => {
    tab.page.calls("headers");
    await world.pass(HEADERS_MS_MAX);
    if (world.happens(0.05)) throw new Error("no token");
    return { authorization: `Bearer ${world.isCalm ? world.tokens : tab.token}` };
  };
}

function onpausedOf(world, page) {
  return ({ requestId, error, resume, giveUp }) => {
    world.says(`${requestId} pauses: ${error.code}`);
    page.calls("onpaused");
    // An id that is in use for another payload has nothing to wait for.
    const goesOn = world.isCalm ? error.code !== "fingerprint-mismatch" : world.happens(0.7);
    setTimeout(goesOn ? resume : giveUp, world.oneOf(1, 5, 50));
  };
}

function die(world, oracle, { name, page }) {
  world.says(`${name} is gone`);
  oracle.leaves(page);
  page.goes();
}

function freeze(world, _, { name, page }) {
  world.says(`${name} is frozen`);
  // A page in WebKit's cache loses its lock.
  page.isUnlit = world.happens(0.2);
  page.frozenMs = world.time.ms;
  page.freeze();
}

function thaw(world, { name, page }) {
  const ms = world.time.ms - page.frozenMs;
  const slept = world.happens(0.3) ? ms : 0;
  world.says(`${name} thaws after ${ms}, of which it slept ${slept}`);
  page.isUnlit = false;
  page.wasFrozenMs = world.time.ms;
  page.thaw(slept, world.happens(0.5));
  page.hears(world.oneOf("pageshow", "resume"));
}

/** Freezes a tab in a moment, for `ms`. */
async function freezesFor(world, tab, ms) {
  await world.pass(12);
  if (tab.page.isGone || world.isCalm) return;
  freeze(world, undefined, tab);
  await world.sleep(ms);
  if (tab.page.isFrozen && !tab.page.isGone) thaw(world, tab);
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
  const headers = { "idempotency-key": `"${id}"`, "semel-principal": `"${call.principal}"`, "semel-deadline": deadline };
  server.fetch(`${URL_OF_STUB}/semel/v1/keys/${call.key.replaceAll("/", "%2F")}/cancel`, { method: "POST", headers, body: JSON.stringify({ id: call.id }) }).catch(() => {});
}

const ALL = { maxAttempts: 32, maxPending: 1_000 };

/** Everything becomes calm: all that was promised happens, and nothing is left. */
async function calms(world, oracle, tabs, open, identities) {
  // A duplicate comes late, and a frozen page needs some time.
  await world.pass(world.oneOf(25, 1_000, 150_000));
  world.isCalm = true;
  world.says("calm");
  for (const { page, semel, onrecovered } of tabs) {
    if (page.isFrozen) thaw(world, { page });
    if (!page.isOnline) page.goesOffline(true);
    page.run(() => Object.assign(semel, { onrecovered }));
    if (world.hasPresence && world.below(2)) continue;
    close({ page, semel });
  }
  // What is stored now is only found at the next look, and if nobody can tell who is alive, there is none. So wait until it is over.
  await world.sleep(5_000);
  const lasts = [];
  for (const identity of identities) lasts.push(await open(identity, ALL));
  await world.comesTo(() => `nobody waits: ${oracle.waiting.map(({ what }) => what)}`, () => !oracle.waiting.length);
  for (const { page, semel } of lasts) {
    await world.comesTo(() => "nothing is pending", async () => !(await page.run(() => semel.pending())).length);
    const counts = JSON.stringify(semel.getSnapshot());
    if (counts !== '{"pending":0,"paused":0,"online":true}') world.faults.push(`what is shown in the end: ${counts}`);
  }
  for (const tab of [...tabs, ...lasts]) close(tab);
  await world.sleep(KEPT_MS);
  // What was kept, and still had to be acknowledged, is released at the look after that.
  for (let many = 0; many < 3 && (many === 0 || world.rows.size); many += 1) {
    for (const identity of identities) {
      const next = await open(identity, ALL);
      makeCall(world, oracle, next, false, { body: `last ${many}` });
      await world.sleep(20_000);
      close(next);
    }
  }
  if (world.rows.size) world.faults.push(`left in the store: ${[...world.rows.keys()]}`);
  oracle.checkEnds();
  oracle.checkTold();
  oracle.checkPatience();
  oracle.checkOrder();
}
