// Keeps a workerd running that the page it serves may kill, on one port and one state.
//
// Invariants:
// - A kill is SIGKILL: the runtime gets no word before it, as in a crash. What asks while one goes on changes nothing.
// - However this ends, nothing outlives it: no process, no open port, a kill in progress neither.
// - A workerd that ends without having been asked, or does not start again, is an error and the end.

import { createServer } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { StepError } from "./step.mjs";
import { startWorkerd } from "./workerd.mjs";

const HOST = "127.0.0.1";
/** The answer to who asked gets so long to leave the process that is killed. It is lost if that is too short. */
const ANSWER_MS = 200;
/** How long it stays down: an outage that can be seen. */
export const DOWN_MS = 1_000;

/**
 * Starts a workerd, with `startWorkerd`'s options, and starts it again whenever its worker had it killed by LAB. Resolves once it serves, or is over:
 * then it has no URL. Aborting `ending` ends it, while it starts too.
 */
export async function supervise({ ending = new AbortController(), ...options }) {
  const supervisor = new Supervisor(options, ending);
  await supervisor.start();
  return supervisor;
}

class Supervisor {
  /** Settles when all is over: resolves after `end()`, else rejects. */
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
    // Whoever has the page open looks for it where it was.
    this.#options.address = new URL(this.url).host;
    this.ended = this.#watch().catch((error) => this.#unlessEnding(error)).finally(() => this.#close());
  }

  /** Ends it, wherever it is; `ended` tells when. */
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

  /** One that is ended while it starts has not failed. */
  #unlessEnding(error) {
    if (!this.#ending.signal.aborted) throw error;
  }

  /** No browser asks here: one would name the origin of its page. */
  #answer({ method, url, headers }, response) {
    if (method !== "POST" || url !== "/kill" || headers.origin !== undefined) return response.writeHead(404).end();
    // A website whose name was made to lead here is a page of the same origin to a browser.
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
