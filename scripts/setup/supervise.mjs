// Keeps a workerd running, on one port and one state, although the page that it serves may kill it.
//
// Invariants:
// - A kill is SIGKILL: as in a crash, the runtime gets no warning. A request to kill while a kill is going on changes nothing.
// - However this ends, nothing is left: no process, no open port, no kill in progress.
// - If workerd ends without a kill, or does not start again, that is an error, and the end.

import { createServer } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { StepError } from "./step.mjs";
import { startWorkerd } from "./workerd.mjs";

const HOST = "127.0.0.1";
/** How long the process lives on after a kill was asked for, so that the answer can leave. If this is too short, the answer is lost. */
const ANSWER_MS = 200;
/** How long it stays down: long enough to see the outage. */
export const DOWN_MS = 1_000;

/**
 * Starts a workerd with the options of `startWorkerd`, and starts it again whenever its worker asks over LAB to have it killed. Resolves once it
 * serves; or once it has ended, and then it has no URL. Aborting `ending` ends it, even while it starts.
 */
export async function supervise({ ending = new AbortController(), ...options }) {
  const supervisor = new Supervisor(options, ending);
  await supervisor.start();
  return supervisor;
}

class Supervisor {
  /** Settles when everything has ended: resolves after `end()`, otherwise rejects. */
  ended;
  #options;
  #workerd;
  #isKilled = false;
  #ending;
  #control = createServer((request, response) => this.#answer(request, response));

  constructor(options, ending) {
    this.#options = { ...options, signal: ending.signal };
    this.#ending = ending;
  }

  get url() {
    return this.#workerd?.url;
  }

  get pid() {
    return this.#workerd.pid;
  }

  async start() {
    await new Promise((resolve, reject) => this.#control.once("error", reject).listen(0, HOST, resolve));
    try {
      this.#options = { ...this.#options, lab: `${HOST}:${this.#control.address().port}` };
      this.#workerd = await startWorkerd(this.#options);
    } catch (error) {
      this.#close();
      this.#unlessEnding(error);
      this.ended = Promise.resolve();
      return;
    }
    // At the same address, where an open page looks for it.
    this.#options.address = new URL(this.url).host;
    this.ended = this.#watch().catch((error) => this.#unlessEnding(error)).finally(() => this.#close());
  }

  /** Ends it, in any state. `ended` settles when that is done. */
  end() {
    this.#ending.abort();
  }

  async #watch() {
    const { signal: ending } = this.#ending;
    for (;;) {
      const { code, signal } = await this.#workerd.exited;
      if (ending.aborted) return;
      if (!this.#isKilled) throw new StepError(`workerd ended with ${code ?? signal}.`, "See its output above; the state is kept.");
      await delay(DOWN_MS, undefined, { signal: ending }).catch(() => {});
      if (ending.aborted) return;
      this.#workerd = await startWorkerd(this.#options);
      this.#isKilled = false;
    }
  }

  /** Ending it while it starts is no failure. */
  #unlessEnding(error) {
    if (!this.#ending.signal.aborted) throw error;
  }

  /** Requests with an origin are refused: they come from a browser, and no browser has reason to ask here. */
  #answer({ method, url, headers }, response) {
    if (method !== "POST" || url !== "/kill" || headers.origin !== undefined) return response.writeHead(404).end();
    // A website whose name leads to this machine looks like the same origin to a browser.
    const { host, port } = new URL(this.url);
    if (![host, `localhost:${port}`].includes(headers["lab-host"])) return response.writeHead(403).end();
    response.writeHead(202).end();
    if (this.#isKilled) return;
    this.#isKilled = true;
    this.#options.onLog?.("Semel: the page kills the server; it comes back by itself\n");
    const workerd = this.#workerd;
    setTimeout(() => workerd.kill(), ANSWER_MS);
  }

  #close() {
    this.#control.close();
    this.#control.closeAllConnections();
  }
}
