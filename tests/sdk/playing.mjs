// What may randomly happen to pages: a network that loses, delays and doubles requests and answers, and brings answers of others; and a store that
// fails, does
// a thing twice, or does it and says that it is lost.
//
// Invariants:
// - The seed decides what happens, and when. A seed that fails fails again, with PLAY=SEED.
// - Once everything is calm, nothing fails any more.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { lost, problem, URL_OF_STUB } from "./stub.mjs";
import { inTimeOfItsOwn, Page } from "./timing.mjs";

/** The longest that anybody has to wait once everything is calm. */
export const CALM_MS_MAX = 120_000;
/** The longest that the option `headers` may take. */
export const HEADERS_MS_MAX = 8;
/** The longest that an attempt may be on its way. */
const LATE_MS_MAX = 30_000;

let loading;
/**
 * The package that was built here, and those in the folders that PLAY_WITH names, such as an older one. Pages of a store use them in turn, as old
 * pages live on beside new ones.
 */
const BUILDS = [new URL("../../sdk/npm/", import.meta.url), ...(process.env.PLAY_WITH?.split(":") ?? []).map((folder) => pathToFileURL(`${resolve(folder)}/`))];
const built = await Promise.all(BUILDS.map((folder) => import(new URL("node.js", folder))));

/** The class of the page with this number. */
export const semelOf = ({ number }) => built[number % built.length].Semel;

/** Runs `play` for each seed up to `seeds`; or for PLAYS seeds, starting at PLAY. Resolves to what was wrong, with what happened. */
export async function played(seeds, play) {
  const wrong = [];
  const { PLAY = 0, PLAYS = process.env.PLAY ? 1 : seeds } = process.env;
  for (let seed = Number(PLAY); seed < Number(PLAY) + Number(PLAYS); seed += 1) {
    const world = await playedOnce(seed, play);
    if (world.faults.length > 0) wrong.push([`seed ${seed}`, ...new Set(world.faults), "what happened:", ...world.log].join("\n"));
  }
  return wrong;
}

/** Resolves to the world after `play` with a seed. */
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

/** Loads everything that pages load before the play, because loading takes the machine's time. */
async function loaded() {
  for (const [index, { Semel }] of built.entries()) {
    const semel = await Semel.open({ url: URL_OF_STUB, durability: "memory", fetch: lost });
    semel.session("key", "name").catch(() => {});
    await import(new URL("session-node.js", BUILDS[index]));
    await new Promise((resolve) => setTimeout(resolve, 100));
    await semel.close();
  }
}

/** Refusals of a request that does not run, from the worker or from anything on the way. */
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
  /** The ids of rows that the store said it had lost, although it had them. */
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
    // If storing takes no time, many requests are stored at once, and sent together.
    this.isQuick = this.below(10) < 4;
    // How likely a header of an answer is lost on the way. Not drawn, so that the seeds without it stay what they were.
    this.strips = [0.03, 0, 0.15, 0][seed % 4];
    // If nobody can tell who is alive, whoever opens takes over everything.
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

  /** For `ms`, nothing of `what` (the network or the store) works. */
  outage(what, ms) {
    this.says(`no ${what} for ${ms} ms`);
    this.#out.set(what, this.time.ms + ms);
  }

  /** Deletes all rows, and tells nobody. */
  throwsAway() {
    this.says("the rows are thrown away");
    for (const id of this.rows.keys()) this.lost.add(id);
    this.rows.clear();
  }

  /** Deletes the rows of `identity`, so that the next user of the device finds none. */
  forgets(identity) {
    this.says(`the rows of ${identity} are deleted`);
    for (const [id, row] of this.rows) {
      if (!Buffer.from(row).includes(`semel ${URL_OF_STUB} ${identity}`)) continue;
      this.lost.add(id);
      this.rows.delete(id);
    }
  }

  /** For `ms`, the store does nothing that it is asked for. */
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

  /** Lets some time pass, at most `ms`. */
  async pass(ms) {
    if (!this.isCalm) await this.sleep(this.below(ms));
  }

  page() {
    return new Page(this.time);
  }

  /** Waits until `condition` holds. If it never does, that is a fault. */
  async comesTo(what, condition) {
    for (const endMs = this.time.ms + CALM_MS_MAX; this.time.ms < endMs; await this.sleep(200)) {
      if (await condition()) return true;
    }
    this.faults.push(`it never came to this: ${what()}`);
    return false;
  }

  /** The `fetch` of a page. What is on its way goes on, whatever becomes of the page. */
  fetchOf(page, server) {
    return async (url, init) => {
      // Its headers may have been asked for while it was online.
      if (!page.isOnline && this.time.ms > page.offlineMs + HEADERS_MS_MAX && !init?.keepalive) this.faults.push(`${url} was sent offline`);
      try {
        return await this.outside.run(() => server.fetch(url, init));
      } finally {
        await page.goesOn();
      }
    };
  }

  /** Decides what becomes of a call. `serve`: what the worker makes of it. */
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
    if (this.strips && this.happens(this.strips)) return without(this.oneOf(...STRIPPED), answer);
    // The answer of something in between.
    if (this.happens(0.03)) return new Response("<p>Log in to this network</p>", { status: this.oneOf(200, 404, 410, 502) });
    return answer;
  }

  /** The call arrives once more, late. */
  async comesAgain(call, serve) {
    await this.sleep(this.below(this.oneOf(50, 500, LATE_MS_MAX)));
    const answer = await serve();
    this.says(`${call}, late: ${answer.status} ${answer.headers.get("semel-status")}`);
  }

  /** A store over the rows that all tabs share. `page` may lose its lock while it is frozen, like a page in WebKit's cache. */
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
    // One after another, as in IndexedDB.
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
          // It does the change twice, as if it could not tell whether it was done. The page may be frozen in between.
          await this.pass(8);
          change(id, to);
        }
        if (!this.happens(this.loses)) return;
        this.lost.add(id);
        page.failedMs = this.time.ms;
        this.says(`the store says that it has lost ${id}`);
        throw new DOMException("It may have been stored.", "UnknownError");
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

  /** Checks the error that a caller of `what` was told against the truth: whether the request ran. */
  checkTold(what, { code, executed }, hasRun) {
    if (executed === (hasRun ? "no" : "yes")) this.faults.push(`${what} was told ${code}, executed: ${executed}, and it ${hasRun ? "ran" : "never ran"}`);
  }
}

/** The headers that a proxy may take away from an answer. */
const STRIPPED = ["semel-status", "semel-key", "semel-now", "content-type", "retry-after"];

/** The same answer without one of its headers. */
function without(name, answer) {
  const headers = new Headers(answer.headers);
  headers.delete(name);
  return new Response(answer.body, { status: answer.status, headers });
}

/** An answer that breaks off within its body. */
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
