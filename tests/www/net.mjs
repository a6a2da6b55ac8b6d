// The lab's network for a test: it has faults, and behind it is a server that records its calls.
//
// Invariant: the test controls time, and randomness has a seed, unless the test brings its own.

import assert from "node:assert/strict";
import { DELAY_MS_MAX } from "../../www/lab/limits.js";
import { makeNetwork } from "../../www/lab/network.js";
import { Clock, seeded } from "./fakes.mjs";

export const LANES = ["naive", "semel"];
/** After how long a client sees that its connection is broken. */
export const BROKEN_MS = 60;
/** Stands for the click of a request that belongs to no click. */
export const NO_DEPOSIT = Symbol("no deposit");

/** The network and its server. */
export class Net {
  clock = new Clock();
  settings = { loseRequests: 0, loseAnswers: 0, twice: 0, delay: 0, offline: 0 };
  /** What happened, in order: `["record", id, fate, answer]` or `["fetch", id]`. */
  log = [];
  /** Everything that was recorded, by attempt. */
  records = new Map();
  /** `{ url, init, headers, atMs }` of each request that reached the server. */
  calls = [];
  answer = () => new Response("{}", { headers: { "semel-status": "executed" } });
  record = async () => {};

  constructor(settings = {}, random = seeded(1), connections) {
    Object.assign(this.settings, settings);
    const record = (attempt) => {
      this.log.push(["record", attempt.id, attempt.fate, attempt.answer]);
      this.records.set(attempt.id, [...(this.records.get(attempt.id) ?? []), attempt]);
      return this.record(attempt);
    };
    const fetch = async (url, init) => {
      const headers = new Headers(init.headers);
      this.log.push(["fetch", headers.get("lab-attempt") ?? undefined]);
      this.calls.push({ url, init, headers, atMs: this.clock.now() });
      return this.answer(url, init);
    };
    const { now, sleep } = this.clock;
    this.network = makeNetwork({ settings: this.settings, connections, record, fetch, random, now, sleep });
  }

  /** Sends a request. `told` is what its client has been told so far. */
  send(lane = "naive", click = 1, init = { method: "POST" }) {
    const sent = { told: undefined };
    const of = click === NO_DEPOSIT ? undefined : click;
    this.network.send(lane, of, `/${lane}?n=${of}`, init).then(
      (response) => (sent.told = response),
      (error) => (sent.told = error),
    );
    return sent;
  }

  /** Sends a request, and lets enough time pass for it to end. */
  async see(lane, click, init) {
    const sent = this.send(lane, click, init);
    await this.clock.pass(2 * DELAY_MS_MAX);
    return sent.told;
  }

  /** The latest record of each attempt. */
  get last() {
    return [...this.records.values()].map((all) => all.at(-1));
  }
}

export const isBroken = (told) => assert.ok(told instanceof TypeError, String(told));
