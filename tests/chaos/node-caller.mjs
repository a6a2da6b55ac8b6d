// The clients of a run that are Node processes, each with a journal that outlives it: with an outbox, or with sessions.

import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { Caller } from "./caller.mjs";

const PROCESS = fileURLToPath(new URL("node-client.mjs", import.meta.url));

/** Node has a WebSocket by default only from 22 on. */
const SOCKETS = ["--experimental-websocket"].filter((flag) => process.allowedNodeEnvironmentFlags.has(flag));

/**
 * Starts one. `journal`: the path of its file. `tills`: how it makes sessions, if it does; see `Tills`. `forgets`: whether a new process has lost the
 * journal. `after`: gets what ends the process.
 */
export async function startNode({ name, book, atATime, options, journal, tills, forgets, after }) {
  const caller = new NodeCaller(name, book, atATime);
  caller.settings = { options, tills, book, args: [journal, ...(tills ? ["tills"] : []), ...(forgets ? ["forgets"] : [])] };
  after(() => caller.end());
  await caller.start();
  return caller;
}

class NodeCaller extends Caller {
  #child;
  #exited;
  #calls = new Map();

  /** Whether the proxy sees what it sends. */
  get isSeen() {
    return this.settings.tills?.transport !== "socket";
  }

  launch() {
    const { options, tills, args } = this.settings;
    const child = fork(PROCESS, args, { execArgv: ["--expose-gc", "--no-warnings", ...SOCKETS], stdio: ["ignore", "inherit", "inherit", "ipc"] });
    this.#child = child;
    this.#exited = new Promise((resolve) => child.on("close", resolve));
    child.on("error", (error) => this.#fail(error));
    child.on("close", () => this.#fail(new Error("the process ended")));
    child.on("message", (message) => (message.told ? this.told(message.told) : this.#settle(message)));
    return this.call("open", options, tills);
  }

  takeRecovered() {
    return this.call("takeRecovered", this.settings.book.accounts);
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
