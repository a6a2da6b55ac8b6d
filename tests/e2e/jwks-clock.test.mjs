// Keys from a URL over time, on a workerd whose clock the test puts on: rotation, an issuer that is down for days, and what is left of keys and rates
// after the module has crashed.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { gives, issuer } from "./issuer.mjs";
import { serve } from "./server.mjs";
import { AUDIENCE, signer } from "./tokens.mjs";
import { until } from "./lossy.mjs";

const [one, two] = [signer("ES256", "one"), signer("EdDSA", "two")];
const IN_A_WEEK = Math.floor(Date.now() / 1000) + 7 * 86_400;
const SECOND_MS = 1_000;
const HOUR_MS = 3_600_000;

async function start(t, set = {}) {
  const told = await issuer(t, gives(one));
  const vars = { SEMEL_OPEN: "false", SEMEL_JWKS_URL: told.url, SEMEL_JWT_AUDIENCE: AUDIENCE, ...set };
  const server = await serve((end) => t.after(end), "probe", vars, { reachesLocal: true });
  const change = (path, by = one, claims = {}) =>
    server.send("POST", path, { id: randomUUID(), key: '"a"', as: by.token({ sub: "alice", exp: IN_A_WEEK, ...claims }) }).then(({ semel }) => semel);
  const putOn = (ms) => server.send("POST", "/probe/clock", { body: String(ms) });
  return { told, server, change, putOn };
}

test("a rotated key is accepted after 30 s and the old one refused, and an aged key set is refreshed in the background", async (t) => {
  const { told, change, putOn } = await start(t);
  assert.equal(await change("/echo"), "executed");
  told.answer = gives(two);
  assert.deepEqual([await change("/echo", two), told.asked], ["unauthorized", 1]);
  await putOn(31 * SECOND_MS);
  assert.deepEqual([await change("/echo", two), told.asked], ["executed", 2]);
  assert.equal(await change("/echo"), "unauthorized");
  // A request is answered before the issuer answers the fetch.
  let end;
  told.answer = (response) => (end = () => gives(two)(response));
  await putOn(200 * SECOND_MS);
  assert.equal(await change("/echo", two), "executed");
  await until(() => told.asked === 3, "it is fetched again");
  end();
});

test("a token issued after the keys were fetched, with a new one, is told to come again until they may be fetched again, and then accepted", async (t) => {
  const { told, server, change, putOn } = await start(t);
  assert.equal(await change("/echo"), "executed");
  told.answer = gives(two);
  const nowS = Math.floor(Date.now() / 1000);
  assert.deepEqual([await change("/echo", two, { iat: nowS }), await change("/echo", two, { iat: nowS - 60 }), told.asked], ["rate-limited", "unauthorized", 1]);
  await putOn(31 * SECOND_MS);
  assert.deepEqual([await change("/echo", two, { iat: nowS }), told.asked], ["executed", 2]);
  // Whoever makes such tokens must not fill the log.
  assert.equal(await change("/fail", two), "rolled-back");
  await server.line(/"level":"error"/);
  assert.equal(server.log.match(/"level":"error"/g).length, 1, server.log);
});

test("the keys of an issuer that is down hold for a day, and are used again once it is back", async (t) => {
  const { told, change, putOn } = await start(t);
  assert.equal(await change("/echo"), "executed");
  told.answer = (response) => response.writeHead(500).end();
  for (const hours of [1, 11, 11]) {
    await putOn(hours * HOUR_MS);
    assert.equal(await change("/echo"), "executed");
  }
  await putOn(HOUR_MS);
  assert.equal(await change("/echo"), "unavailable");
  told.answer = gives(one);
  await putOn(31 * SECOND_MS);
  assert.equal(await change("/echo"), "executed");
});

test("a handler that panics resets no rate limit, and drops no fetched keys", async (t) => {
  const { told, server, change } = await start(t, { SEMEL_RATE_PER_SECOND: "1", SEMEL_RATE_BURST: "4" });
  const codes = [];
  // The clock stands until one more request has come, so no time passes in which the rate would allow another of these.
  await server.send("POST", "/probe/clock", { body: "stands for 8" });
  for (const path of ["/panic", "/panic", "/panic", "/panic", "/panic", "/panic", "/echo"]) codes.push(await change(path));
  await server.line(/the module was restarted/);
  assert.deepEqual(codes, [...Array(4).fill("rolled-back"), ...Array(3).fill("rate-limited")]);
  assert.equal(told.asked, 1, "the keys are those from before");
});

test("a handler that panics while the issuer is down drops no keys, and the issuer is asked no sooner", async (t) => {
  const { told, server, change, putOn } = await start(t);
  assert.equal(await change("/echo"), "executed");
  told.answer = (response) => response.writeHead(500).end();
  await putOn(HOUR_MS);
  assert.equal(await change("/echo"), "executed");
  await server.line(/the JWK set: status 500/);
  for (let time = 0; time < 3; time += 1) {
    assert.equal(await change("/panic"), "rolled-back");
    assert.equal(await change("/echo"), "executed", "its keys are those from before");
  }
  assert.equal(told.asked, 2, "at most once in 30 s");
});
