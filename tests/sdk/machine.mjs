// A tab for a test: the driver of the module over any store. The test tells it who is alive, and it sends to a stub.

import { readFile } from "node:fs/promises";
import { NAMED_MODULE } from "../../scripts/setup/sdk.mjs";
import { ANSWERED, DELIVERED, LOST, Machine, REQUEST } from "../../sdk/js/machine.js";
import { send } from "../../sdk/js/transport.js";
import { Rows, Stub, URL_OF_STUB, until } from "./stub.mjs";

// The module under the name that the sources use: what ships has a name made from its content.
const module = await WebAssembly.compile(await readFile(NAMED_MODULE));
const ALICE = "semel https://worker.test alice";

/** Opens a tab. It is closed after the test. */
export function tab(t, { store = new Rows(), server = new Stub(), owner = "own", database = ALICE, identity = "alice" } = {}) {
  const opened = new Tab(server);
  const [retryIntervalMs, attemptTimeoutMs, givesUp, maxPending, maxAttempts] = [10, 10_000, false, 1000, 32];
  opened.machine.open(store, database, owner, identity, retryIntervalMs, attemptTimeoutMs, givesUp, maxPending, maxAttempts);
  t.after(() => opened.machine.close());
  return opened;
}

/** Leaves in `store` what a tab that is gone leaves: a request that was sent and not answered. */
export async function left(t, store, owner, id, path = "/accounts/left/deposit") {
  const server = new Stub();
  server.each = (call, serve) => (call.kind === "change" ? Promise.reject(new TypeError("fetch failed")) : serve());
  const gone = tab(t, { store, server, owner });
  gone.posts(id, path);
  await until(() => server.attempts.length > 0, "it was sent");
  gone.machine.close();
  store.log.length = 0;
}

class Tab {
  /** What was delivered, in order. */
  delivered = [];
  #server;

  constructor(server) {
    this.#server = server;
    this.machine = new Machine(module, {
      transmit: (attempt, ...request) => this.#transmit(attempt, request),
      abort: () => {},
      deliver: ([ticket, id], isAwaited, outcome, failure) => {
        this.delivered.push({ id, isAwaited, status: outcome?.[0], code: failure?.[0], executed: failure?.[1] });
        this.machine.tell(DELIVERED, ticket);
      },
      gaveUp: () => {},
      count: () => {},
      pause: () => {},
    });
  }

  posts(id, path) {
    return this.machine.tell(REQUEST, id, "POST", path, false, "", new Uint8Array([1]), false)?.integer();
  }

  /** Takes over what others left. `alive`: the owners that are alive, or a function that tells. */
  takesOver(alive) {
    return this.machine.takeOver(typeof alive === "function" ? alive : async () => alive);
  }

  async #transmit(attempt, request) {
    let answer;
    try {
      answer = await send({ origin: URL_OF_STUB, fetch: this.#server.fetch }, request, new AbortController().signal, () => {});
    } catch {
      return this.machine.tell(LOST, attempt);
    }
    this.machine.tell(ANSWERED, attempt, ...answer);
  }
}
