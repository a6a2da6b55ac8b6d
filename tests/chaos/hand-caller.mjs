// The client of a run that has no SDK: it sends plain HTTP with an id until the answer is definite, then acknowledges it.
//
// Invariants:
// - It runs in this process, and is not killed.
// - Every other request says when it was first sent; none has a deadline.

import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { Caller } from "./caller.mjs";

const ATTEMPT_TIMEOUT_MS = 2_000;
const RETRY_MS = 50;

/** Starts it. With `naive`, it asks the unprotected ledger, and takes every 200 for an answer. The run must find that out. */
export async function startHand({ book, atATime, url, naive = false, after }) {
  const caller = new HandCaller("hand", book, atATime);
  caller.settings = { url, naive };
  after(() => caller.end());
  await caller.start();
  return caller;
}

class HandCaller extends Caller {
  #ending = new AbortController();
  #open = new Set();

  async launch() {
    return [];
  }

  async takeRecovered() {}

  async begin({ n, account, amount }) {
    const { url, naive } = this.settings;
    const path = `/accounts/${account}/deposit?n=${n}`;
    const id = randomUUID();
    this.#open.add(n);
    if (naive) {
      const { response, text } = await this.#sent(`${url}/naive${path}`, {}, { amount }, ({ response }) => response.ok);
      this.told({ n, by: "hand", status: response.status, text });
    } else {
      const times = n % 2 === 0 ? { "semel-first-sent": `@${Math.floor(Date.now() / 1000)}` } : {};
      const answer = await this.#sent(url + path, { "idempotency-key": id, ...times }, { amount }, isDefinite);
      this.told({ n, by: "hand", ...answerOf(answer, id) });
      // Without `until`, so for a whole retention the key remembers that this id must not run.
      await this.#sent(`${url}/semel/v1/keys/accounts%2F${account}/acks`, {}, { ids: [id] }, ({ response }) => response.status === 204 && response.headers.has("semel-key"));
    }
    this.#open.delete(n);
  }

  /** Resolves to what is not acknowledged yet. */
  async pending() {
    return [...this.#open];
  }

  async end() {
    this.#ending.abort();
  }

  /** Sends until the answer is a wanted one. */
  async #sent(url, headers, json, isWanted) {
    for (;;) {
      this.#ending.signal.throwIfAborted();
      const answer = await this.#attempt(url, headers, JSON.stringify(json)).catch(() => undefined);
      if (answer && isWanted(answer)) return answer;
      await delay(RETRY_MS);
    }
  }

  async #attempt(url, headers, body) {
    const response = await fetch(url, { method: "POST", headers, body, signal: AbortSignal.timeout(ATTEMPT_TIMEOUT_MS) });
    return { response, text: await response.text() };
  }
}

const isOutcome = ({ response }) => ["executed", "replayed"].includes(response.headers.get("semel-status"));

function isDefinite(answer) {
  if (isOutcome(answer)) return true;
  const isProblem = answer.response.headers.get("content-type") === "application/problem+json";
  return isProblem && JSON.parse(answer.text).retry === "never";
}

function answerOf(answer, requestId) {
  if (isOutcome(answer)) return { status: answer.response.status, text: answer.text };
  const { code, executed, title } = JSON.parse(answer.text);
  return { error: { name: "problem", code, executed, message: title, requestId } };
}
