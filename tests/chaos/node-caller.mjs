// The client of a run that is a Node process, with a journal that outlives it.

import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { Caller } from "./caller.mjs";

const PROCESS = fileURLToPath(new URL("node-client.mjs", import.meta.url));

/** Starts it. `journal`: the path of its file; `forgets`: whether a new process has none of it; `after`: is given what ends it. */
export async function startNode({ name, book, atATime, options, journal, forgets, after }) {
  const caller = new NodeCaller(name, book, atATime);
  caller.settings = { options, args: forgets ? [journal, "forgets"] : [journal] };
  after(() => caller.end());
  await caller.start();
  return caller;
}

class NodeCaller extends Caller {
  #child;
  #exited;
  #calls = new Map();

  launch() {
    const child = fork(PROCESS, this.settings.args, { execArgv: ["--expose-gc"], stdio: ["ignore", "inherit", "inherit", "ipc"] });
    this.#child = child;
    this.#exited = new Promise((resolve) => child.on("close", resolve));
    child.on("error", (error) => this.#fail(error));
    child.on("close", () => this.#fail(new Error("the process ended")));
    child.on("message", (message) => (message.told ? this.told(message.told) : this.#settle(message)));
    return this.call("open", this.settings.options);
  }

  takeRecovered() {
    return this.call("takeRecovered");
  }

  begin(deposit) {
    return this.call("deposit", deposit);
  }

  pending() {
    return this.call("pending");
  }

  load(...args) {
    return this.call("load", ...args);
  }

  usedBytes() {
    return this.call("usedBytes");
  }

  async end() {
    this.#child.kill("SIGKILL");
    await this.#exited;
  }

  call(name, ...args) {
    const number = this.#calls.size === 0 ? 0 : Math.max(...this.#calls.keys()) + 1;
    return new Promise((resolve, reject) => {
      this.#calls.set(number, { resolve, reject });
      this.#child.send({ number, name, args }, (error) => error && this.#settle({ number, error }));
    });
  }

  #settle({ number, result, error }) {
    const call = this.#calls.get(number);
    this.#calls.delete(number);
    if (error) call?.reject(new Error(String(error)));
    else call?.resolve(result);
  }

  #fail(error) {
    for (const number of [...this.#calls.keys()]) this.#settle({ number, error });
  }
}
