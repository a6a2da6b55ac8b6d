// Scenarios of sessions that run in several browsers: over a reload, and by a socket over a kill of the server. Each gets a bank, and makes a test of
// it.
//
// Deposits are 1, 2, 4 and so on, in the order of the calls. So an answer tells which deposits were made before it, and in which order.

import assert from "node:assert/strict";
import { connect, createServer } from "node:net";
import { test } from "node:test";
import { until } from "../lossy.mjs";

export const isChange = ({ method, url }) => method === "POST" && !url.endsWith("/sessions");
/** The first `count` deposits of an account. `answerTo` gives the answer to each if they are made in this order. */
export const inOrder = (account, count) => Array.from({ length: count }, (_, n) => ({ n, account, amount: 2 ** n }));
export const answerTo = ({ n, account }) => JSON.stringify({ id: account, balance: 2 ** (n + 1) - 1, entries: n + 1 });
export const take = (page, account, transport) => page.evaluate(({ account, transport }) => bank.takeSession(account, "till", transport), { account, transport });
export const begin = (page, deposits) => page.evaluate((deposits) => void bank.inSession(deposits), deposits);
export const [answers, recovered] = ["answers", "recovered"].map((name) => (page) => page.evaluate((name) => bank[name], name));
/** What was told, by number. */
export const told = (all) => Object.fromEntries(all.map(({ n, text, error }) => [n, text ?? `${error.code} ${error.executed}`]));
export const expected = (deposits) => Object.fromEntries(deposits.map((deposit) => [deposit.n, answerTo(deposit)]));

/** Registers the tests for a browser. */
export function playSessions(name, limit, bank) {
  test(`${name}: a session runs each call once, in order, over a reload in mid-request, and the page hears all answers`, limit, overReload(bank));
  test(`${name}: a session on a socket runs each call once, in order, over a kill of the server and a reload`, limit, bySocket(bank));
}

function overReload({ server, through }) {
  return async (t) => {
    const deposits = inOrder("session-reload", 8);
    const { proxy, open, tab } = await through(t, { loseAnswers: 1, spare: (request) => !isChange(request) });
    const page = await tab();
    assert.deepEqual((await take(page, "session-reload"))[1], 0);
    await begin(page, deposits.slice(0, 1));
    await until(() => proxy.counts.lostAnswers > 0, "the first ran unheard");
    await begin(page, deposits.slice(1, 7));
    await until(() => proxy.counts.lostAnswers > 2, "so did others");
    // From here on, nothing arrives.
    Object.assign(proxy.settings, { loseRequests: 1 });
    await page.reload();
    proxy.calm();
    await open(page);
    await take(page, "session-reload");
    await begin(page, deposits.slice(7));
    await until(async () => (await answers(page)).length === 1 && (await recovered(page)).length === 7, "all is answered");
    assert.deepEqual(told([...(await answers(page)), ...(await recovered(page))]), expected(deposits));
    assert.deepEqual(await server.account("session-reload"), { id: "session-reload", balance: 255, entries: 8 });
  };
}

function bySocket({ server, through }) {
  return async (t) => {
    const deposits = inOrder("session-socket", 40);
    const { open, blank } = await through(t);
    const relay = await relayTo(t, () => server.url);
    const page = await blank();
    await open(page, { url: relay.url });
    await take(page, "session-socket", "socket");
    await begin(page, deposits.slice(0, 10));
    await until(async () => (await answers(page)).length === 10, "the first are answered");
    await server.restart();
    await begin(page, deposits.slice(10, 20));
    await until(async () => (await answers(page)).length === 20, "so are those after the kill");
    assert.deepEqual(told(await answers(page)), expected(deposits.slice(0, 20)));
    assert.ok(relay.sockets > 1, "a socket was opened anew");
    // From here on, nothing arrives until there is another page.
    const resume = relay.hold();
    const before = await page.evaluate(() => bank.rows());
    await begin(page, deposits.slice(20, 30));
    await until(async () => (await page.evaluate(() => bank.rows())) === before + 10, "all of them are stored");
    await page.reload();
    resume();
    await open(page, { url: relay.url });
    const { sockets } = relay;
    await take(page, "session-socket", "auto");
    await begin(page, deposits.slice(30));
    await until(async () => (await answers(page)).length === 10 && (await recovered(page)).length === 10, "all is answered");
    assert.equal(relay.sockets, sockets + 1, "by a socket");
    assert.deepEqual(told([...(await answers(page)), ...(await recovered(page))]), expected(deposits.slice(20)));
    assert.deepEqual(await server.account("session-socket"), { id: "session-socket", balance: 2 ** 40 - 1, entries: 40 });
  };
}

/**
 * Passes bytes on to the server, wherever that is now, and counts the sockets among the connections. `hold()`: from then on nothing arrives any more,
 * over old or new connections, until the function that it returns is called.
 */
async function relayTo(t, target) {
  const relay = { sockets: 0, hold };
  const open = new Set();
  let isHeld = false;
  function hold() {
    isHeld = true;
    for (const socket of open) socket.unpipe();
    return () => (isHeld = false);
  }
  const listening = createServer((near) => {
    // A connection that is cut off may end with a reset.
    near.on("error", () => {});
    if (isHeld) return open.add(near);
    const { hostname, port } = new URL(target());
    const far = connect(Number(port), hostname).on("error", () => {});
    near.once("data", (bytes) => (relay.sockets += bytes.includes("/socket HTTP") ? 1 : 0));
    for (const [one, other] of [[near, far], [far, near]]) {
      open.add(one);
      one.on("close", () => other.destroy()).pipe(other);
    }
  });
  await new Promise((resolve) => listening.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    for (const socket of open) socket.destroy();
    return new Promise((resolve) => listening.close(resolve));
  });
  relay.url = `http://127.0.0.1:${listening.address().port}`;
  return relay;
}
