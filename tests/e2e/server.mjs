// A real workerd for a test file, and requests to it.
//
// Invariants: the port is chosen by the system, the state is a temporary folder, and nothing is left after the test file.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { connect } from "node:net";
import { startWorkerd } from "../../scripts/setup/workerd.mjs";
import { workerFolder } from "../../scripts/setup/worker.mjs";
import { endWithTests } from "./ending.mjs";
import { stateFolder } from "./folders.mjs";
import { until } from "./lossy.mjs";

/** The token for `Server.admin`. */
export const ADMIN_TOKEN = "the-administrator-of-the-tests";
/** Linux uses this number on all systems on which Node runs. */
const CLOCK_TICKS_PER_SECOND = 100;

const OBJECTS = {
  ledger: { SEMEL: "SemelObject", NAIVE: "NaiveObject", REGISTRY: "SemelRegistry" },
  probe: { SEMEL: "SemelObject", REGISTRY: "SemelRegistry" },
  upstream: { SEMEL: "SemelObject", REGISTRY: "SemelRegistry" },
};

/** The options of `startWorkerd` for a worker that serves everybody. */
export function optionsFor(worker, state, { vars, ...more } = {}) {
  return { folder: workerFolder(worker), state, objects: OBJECTS[worker], vars: { SEMEL_OPEN: "true", SEMEL_ADMIN_TOKEN: ADMIN_TOKEN, ...vars }, ...more };
}

/** Starts a worker for a test file. `after` is node:test's. `more`: further options of `startWorkerd`. */
export async function serve(after, worker, vars = {}, more = {}) {
  const state = await stateFolder("semel-e2e-");
  const server = new Server(optionsFor(worker, state, { ...more, vars }));
  await server.start();
  after(async () => {
    await server.kill();
    await rm(state, { recursive: true, force: true });
  });
  return server;
}

class Server {
  #options;
  #workerd;
  #printed;

  constructor(options) {
    this.#options = options;
  }

  async start() {
    // An object for each start, because the last output of the previous process may arrive during this one.
    const printed = { text: "" };
    const ending = new AbortController();
    const isOver = endWithTests(() => ending.abort());
    this.#workerd = await startWorkerd({ ...this.#options, signal: ending.signal, onLog: (text) => (printed.text += text) });
    this.#workerd.exited.then(isOver);
    this.#printed = printed;
  }

  get url() {
    return this.#workerd.url;
  }

  /** The address for debuggers, if they may connect. */
  get inspector() {
    return this.#workerd.inspector;
  }

  /** The folder of its state. */
  get state() {
    return this.#options.state;
  }

  /**
   * What it has printed since it was started, as far as it was read. Output comes through a pipe, and may arrive later than an answer that was sent
   * after it. So before a test looks for something in it, `line` must have found what is printed with it or after it.
   */
  get log() {
    return this.#printed.text;
  }

  /** Resolves to the `nth` line of the log that `pattern` matches, once it is complete. By then, everything printed before it is there, too. */
  async line(pattern, nth = 1) {
    const found = () => this.log.split("\n").slice(0, -1).filter((line) => pattern.test(line))[nth - 1];
    const what = `${nth > 1 ? `${nth} lines` : "a line"} of the log that ${pattern} matches`;
    return until(found, what).catch(({ message }) => assert.fail(`${message}\n${this.log}`));
  }

  /** Resolves to the `nth` line of the log about the request with that id. */
  lineOf(id, nth) {
    return this.line(new RegExp(`"id":"${id}"`), nth);
  }

  /** Resolves to the bytes of memory that the server has. */
  async memory() {
    const status = await readFile(`/proc/${this.#workerd.pid}/status`, "utf8");
    return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)[1]) * 1024;
  }

  /** Resolves to the seconds of CPU that the server has used. */
  async cpu() {
    const stat = await readFile(`/proc/${this.#workerd.pid}/stat`, "utf8");
    const [user, system] = stat.slice(stat.lastIndexOf(")") + 2).split(" ").slice(11, 13).map(Number);
    return (user + system) / CLOCK_TICKS_PER_SECOND;
  }

  /** The ms of CPU that its main thread has used, which runs all JavaScript and SQLite. Read synchronously, because the thread goes on meanwhile. */
  cpuMs() {
    const [ns] = readFileSync(`/proc/${this.#workerd.pid}/schedstat`, "utf8").split(" ");
    return Number(ns) / 1e6;
  }

  /** The worker's settings. */
  get vars() {
    return this.#options.vars;
  }

  /** Does `kill -9`. */
  kill() {
    return this.#workerd.kill();
  }

  /** Starts it again on the same files, with changed options if there are any. */
  async restart(changed = {}) {
    await this.kill();
    Object.assign(this.#options, changed);
    await this.start();
  }

  /** Sends a request. `id` and the like become headers. Resolves to the answer, with its body read. */
  async send(method, path, { id, key, ack, firstSent, deadline, as, headers = {}, body } = {}) {
    const all = { ...headers };
    if (id !== undefined) all["idempotency-key"] = id;
    if (key !== undefined) all["semel-key"] = key;
    if (ack !== undefined) all["semel-ack"] = ack;
    if (firstSent !== undefined) all["semel-first-sent"] = `@${firstSent}`;
    if (deadline !== undefined) all["semel-deadline"] = String(deadline);
    if (as !== undefined) all.authorization = `Bearer ${as}`;
    const response = await fetch(this.url + path, { method, headers: all, body, redirect: "manual", signal: AbortSignal.timeout(20_000) });
    return answerOf(response.status, response.headers, Buffer.from(await response.arrayBuffer()));
  }

  /** Makes a deposit to an account of the ledger, with a new id unless one is given. */
  deposit(account, amount, { id = randomUUID(), ...rest } = {}) {
    return this.send("POST", `/accounts/${account}/deposit`, { id, body: JSON.stringify({ amount }), ...rest });
  }

  /** Sends a request as the administrator. */
  admin(method, path, options = {}) {
    return this.send(method, `/semel/v1/admin/${path}`, { as: ADMIN_TOKEN, ...options });
  }

  async account(account) {
    return (await this.send("GET", `/accounts/${account}`)).json;
  }

  /** Sends bytes as they are, where `fetch` would correct them. Resolves to all that came back. */
  raw(bytes, { end = true } = {}) {
    const { hostname, port } = new URL(this.url);
    return new Promise((resolve, reject) => {
      const chunks = [];
      const socket = connect({ host: hostname, port: Number(port) });
      socket.setTimeout(10_000, () => socket.destroy(new Error("no answer")));
      socket.on("connect", () => (end ? socket.end(bytes) : socket.write(bytes)));
      socket.on("data", (chunk) => chunks.push(chunk));
      socket.on("error", (error) => (chunks.length > 0 || error.code === "ECONNRESET" ? resolve(Buffer.concat(chunks).toString("latin1")) : reject(error)));
      socket.on("close", () => resolve(Buffer.concat(chunks).toString("latin1")));
    });
  }
}

function answerOf(status, headers, body) {
  const text = body.toString("utf8");
  return {
    status,
    headers,
    body,
    text,
    semel: headers.get("semel-status"),
    get json() {
      return JSON.parse(text);
    },
  };
}
