// Counts the rows written, which Cloudflare bills. The runtime counts them, in the objects of the ledger as it ships.

import { copyFile, cp, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { workerFolder } from "../../scripts/setup/worker.mjs";

/** How long an attempt may be under way: roughly the SDK's interval and timeout. */
const DEADLINE_MS = 10_000;
const SESSION = "rows";
const MINUTE_MS = 60_000;
/** After this time, every deadline is over, and so is the time for which tombstones stay after it. */
const LAPSED_MS = 5 * MINUTE_MS;
/** After this pause, a sweep is done or has got a page further. */
const PAUSE_MS = 15_000;

/** Resolves to the rows that a client's account writes until nothing more of it leaves. `pass` sets the clock forward. */
export async function leaving(client, pass) {
  let rows = 0;
  await pass(LAPSED_MS);
  for (let quiet = 0; quiet < 4; ) {
    const written = await client.read();
    rows += written;
    quiet = written === 0 ? quiet + 1 : 0;
    await pass(PAUSE_MS);
  }
  return rows;
}

/** Makes a ledger that counts the rows of its storage, in `folder`. Resolves to `folder`. */
export async function countingWorker(folder) {
  await rm(folder, { recursive: true, force: true });
  await cp(workerFolder("ledger"), folder, { recursive: true });
  await rename(join(folder, "index.js"), join(folder, "ledger.js"));
  await copyFile(join(ROOT, "tests/bench/index.js"), join(folder, "index.js"));
  return folder;
}

/** A client of one account that counts the rows that its requests write, including the ledger's own. */
export class Counted {
  #url;
  #account;
  #sent = 0;

  constructor(url, account) {
    this.#url = url;
    this.#account = account;
  }

  /** Sends a change with a new id and the headers of the SDK. With `isAcknowledging`, it acknowledges the change before. */
  change(nowMs, isAcknowledging) {
    const ack = isAcknowledging && this.#sent > 0 ? { "semel-ack": `"${this.#sent}";until=${nowMs + DEADLINE_MS}` } : {};
    this.#sent += 1;
    const times = { "semel-first-sent": `@${Math.floor(nowMs / 1000)}`, "semel-deadline": String(nowMs + DEADLINE_MS) };
    return this.#rows("POST", `/accounts/${this.#account}/deposit`, { "idempotency-key": String(this.#sent), ...times, ...ack }, '{"amount":1}');
  }

  /** Sends the last change once more. */
  again(nowMs) {
    const times = { "semel-first-sent": `@${Math.floor(nowMs / 1000)}`, "semel-deadline": String(nowMs + DEADLINE_MS) };
    return this.#rows("POST", `/accounts/${this.#account}/deposit`, { "idempotency-key": String(this.#sent), ...times }, '{"amount":1}');
  }

  /** Acknowledges the last change, in a request of its own. */
  acknowledge(nowMs) {
    const body = JSON.stringify({ ids: [{ id: String(this.#sent), until: nowMs + DEADLINE_MS }] });
    return this.#rows("POST", `/semel/v1/keys/accounts%2F${this.#account}/acks`, {}, body);
  }

  read() {
    return this.#rows("GET", `/accounts/${this.#account}`, {});
  }

  /** Begins a session, for `numbered` and `batch`. */
  async takeOver(nowMs) {
    const body = JSON.stringify({ name: SESSION });
    const times = { "semel-first-sent": `@${Math.floor(nowMs / 1000)}`, "semel-deadline": String(nowMs + DEADLINE_MS) };
    await this.#rows("POST", `/semel/v1/keys/accounts%2F${this.#account}/sessions`, { "idempotency-key": "take-over", ...times }, body);
    this.#sent = 0;
  }

  /** Sends the session's next change, which acknowledges all changes before it. */
  numbered(nowMs) {
    this.#sent += 1;
    const ack = this.#sent > 1 ? `;ack=${this.#sent - 1}` : "";
    const headers = { "semel-session": `"${SESSION}";epoch=1;seq=${this.#sent}${ack}`, "semel-deadline": String(nowMs + DEADLINE_MS) };
    return this.#rows("POST", `/accounts/${this.#account}/deposit`, headers, '{"amount":1}');
  }

  /** Sends `size` changes of the session at once. */
  batch(nowMs, size) {
    const ack = this.#sent > 0 ? { ack: this.#sent } : {};
    const requests = Array.from({ length: size }, (_, at) => ({
      session: { name: SESSION, epoch: 1, seq: this.#sent + at + 1, ...ack },
      // Sent as the SDK does. Without it, a young object would have to assume that the request may have ended the object before, and run it alone.
      firstSent: Math.floor(nowMs / 1000),
      deadline: nowMs + DEADLINE_MS,
      method: "POST",
      path: `/accounts/${this.#account}/deposit`,
      body: '{"amount":1}',
    }));
    this.#sent += size;
    return this.#rows("POST", `/semel/v1/keys/accounts%2F${this.#account}/batch`, {}, JSON.stringify(requests));
  }

  async #rows(method, path, headers, body) {
    const answer = await fetch(this.#url + path, { method, headers, body });
    await answer.arrayBuffer();
    if (!answer.ok) throw new Error(`${method} ${path} got ${answer.status}`);
    return Number(answer.headers.get("x-rows-written"));
  }
}
