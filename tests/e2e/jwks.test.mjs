// Keys that come from a URL, on workerd: from an issuer that rotates them, and from one that fails.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { gives, issuer } from "./issuer.mjs";
import { serve } from "./server.mjs";
import { AUDIENCE, jwks, signer } from "./tokens.mjs";

const start = (t, url, worker = "ledger") =>
  serve((end) => t.after(end), worker, { SEMEL_OPEN: "false", SEMEL_JWKS_URL: url, SEMEL_JWT_AUDIENCE: AUDIENCE }, { reachesLocal: true });
const [one, two] = [signer("ES256", "one"), signer("EdDSA", "two")];

test("requests that come at once share one fetch of the keys, and unknown kids cause no other", async (t) => {
  const told = await issuer(t, gives(one, two));
  const server = await start(t, told.url);
  const asks = Array.from({ length: 20 }, (_, n) => server.deposit("a", 1, { as: (n % 2 ? one : two).token({ sub: `user ${n}` }) }));
  for (const answer of await Promise.all(asks)) assert.equal(answer.semel, "executed", answer.text);
  assert.equal(told.asked, 1);
  for (let n = 0; n < 20; n += 1) {
    const answer = await server.deposit("a", 1, { as: signer("ES256", `unknown ${n}`).token({ sub: "mallory" }) });
    assert.equal(answer.semel, "unauthorized");
  }
  assert.equal(told.asked, 1, "at most once in 30 s");
});

test("while the issuer fails a request is unavailable, the issuer is asked once, and the log says what is wrong", async (t) => {
  const says = { status: "status 500", redirect: "status 302", nonsense: "it is not a JWK set", bomb: "it is not a JWK set", packed: "it is too large", tooLarge: "it is too large", cut: "Network connection lost" };
  const failures = {
    status: (response) => response.writeHead(500).end(jwks(one)),
    redirect: (response) => response.writeHead(302, { location: "/elsewhere" }).end(),
    nonsense: (response) => response.end("<html>"),
    bomb: (response) => response.end("[".repeat(1 << 20)),
    packed: (response) => {
      const packed = gzipSync(`${jwks(one).slice(0, -1)},"x":"${"y".repeat(2 << 20)}"}`);
      response.writeHead(200, { "content-encoding": "gzip", "content-length": packed.length }).end(packed);
    },
    tooLarge: (response) => response.end(`{"keys":[],"x":"${"y".repeat(2 << 20)}"}`),
    cut: (response) => {
      response.writeHead(200, { "content-length": "1000" });
      response.write("{");
      setImmediate(() => response.destroy());
    },
  };
  await Promise.all(
    Object.entries(failures).map(async ([name, answer]) => {
      const told = await issuer(t, answer);
      const server = await start(t, told.url);
      for (let n = 0; n < 3; n += 1) {
        const answer = await server.deposit("a", 1, { as: one.token({ sub: "alice" }) });
        assert.deepEqual([answer.status, answer.semel, answer.headers.get("retry-after")], [503, "unavailable", "1"], name);
      }
      assert.equal(told.asked, 1, name);
      assert.ok(server.log.includes(says[name]), server.log);
      assert.equal((await server.deposit("a", 1)).semel, "unauthorized", `${name}: who has no token needs no key`);
    }),
  );
});

/** Sends requests to a probe, whose timers say whether each was answered within `ms` after its arrival. Each must be `unavailable` by then. */
async function answeredBy(server, ms, waits) {
  const ask = (wait) => server.send("POST", "/echo", { id: randomUUID(), key: '"a"', as: one.token({ sub: "alice" }), ...wait, headers: { "probe-by": String(ms), ...wait.headers } });
  for (const { status, semel, headers } of await Promise.all(waits.map(ask))) {
    assert.deepEqual([status, semel, headers.get("probe-in-time")], [503, "unavailable", "yes"]);
  }
}

test("if the issuer never answers, a request waits no longer than a fetch may take", async (t) => {
  const told = await issuer(t, () => {});
  const server = await start(t, told.url, "probe");
  await answeredBy(server, 12_000, [{}, {}, {}]);
  assert.equal(told.asked, 1);
  await server.line(/the JWK set: TimeoutError/);
});

test("a request that waits for keys waits no longer than its Prefer: wait or its deadline", async (t) => {
  const told = await issuer(t, () => {});
  const server = await start(t, told.url, "probe");
  // The caller waits for less time than a fetch may take.
  await answeredBy(server, 3_500, [{ headers: { prefer: "wait=1" } }]);
  // The clock stands until the request has arrived: if its deadline were over on arrival, it would wait as long as it asked for.
  const nowMs = (await server.send("POST", "/probe/clock", { body: "stands for 1" })).json;
  await answeredBy(server, 3_500, [{ deadline: nowMs + 1_000 }]);
});
