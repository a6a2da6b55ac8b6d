// The workerd of a run. It is killed, and started again on the same files, at another port.
//
// Invariant: if workerd ends without being killed here, that is a violation, not one of the run's events.

import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { startWorkerd } from "../../scripts/setup/workerd.mjs";
import { optionsFor } from "../e2e/server.mjs";

/** More than any account ever has. */
const TOO_MUCH = 2 ** 53 - 1;

export async function startServer(state) {
  const server = new Server(state);
  await server.start();
  return server;
}

class Server {
  /** The workerds that ended by themselves. */
  deaths = [];
  counts = { kills: 0, fullDisk: 0 };
  #options;
  #workerd;

  constructor(state) {
    const onLog = (text) => (this.counts.fullDisk += text.match(/disk is full|SQLITE_FULL|No space left/g)?.length ?? 0);
    this.#options = { ...optionsFor("ledger", state.folder), onLog };
  }

  async start() {
    const workerd = await startWorkerd(this.#options);
    this.#workerd = workerd;
    workerd.exited.then(({ code, signal }) => {
      if (this.#workerd !== workerd) return;
      this.deaths.push(`workerd ended by itself, with ${code ?? signal}: ${workerd.log().slice(-1_000)}`);
      this.#workerd = undefined;
    });
  }

  /** The address for the proxy; undefined while the server is down. */
  get address() {
    return this.#workerd && new URL(this.#workerd.url);
  }

  /** Does `kill -9`. */
  async kill() {
    const workerd = this.#workerd;
    this.#workerd = undefined;
    await workerd?.kill();
  }

  async residentBytes() {
    return residentBytes(this.#workerd.pid);
  }

  /** Acknowledges ids, without the proxy. */
  async acknowledge(key, ids) {
    const response = await fetch(`${this.#workerd.url}/semel/v1/keys/${encodeURIComponent(key)}/acks`, { method: "POST", body: JSON.stringify({ ids }) });
    if (response.status !== 204) throw new Error(`acks: ${response.status} ${await response.text()}`);
  }

  /**
   * Takes a session over, without the proxy, and acknowledges everything in it with one more request. Resolves to its last number before that. Tries
   * again if it is fenced: a client that was fenced before may just be taking the session over.
   */
  async endSession(account, name) {
    for (;;) {
      const take = await this.#post(`/semel/v1/keys/accounts%2F${account}/sessions`, { "idempotency-key": randomUUID() }, { name });
      if (take.status !== 200) throw new Error(`taking the session of ${account} over: ${take.status} ${await take.text()}`);
      const { epoch, lastSeq } = await take.json();
      const place = `"${name}";epoch=${epoch};seq=${lastSeq + 1};ack=${lastSeq}`;
      const last = await this.#post(`/accounts/${account}/withdraw`, { "semel-session": place }, { amount: TOO_MUCH });
      const semel = last.headers.get("semel-status");
      if (semel === "executed") return lastSeq;
      if (semel !== "fenced") throw new Error(`ending the session of ${account}: ${last.status} ${await last.text()}`);
    }
  }

  #post(path, headers, json) {
    return fetch(this.#workerd.url + path, { method: "POST", headers, body: JSON.stringify(json), signal: AbortSignal.timeout(30_000) });
  }

  /** Reads a path, without the proxy. */
  async get(path) {
    const response = await fetch(this.#workerd.url + path, { signal: AbortSignal.timeout(30_000) });
    if (!response.ok) throw new Error(`GET ${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }
}

async function residentBytes(pid) {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)[1]) * 1024;
}
