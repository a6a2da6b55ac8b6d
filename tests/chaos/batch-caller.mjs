// The client of a run that sends batches, without the SDK. Everything that waits for an account is sent as one batch, each deposit with its own id.
// What gets
// no definite answer is in the next batch again, together with what came meanwhile.
//
// Invariants:
// - It runs in this process, and is not killed.
// - What has its answer is acknowledged by the next batch, or by a batch without requests.
// - Every other request says when it was first sent; none has a deadline.

import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { Caller } from "./caller.mjs";

const ATTEMPT_TIMEOUT_MS = 2_000;
const RETRY_MS = 50;
/** The most ids in one `Semel-Ack`. */
const ACKS_MAX = 64;

/** Starts it. With `renames`, each attempt has a new id, as if nobody kept them. The run must find that out. */
export async function startBatches({ book, atATime, url, renames = false, after }) {
  const caller = new BatchCaller("batches", book, atATime);
  caller.settings = { url, renames };
  after(() => caller.end());
  await caller.start();
  return caller;
}

class BatchCaller extends Caller {
  #ending = new AbortController();
  /** By account: what has no answer yet, and what is not acknowledged yet. */
  #accounts = new Map();

  async launch() {
    return [];
  }

  async takeRecovered() {}

  async begin({ n, account, amount }) {
    const isNew = !this.#accounts.has(account);
    const own = isNew ? { open: new Map(), answered: new Set() } : this.#accounts.get(account);
    this.#accounts.set(account, own);
    const times = n % 2 === 0 ? { firstSent: Math.floor(Date.now() / 1000) } : {};
    own.open.set(randomUUID(), { n, ...times, method: "POST", path: `/accounts/${account}/deposit?n=${n}`, headers: {}, body: JSON.stringify({ amount }) });
    if (isNew) await this.#work(account, own);
  }

  /** Resolves to what is not answered and acknowledged yet. */
  async pending() {
    return [...this.#accounts.values()].flatMap(({ open, answered }) => [...open.keys(), ...answered]);
  }

  async end() {
    this.#ending.abort();
  }

  /** Sends batches until nothing is open any more. */
  async #work(account, { open, answered }) {
    while (open.size + answered.size > 0) {
      this.#ending.signal.throwIfAborted();
      const requests = [...open];
      const acks = [...answered].slice(0, ACKS_MAX);
      const answers = await this.#sent(account, requests, acks).catch(() => undefined);
      if (!answers) {
        await delay(RETRY_MS);
        continue;
      }
      for (const id of acks) answered.delete(id);
      for (const [at, [id, { n }]] of requests.entries()) {
        const answer = answerOf(answers[at], id);
        if (!answer) continue;
        open.delete(id);
        answered.add(id);
        this.told({ n, by: "batch", ...answer });
      }
    }
    this.#accounts.delete(account);
  }

  /** Resolves to the answers of a batch; to undefined if there are none. */
  async #sent(account, requests, acks) {
    const { url, renames } = this.settings;
    const elements = requests.map(([id, { n, ...request }]) => ({ id: renames ? randomUUID() : id, ...request }));
    const headers = acks.length > 0 ? { "semel-ack": acks.map((id) => `"${id}"`).join(", ") } : {};
    const response = await fetch(`${url}/semel/v1/keys/accounts%2F${account}/batch`, { method: "POST", headers, body: JSON.stringify(elements), signal: AbortSignal.timeout(ATTEMPT_TIMEOUT_MS) });
    const text = await response.text();
    return response.headers.get("semel-status") === "executed" && response.headers.has("semel-key") ? JSON.parse(text) : undefined;
  }
}

/** What an element's answer tells its caller; undefined if it is not definite. */
function answerOf({ status, headers, body }, requestId) {
  if (["executed", "replayed"].includes(headers["semel-status"])) return { status, text: body };
  const { code, executed, title, retry } = JSON.parse(body);
  return retry === "never" ? { error: { name: "problem", code, executed, message: title, requestId } } : undefined;
}
