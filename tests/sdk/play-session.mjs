// A play of a session that goes from page to page: each randomly calls, gives up, closes, freezes, goes offline and dies, until everything is calm.

import { HEADERS_MS_MAX, semelOf } from "./playing.mjs";
import { SessionStub } from "./session-stub.mjs";
import { URL_OF_STUB } from "./stub.mjs";

const STEPS = 50;
const TABS_MAX = 3;

/** What a request may be told while those before it in its frame are answered. A key never finds anything wrong with closing a place. */
const REFUSALS = [[500, "rolled-back", "no", "same-id"], [503, "unavailable", "unknown", "same-id"], [503, "capacity", "no", "same-id"]];
const WRONG = [[413, "too-large", "no", "after-fix"], [404, "not-found", "no", "after-fix"], [401, "unauthorized", "no", "after-fix"]];

/** Each call has its own URL, which ends in its body. */
export const bodyIn = (url) => new URL(url).search.slice(1);

/** A single request may be refused, crash too often, or run without room for its answer. */
export function befallElements(world, server) {
  server.refuse = ({ session }) => (world.happens(world.refuses / 4) ? world.oneOf(...REFUSALS, ...(session ? WRONG : [])) : undefined);
  server.crashes = () => world.happens(world.refuses / 10);
  server.says = () => (world.happens(world.refuses / 8) ? [503, "unavailable", "unknown", "same-id"] : undefined);
}

export async function playSession(world) {
  const { faults } = world;
  const server = new SessionStub();
  befallElements(world, server);
  let sender;
  server.each = ({ path, elements }, serve) => {
    for (const each of Array.isArray(elements) ? elements : []) if (!each.path.endsWith("/cancel")) checkGivenUp(each.body);
    return world.carry(`${path} ${JSON.stringify(elements).slice(0, 300)}`, async () => serve());
  };
  /** A page must not send what it gave up, except what was on its way by then, or what has run already, to get the outcome. */
  const checkGivenUp = (body) => {
    const call = calls.find((call) => call.body === body && call.page === sender);
    if (call?.abortedMs + HEADERS_MS_MAX + 1 < world.time.ms && call.thaws === sender.thaws && !server.effects.includes(body)) faults.push(`${body} was given up, and is sent`);
  };
  /** An answer must come to whoever asked for that very body, and to nobody else. */
  const checkAnswer = (body, { ran }) => {
    if (ran !== body) faults.push(`${body} got the answer to ${ran}`);
    answered.add(ran);
  };
  const told = new Map();
  const [answered, aborted, calls] = [new Set(), new Set(), []];
  /** What came to `onrecovered`: a body, and an error. */
  const recovered = [];
  const intervals = { retryIntervalMs: world.oneOf(10, 10, 200), attemptTimeoutMs: world.oneOf(100, 100, 1_000) };
  let opened = 0;
  /** How likely a page dies when its store is about to delete a row, but has not done so yet. */
  const dies = world.oneOf(0, 0, 0.5, 1);
  const freezes = world.below(2) === 0;

  const open = async () => {
    const page = world.page();
    const tab = { name: `tab ${(opened += 1)}`, page };
    page.number = opened;
    world.says(`${tab.name} opens`);
    // In the midst of that.
    if (freezes && world.happens(0.2)) world.outside.run(() => world.pass(30).then(() => tab.page.isGone || world.isCalm || freeze(world, tab)));
    tab.opens = page.run(async () => {
      const headers = () => {
        // Without a token, some calls are given up at this very moment.
        if (!world.happens(0.05)) return world.pass(HEADERS_MS_MAX);
        for (const call of calls) if (call.page === page && !call.isOver && world.below(2)) call.abort();
        throw new Error("no token");
      };
      const fetch = world.fetchOf(page, server);
      const sends = (...given) => {
        sender = page;
        return fetch(...given);
      };
      tab.semel = await semelOf(page).open({ url: URL_OF_STUB, identity: "alice", fetch: sends, durability: "memory", giveUpAfterMs: world.oneOf(60, 500, Infinity, Infinity), headers: world.below(2) ? headers : undefined, ...intervals });
      const onrecovered = async ({ response, error, url }) => {
        await world.pass(10);
        if (world.happens(0.2)) throw new Error("not taken");
        const body = bodyIn(url);
        world.says(`${tab.name} recovers ${body}: ${error?.code}`);
        if (error) return recovered.push([body, error]);
        checkAnswer(body, await response.json());
      };
      const onpaused = ({ error, url, resume, giveUp }) => {
        world.says(`${tab.name} pauses at ${bodyIn(url)}: ${error.code}`);
        const goesOn = world.isCalm || world.happens(0.8);
        if (!goesOn) aborted.add(bodyIn(url));
        setTimeout(goesOn ? resume : giveUp, world.oneOf(1, 5, 50));
      };
      for (;;) {
        try {
          tab.session = await tab.semel.session("accounts/a", "s", { store: dying(world, tab, dies), onrecovered, onpaused });
          break;
        } catch (error) {
          world.says(`${tab.name} could not open: ${error.message}`);
          // It always answers what is read.
          if (error.code === "store-blocked") faults.push(`${tab.name} was told that its store is blocked`);
          await world.sleep(10);
        }
      }
      world.says(`${tab.name} has epoch ${tab.session.epoch}, after ${tab.session.lastSeq}`);
      tab.isOpen = true;
    });
    return tab;
  };

  const makeCall = ({ name, page, session }, body) => {
    const aborting = new AbortController();
    const call = { page, body, thaws: page.thaws };
    call.abort = () => {
      aborted.add(body);
      call.abortedMs ??= world.time.ms;
      aborting.abort();
    };
    calls.push(call);
    world.says(`${name} calls ${body}`);
    page.run(async () => {
      if (world.happens(0.3)) setTimeout(call.abort, world.below(40));
      // A call with a header of its own is sent alone.
      const headers = world.happens(0.15) ? { "x-alone": body } : {};
      try {
        checkAnswer(body, await (await session.fetch(`/accounts/a/deposit?${body}`, { method: "POST", body, headers, signal: aborting.signal })).json());
        world.says(`${body} is answered`);
      } catch (error) {
        world.says(`${body} is told ${error.code ?? error}, executed: ${error.executed}`);
        told.set(body, error);
      }
      call.isOver = true;
    });
  };

  const tabs = [await open()];
  for (let step = 0; step < STEPS; step += 1) {
    const at = world.below(tabs.length);
    const tab = tabs[at];
    const what = world.below(100);
    if (tab.page.isGone) tabs[at] = await open();
    else if (tab.page.isFrozen) {
      if (what < 20) thaw(world, tab);
      else if (what < 24) tab.page.goes();
      // One that has not opened yet may be frozen for longer than its store is waited for.
      else await world.sleep(tab.isOpen || what < 70 ? world.below(25) : 40_000);
    } else if (what < 3) {
      world.says(`${tab.name} is gone`);
      tab.page.goes();
    } else if (what < 6 && freezes) {
      freeze(world, tab);
    } else if (what < 10) {
      world.says(`${tab.name} goes ${tab.page.isOnline ? "offline" : "online"}`);
      tab.page.goesOffline(!tab.page.isOnline);
    } else if (what < 12) tab.page.wallMs += world.oneOf(-3_600_000, -10_000, -1_000, 1_000, 10_000, 3_600_000);
    else if (what < 14) world.outage(world.oneOf("network", "store"), world.oneOf(30, 100, 300));
    else if (!tab.isOpen) await world.pass(25);
    else if (what < 60) {
      for (let many = world.oneOf(1, 1, 1, 8); many > 0; many -= 1) makeCall(tab, `b${calls.length}`);
    } else if (what < 64) {
      world.says(`${tab.name} closes`);
      await tab.page.run(() => (what < 62 ? tab.session.close() : tab.semel.close()));
      tabs[at] = await open();
    } else if (what < 70 && tabs.length < TABS_MAX) tabs.push(await open());
    else await world.pass(world.oneOf(25, 25, 25, 500, 2_000));
  }
  await world.pass(world.oneOf(25, 1_000, 60_000));
  world.isCalm = true;
  world.says("calm");
  for (const tab of tabs) {
    if (tab.page.isGone) continue;
    if (tab.page.isFrozen) thaw(world, tab);
    if (!tab.page.isOnline) tab.page.goesOffline(true);
    // A tab that is still opening tries again until it succeeds. So it takes the session over once more before it is closed.
    await tab.opens;
    await tab.page.run(() => tab.semel.close());
  }
  await world.sleep(5_000);
  const last = await open();
  await last.opens;
  makeCall(last, "last");
  const waiting = () => calls.filter(({ isOver, page }) => !isOver && !page.isGone).map(({ body }) => body);
  await world.comesTo(() => `nobody waits: ${waiting()}`, () => !waiting().length);
  await world.comesTo(() => `nothing is left in the store: ${[...world.rows.keys()]}`, () => !world.rows.size);
  await last.page.run(() => last.semel.close());

  if (new Set(server.effects).size < server.effects.length) faults.push(`something ran twice: ${server.effects}`);
  const ran = new Set(server.effects);
  // A row that a store says it has lost, although it has it, belongs to somebody else from then on; and if nobody can tell who is alive, several have
  // it.
  const numbers = world.lost.size || !world.hasPresence ? [] : calls.map(({ page }) => page.number);
  for (const number of new Set(numbers)) {
    const made = calls.filter(({ body, page }) => page.number === number && ran.has(body)).map(({ body }) => body);
    const took = server.effects.filter((body) => made.includes(body));
    if (`${made}` !== `${took}`) faults.push(`tab ${number} called ${made}, and they ran as ${took}`);
  }
  for (const body of answered) if (!ran.has(body)) faults.push(`${body} has an answer, and never ran`);
  // What nobody waits for goes to the next holder of the session, unless a refusal without its body does not say that it never ran.
  for (const [body, { code, executed }] of recovered) if (code === "fenced" && executed === "no" && !ran.has(body)) faults.push(`${body} was dropped, since its session had another holder`);
  // Whatever is stored is not acknowledged, so that whoever goes on with it gets its answer. But nobody waits for a page that was frozen.
  const isUnheard = ([, { code }]) => code === "acknowledged" && world.hasPresence && !freezes && !world.lost.size;
  for (const [body] of recovered.filter(isUnheard)) faults.push(`${body} was acknowledged, and still stored`);
  for (const [body, error] of [...told, ...recovered]) world.checkTold(body, error, ran.has(body));
  for (const body of ran) {
    // If nobody can tell who is alive, nobody waits until an answer is heard.
    const isAcknowledged = !world.hasPresence && recovered.concat([...told]).some(([whose, { code }]) => whose === body && code === "acknowledged");
    const isForgone = aborted.has(body) || told.get(body)?.code === "store-failed" || isAcknowledged;
    if (!answered.has(body) && !isForgone) faults.push(`${body} ran, and nobody has its answer`);
  }
}

function dying(world, { name, page }, dies) {
  const store = world.store(page);
  const change = async (id, to) => {
    let isOver = false;
    await store.change(id, (row) => {
      const made = to(row);
      isOver = row !== undefined && made === undefined && world.happens(dies);
      return isOver ? null : made;
    });
    if (!isOver) return;
    world.says(`${name} is gone, and ${id} still stored`);
    page.goes();
    await page.goesOn();
  };
  return { ...store, change };
}

function freeze(world, { name, page }) {
  world.says(`${name} is frozen`);
  page.isUnlit = world.happens(0.2);
  page.frozenMs = world.time.ms;
  page.freeze();
}

function thaw(world, { name, page }) {
  const ms = world.time.ms - page.frozenMs;
  world.says(`${name} thaws after ${ms}`);
  page.isUnlit = false;
  page.thaw(world.happens(0.3) ? ms : 0, world.happens(0.5));
  page.hears(world.oneOf("pageshow", "resume"));
}
