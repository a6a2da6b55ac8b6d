// What may befall pages, by chance: a network that loses, delays and doubles what is sent and what is answered, and has answers of others; and a store that fails,
// does a thing twice, or does it and says that it is lost.
//
// Invariants:
// - A seed says what happens, and when: one that fails fails again, by PLAY=SEED.
// - Once it is calm nothing fails any more.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { lost, problem, URL_OF_STUB } from "./stub.mjs";
import { inTimeOfItsOwn, Page } from "./timing.mjs";

/** Nobody has to wait for so long, once it is calm. */
export const CALM_MS_MAX = 120_000;
/** So long the option `headers` may take. */
export const HEADERS_MS_MAX = 8;
/** An attempt that is on its way for so long at most may still come. */
const LATE_MS_MAX = 30_000;

let loading;
/** What was built here, and the packages in the folders that PLAY_WITH names, as an older one's: pages of a store take turns, as an old page lives on beside new ones. */
const BUILDS = [new URL("../../sdk/npm/", import.meta.url), ...(process.env.PLAY_WITH?.split(":") ?? []).map((folder) => pathToFileURL(`${resolve(folder)}/`))];
const built = await Promise.all(BUILDS.map((folder) => import(new URL("node.js", folder))));

/** The class that the page of this number has. */
export const semelOf = ({ number }) => built[number % built.length].Semel;

/** Runs `play` by each seed up to `seeds`, or from PLAY on by so many as PLAYS says. It gives what was wrong, and what happened. */
export async function played(seeds, play) {
  const wrong = [];
  const { PLAY = 0, PLAYS = process.env.PLAY ? 1 : seeds } = process.env;
  for (let seed = Number(PLAY); seed < Number(PLAY) + Number(PLAYS); seed += 1) {
    const world = await playedOnce(seed, play);
    if (world.faults.length > 0) wrong.push([`seed ${seed}`, ...new Set(world.faults), "what happened:", ...world.log].join("\n"));
  }
  return wrong;
}

/** The world after `play` by a seed. */
export async function playedOnce(seed, play) {
  await (loading ??= loaded());
  const world = new World(seed);
  try {
    await inTimeOfItsOwn(() => world.drawn(), (time, outside) => play(world.begins(time, outside)));
  } catch (error) {
    world.faults.push(error.stack);
  }
  return world;
}

/** What a page loads is there before: it comes by the machine's time. */
async function loaded() {
  for (const [index, { Semel }] of built.entries()) {
    const semel = await Semel.open({ url: URL_OF_STUB, durability: "memory", fetch: lost });
    semel.session("key", "name").catch(() => {});
    await import(new URL("session-node.js", BUILDS[index]));
    await new Promise((resolve) => setTimeout(resolve, 100));
    await semel.close();
  }
}

/** Refusals of what did not run, by whoever comes first. */
const REFUSALS = [
  [503, "unavailable", {}],
  [429, "rate-limited", { executed: "no", headers: { "retry-after": "1" } }],
  [409, "in-flight", {}],
  [409, "locked", { executed: "no", headers: { "retry-after": "1" } }],
  [502, "upstream-unreachable", { executed: "no" }],
  [503, "capacity", { executed: "no" }],
  [401, "unauthorized", { executed: "no", retry: "after-fix" }],
  [403, "forbidden", { executed: "no", retry: "after-fix" }],
  [404, "not-found", { executed: "no", retry: "after-fix" }],
  [400, "key-missing", { executed: "no", retry: "after-fix" }],
  [413, "too-large", { executed: "no", retry: "after-fix" }],
];

class World {
  isCalm = false;
  faults = [];
  log = [];
  rows = new Map();
  /** The ids of all rows that there ever were. */
  stored = new Set();
  /** Those of which the store said that they are lost, and had them. */
  lost = new Set();
  living = new Set();
  #state;
  #out = new Map();
  #stalled = 0;

  constructor(seed) {
    this.#state = seed * 7_919 + 17;
    for (let warm = 0; warm < 5; warm += 1) this.drawn();
    this.lossy = this.oneOf(0, 0.15, 0.3);
    this.refuses = this.oneOf(0, 0.1, 0.3);
    this.slow = this.oneOf(0, 0.02, 0.1);
    this.fails = this.oneOf(0, 0.05, 0.12);
    this.loses = this.oneOf(0, 0, 0.05, 0.1);
    // Where it takes no time, many are stored at once, and leave together.
    this.isQuick = this.below(10) < 4;
    // Where nobody can tell who lives, whoever opens takes over all that there is.
    this.hasPresence = this.below(10) < 8;
  }

  begins(time, outside) {
    [this.time, this.outside] = [time, outside];
    return this;
  }

  drawn() {
    this.#state = (Math.imul(this.#state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return this.#state / 0x80000000;
  }

  below(many) {
    return Math.floor(this.drawn() * many);
  }

  oneOf(...all) {
    return all[this.below(all.length)];
  }

  happens(share) {
    return !this.isCalm && this.drawn() < share;
  }

  /** For so long nothing of `what`, the network or the store, comes through. */
  outage(what, ms) {
    this.says(`no ${what} for ${ms} ms`);
    this.#out.set(what, this.time.ms + ms);
  }

  /** All rows are gone, and nobody is told. */
  throwsAway() {
    this.says("the rows are thrown away");
    for (const id of this.rows.keys()) this.lost.add(id);
    this.rows.clear();
  }

  /** Whoever uses this device next finds nothing of `identity`. */
  forgets(identity) {
    this.says(`the rows of ${identity} are deleted`);
    for (const [id, row] of this.rows) {
      if (!Buffer.from(row).includes(`semel ${URL_OF_STUB} ${identity}`)) continue;
      this.lost.add(id);
      this.rows.delete(id);
    }
  }

  /** For so long the store does nothing that it is asked for. */
  stall(ms) {
    this.says(`the store does nothing for ${ms} ms`);
    this.#stalled = this.time.ms + ms;
  }

  isOut(what) {
    return this.time.ms < this.#out.get(what);
  }

  says(text) {
    this.log.push(`${Math.round(this.time.ms)} ${text}`);
  }

  sleep(ms) {
    return new Promise((resolve) => setTimeout(resolve, ms));
  }

  /** Some time passes, at most so much. */
  async pass(ms) {
    if (!this.isCalm) await this.sleep(this.below(ms));
  }

  page() {
    return new Page(this.time);
  }

  /** Whether it comes to this. Who does not is at fault. */
  async comesTo(what, condition) {
    for (const endMs = this.time.ms + CALM_MS_MAX; this.time.ms < endMs; await this.sleep(200)) {
      if (await condition()) return true;
    }
    this.faults.push(`it never came to this: ${what()}`);
    return false;
  }

  /** `fetch`, as it is in a page: what is on its way is so whatever becomes of that. */
  fetchOf(page, server) {
    return async (url, init) => {
      // Its headers may have been asked for before.
      if (!page.isOnline && this.time.ms > page.offlineMs + HEADERS_MS_MAX && !init?.keepalive) this.faults.push(`${url} was sent offline`);
      try {
        return await this.outside.run(() => server.fetch(url, init));
      } finally {
        await page.goesOn();
      }
    };
  }

  /** What becomes of a call. `serve`: what the worker makes of it. */
  async carry(call, serve) {
    await this.pass(this.happens(this.slow) ? 3_000 : 15);
    if (this.happens(this.isOut("network") ? 1 : this.lossy)) return lost();
    if (this.happens(0.05)) this.comesAgain(call, serve);
    if (this.happens(this.refuses)) {
      const refusal = this.oneOf(...REFUSALS);
      this.says(`${call}: refused ${refusal[1]}`);
      return problem(...refusal);
    }
    const answer = await serve();
    this.says(`${call}: ${answer.status} ${answer.headers.get("semel-status")}`);
    await this.pass(this.happens(this.slow) ? 3_000 : 10);
    if (this.happens(this.lossy)) return lost();
    if (this.happens(0.03)) return torn(answer);
    // Somebody's in between.
    if (this.happens(0.03)) return new Response("<p>Log in to this network</p>", { status: this.oneOf(200, 404, 410, 502) });
    return answer;
  }

  /** It comes twice, the second time late. */
  async comesAgain(call, serve) {
    await this.sleep(this.below(this.oneOf(50, 500, LATE_MS_MAX)));
    const answer = await serve();
    this.says(`${call}, late: ${answer.status} ${answer.headers.get("semel-status")}`);
  }

  /** A store over the rows that all tabs share. `page` may lose its lock while it is frozen, as one in WebKit's cache does. */
  store(page) {
    const failing = (share, what) => {
      if (!this.happens(this.isOut("store") ? 1 : share)) return;
      this.says(`the store fails at ${what}`);
      page.failedMs = this.time.ms;
      throw new Error("the disk fails");
    };
    const change = (id, to) => {
      const row = to(this.rows.get(id)?.slice());
      if (row === undefined) this.rows.delete(id);
      else if (row !== null) this.rows.set(id, row.slice());
      if (row) this.stored.add(id);
    };
    // One after the other, as IndexedDB has it.
    let last = Promise.resolve();
    const inTurn = (act) => (last = last.then(act, act));
    page.storing = 0;
    const counted = async (act) => {
      if (page.isClosed) this.faults.push("a store is asked for a change though all is closed");
      page.storing += 1;
      page.calls?.("the store");
      try {
        return await inTurn(act);
      } finally {
        page.storing -= 1;
        page.storedMs = this.time.ms;
      }
    };
    const store = {
      load: async () => {
        page.calls?.("the store");
        await this.pass(6);
        failing(this.fails / 2, "what is loaded");
        return structuredClone([...this.rows]);
      },
      change: (id, to) => counted(async () => {
        while (!this.isCalm && this.#stalled > this.time.ms) await this.sleep(50);
        if (!this.isQuick) await this.pass(this.happens(this.slow / 4) ? 3_000 : 6);
        failing(this.fails, id);
        change(id, to);
        if (!this.isQuick) await this.pass(4);
        if (this.happens(0.06)) {
          // It can't tell whether it has done it. A page may be frozen in between.
          await this.pass(8);
          change(id, to);
        }
        if (!this.happens(this.loses)) return;
        this.lost.add(id);
        page.failedMs = this.time.ms;
        this.says(`the store says that it has lost ${id}`);
        throw new Error("Connection to Indexed Database server lost. Refresh the page to try again");
      }),
      remove: async (ids, isDone) => {
        failing(this.fails, ids);
        for (const id of ids) if (this.rows.has(id) && isDone(this.rows.get(id))) this.rows.delete(id);
      },
    };
    if (!this.hasPresence) return store;
    const presence = (owner) => {
      const one = { owner, page };
      this.living.add(one);
      const alive = async () => {
        await this.pass(3);
        return [...this.living].filter(({ page }) => !page?.isGone && !page?.isUnlit).map(({ owner }) => owner);
      };
      return { alive, leave: () => this.living.delete(one) };
    };
    return { ...store, presence };
  }

  /** That a caller of `what` was told an error, of which the truth is known: whether it ran. */
  checkTold(what, { code, executed }, hasRun) {
    if (executed === (hasRun ? "no" : "yes")) this.faults.push(`${what} was told ${code}, executed: ${executed}, and it ${hasRun ? "ran" : "never ran"}`);
  }
}

/** An answer that breaks off in its body. */
async function torn(answer) {
  const body = new Uint8Array(await answer.arrayBuffer());
  let hasBegun = false;
  const stream = new ReadableStream({
    pull(into) {
      if (hasBegun) into.error(new TypeError("terminated"));
      else into.enqueue(body.subarray(0, body.length >> 1));
      hasBegun = true;
    },
  });
  return new Response(body.length ? stream : null, { status: answer.status, headers: answer.headers });
}
