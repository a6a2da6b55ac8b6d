// What tests of sockets on workerd share: clients with their tokens, what goes over a socket, and a deployment at which they open sockets.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { serve } from "./server.mjs";
import { AUDIENCE, jwks, signer } from "./tokens.mjs";
import { open } from "./websocket.mjs";

const SIGNER = signer("ES256");
export const APP = "https://app.example";
/** How many silent sockets a key may have. */
export const STRANGERS = 100;
export const token = (sub, claims) => SIGNER.token({ sub, ...claims });
export const alice = token("alice");
export const seconds = () => Math.floor(Date.now() / 1000);

/** The content type that `fetch` gives to a body that is a string. It is part of the fingerprint. */
export const TEXT = { "content-type": "text/plain;charset=UTF-8" };
export const path = (account) => `/semel/v1/keys/accounts%2F${account}/socket`;
export const deposit = (account, amount = 1, id = randomUUID()) => ({ id, firstSent: seconds(), method: "POST", path: `/accounts/${account}/deposit`, headers: TEXT, body: JSON.stringify({ amount }) });
export const frame = (number, requests, more) => JSON.stringify({ frame: number, requests, ...more });
export const hello = (as = alice, more) => JSON.stringify({ authorization: `Bearer ${as}`, ...more });
export const statuses = ({ answers }) => answers.map(({ headers }) => headers["semel-status"]);
/** A change for a probe, without a first-sent. */
export const echo = () => ({ id: randomUUID(), method: "POST", path: "/echo", headers: TEXT, body: "x" });

/**
 * Starts a deployment, and an issuer that does not answer it, for a test file. `after` is node:test's. `connect` opens a socket and authenticates on
 * it, or sends another `first` message.
 */
export async function sockets(after) {
  const issuer = createServer();
  await new Promise((resolve) => issuer.listen(0, "127.0.0.1", resolve));
  after(() => {
    issuer.closeAllConnections();
    issuer.close();
  });
  const vars = { SEMEL_OPEN: "false", SEMEL_JWT_KEYS: jwks(SIGNER), SEMEL_JWKS_URL: `http://127.0.0.1:${issuer.address().port}/`, SEMEL_JWT_AUDIENCE: AUDIENCE, SEMEL_ORIGINS: APP, SEMEL_RATE_BURST: "1000000", SEMEL_RATE_PER_SECOND: "1000000" };
  const server = await serve(after, "ledger", vars, { reachesLocal: true });
  const account = async (name) => (await server.send("GET", `/accounts/${name}`, { as: alice })).json;

  async function connect(name, first = hello(), headers, opened = () => open(server.url, path(name), headers)) {
    const { status, socket } = await opened();
    assert.equal(status, 101);
    socket.send(first);
    socket.ask = async (...asked) => {
      socket.send(frame(...asked));
      return JSON.parse(await socket.next());
    };
    return socket;
  }

  /**
   * A probe of the test's own. `ours(name, first)` opens a socket at a key, `put(what, body)` sets its clock or timers, `runs(name)` tells how many
   * changes of a key were kept.
   */
  async function probing(t, more) {
    const own = await serve((end) => t.after(end), "probe", { ...vars, ...more }, { reachesLocal: true });
    const at = (name) => `/semel/v1/keys/${name}/socket`;
    return {
      opened: (name, headers) => open(own.url, at(name), headers),
      ours: (name, first, headers) => connect(name, first, headers, () => open(own.url, at(name), headers)),
      put: (what, body) => own.send("POST", `/probe/${what}`, { body: String(body) }),
      runs: async (name) => Number((await own.send("GET", "/runs", { key: `"${name}"`, as: alice })).text) - 1,
    };
  }

  return { server, vars, account, connect, probing };
}
