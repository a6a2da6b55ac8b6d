// Sends 180,000 generated bad requests over many connections. Each must be refused or dropped, none may have an effect, and the server may keep
// nothing of them. SEMEL_SEED sets the seed of another run.

import assert from "node:assert/strict";
import { connect } from "node:net";
import { after, test } from "node:test";
import { badRequests } from "./generated.mjs";
import { serve } from "./server.mjs";
import { AUDIENCE, jwks, signer } from "./tokens.mjs";
import { LEAKING_PATH, weigh, weighedLedger } from "./weighed.mjs";

const REQUESTS = 180_000;
const CONNECTIONS = 32;
const SEED = Number(process.env.SEMEL_SEED ?? 20261121);
/** After this many requests, tables with a limit are full, and the module's memory has reached its size. */
const WARM_REQUESTS = 140_000;
const WINDOW_REQUESTS = 20_000;
/** How many bytes of the heap a request may leave behind after a collection. Anything that could be kept of a request takes more. */
const HEAP_BYTES_A_REQUEST = 8;
/** The module's memory grows by pages of 64 KiB. A request whose parts no longer fit may take one. */
const MODULE_BYTES_MAX = 128 << 10;
/**
 * The runtime's memory beside the heap is known only roughly, and a process needs some 100,000 requests, and on a busy machine more, to reach its
 * size. If each request left something behind, both windows would grow; what grows for another reason grows in one of them.
 */
const RESIDENT_BYTES_A_REQUEST = 400;
const SIZE_BYTES_MAX = 512 << 20;

const issuer = signer("HS256");
const vars = { SEMEL_OPEN: "false", SEMEL_JWT_KEYS: jwks(issuer), SEMEL_JWT_AUDIENCE: AUDIENCE, SEMEL_ADMIN_TOKEN: "an-administrators-token", SEMEL_RATE_PER_SECOND: "1000000", SEMEL_RATE_BURST: "1000000" };
const server = await serve(after, "ledger", vars, { folder: await weighedLedger(after), inspected: true });
const alice = issuer.token({ sub: "alice" });
const stranger = signer("HS256");

/** A connection that sends one request after another, and reconnects when the server hangs up. */
class Connection {
  #socket;
  #received = "";
  #settle;

  /** Resolves to the status and the code of the answer; the status is 0 if there is none. */
  ask({ bytes, isHead }) {
    return new Promise((resolve) => {
      this.#received = "";
      this.isHead = isHead;
      this.#settle = resolve;
      this.#open().write(bytes);
    });
  }

  #open() {
    if (this.#socket) return this.#socket;
    const { hostname, port } = new URL(server.url);
    const socket = connect({ host: hostname, port: Number(port), noDelay: true });
    const gone = () => {
      if (this.#socket !== socket) return;
      this.#socket = undefined;
      this.#done();
    };
    socket.on("data", (chunk) => {
      this.#received += chunk.toString("latin1");
      if (this.#isWhole()) this.#done();
    });
    // After bytes that are no whole request, the server may wait for more.
    socket.setTimeout(2_000, () => socket.destroy());
    socket.on("error", () => {});
    socket.on("close", gone);
    this.#socket = socket;
    return socket;
  }

  #isWhole() {
    const end = this.#received.indexOf("\r\n\r\n");
    if (end < 0) return false;
    const head = this.#received.slice(0, end);
    const length = /^content-length: (\d+)/im.exec(head)?.[1];
    if (this.isHead || /^HTTP\/1\.1 (204|304)/.test(head)) return true;
    if (length !== undefined) return this.#received.length >= end + 4 + Number(length);
    return /^transfer-encoding: chunked/im.test(head) && this.#received.endsWith("0\r\n\r\n");
  }

  #done() {
    const settle = this.#settle;
    this.#settle = undefined;
    if (/^connection: close/im.test(this.#received)) this.close();
    const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(this.#received)?.[1] ?? 0);
    settle?.({ status, code: /^semel-status: (\S+)/im.exec(this.#received)?.[1] ?? "none" });
  }

  close() {
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.destroy();
  }
}

test(`${REQUESTS} bad requests of seed ${SEED}: no 5xx, no effect, no growth`, async (t) => {
  await server.deposit("a1", 100, { as: alice });
  const next = badRequests({ seed: SEED, token: alice, forged: [stranger.token({ sub: "alice" }), `${alice.slice(0, alice.lastIndexOf("."))}.`, `${alice}A`, issuer.token({ sub: "alice", exp: 1 }), issuer.token({ sub: "semel:admin" }), issuer.token({ sub: "alice", semel: { methods: [] } })] });
  const seen = {};
  let sent = 0;
  const send = async (until) => {
    const connection = new Connection();
    while (sent < until) {
      sent += 1;
      const request = next();
      const { status, code } = await connection.ask(request);
      // The runtime drops what is not HTTP, and answers an unknown method itself.
      const isRefused = (status >= 400 && status < 500) || ([0, 501].includes(status) && code === "none");
      assert.ok(isRefused, `request ${sent} of seed ${SEED}: ${status} ${code} to ${JSON.stringify(request.bytes.toString("latin1").slice(0, 600))}`);
      seen[code] = (seen[code] ?? 0) + 1;
    }
    connection.close();
  };
  const all = (until) => Promise.all(Array.from({ length: CONNECTIONS }, () => send(until)));
  await all(WARM_REQUESTS);
  const sizes = [await server.memory()];
  const weights = [await weigh(server)];
  for (const until of [WARM_REQUESTS + WINDOW_REQUESTS, REQUESTS]) {
    await all(until);
    sizes.push(await server.memory());
    weights.push(await weigh(server));
  }
  const growthsOf = (bytes) => bytes.slice(1).map((each, at) => each - bytes[at]);
  const growths = growthsOf(sizes);

  for (const code of ["unauthorized", "forbidden", "key-missing", "key-invalid", "key-mismatch", "body-invalid", "not-found", "not-seen", "too-large"]) {
    assert.ok(seen[code] > 100, `${code} is among the answers: ${JSON.stringify(seen)}`);
  }
  assert.ok(seen.none < REQUESTS / 5, `most come as far as the worker: ${JSON.stringify(seen)}`);
  const [heap, module] = ["heap", "module"].map((what) => growthsOf(weights.map((weight) => weight[what])));
  t.diagnostic(`of each ${WINDOW_REQUESTS} requests the heap grew by ${heap.join(", ")} bytes, the module by ${module.join(", ")}, the process by ${growths.join(", ")}`);
  assert.ok(Math.min(...heap) < HEAP_BYTES_A_REQUEST * WINDOW_REQUESTS, `the heap grew by ${heap.join(", then ")} bytes`);
  assert.ok(Math.max(...module) <= MODULE_BYTES_MAX, `the module grew by ${module.join(", then ")} bytes`);
  assert.ok(Math.min(...growths) < RESIDENT_BYTES_A_REQUEST * WINDOW_REQUESTS, `the process grew by ${growths.join(", then ")} bytes`);
  assert.ok(sizes.at(-1) < SIZE_BYTES_MAX, `has ${sizes.at(-1)} bytes`);
  for (let n = 0; n < 50; n += 1) {
    const { json } = await server.send("GET", `/accounts/a${n}`, { as: alice });
    assert.deepEqual(json, { id: `a${n}`, balance: n === 1 ? 100 : 0, entries: n === 1 ? 1 : 0 });
  }
});

test("the check for growth finds a worker that keeps the id of each request", async () => {
  const before = await weigh(server);
  for (let sent = 0; sent < 2_000; sent += 1) await server.send("POST", LEAKING_PATH, { id: `kept-${sent}`, as: alice });
  const { heap } = await weigh(server);
  assert.ok(heap - before.heap > HEAP_BYTES_A_REQUEST * 2_000, `${heap - before.heap} bytes`);
});
