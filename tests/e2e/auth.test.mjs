// Who may ask for what, over HTTP on workerd: every route without a token, with one that is not valid here, with an expired one, and with one that
// does not allow the route. Node's own cryptography makes the tokens. The routes of the layer are read from its source, so this test can't miss one.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { controlRoutes } from "./routes.mjs";
import { serve } from "./server.mjs";
import { AUDIENCE, jwks, signer } from "./tokens.mjs";

const ADMIN = "an-administrators-token";
const ALGORITHMS = ["HS256", "RS256", "ES256", "EdDSA"];
const signers = Object.fromEntries(ALGORITHMS.map((alg) => [alg, signer(alg)]));
const stranger = signer("EdDSA");
const APP = "https://app.example";
// The JWK set has many lines, as people write it.
const vars = { SEMEL_OPEN: "false", SEMEL_JWT_KEYS: jwks(...Object.values(signers)), SEMEL_JWT_AUDIENCE: AUDIENCE, SEMEL_ADMIN_TOKEN: ADMIN, SEMEL_ORIGINS: APP };
const server = await serve(after, "ledger", vars);
const token = (sub, claims) => signers.HS256.token({ sub, ...claims });
const alice = token("alice");
const seconds = () => Math.floor(Date.now() / 1000);

const { ofKeys, ofAdministrator } = await controlRoutes();

/** Every route to the account: method, path, and a body that would have an effect. */
const routes = (account, id) => [
  ["POST", `/accounts/${account}/deposit`, '{"amount":1}'],
  ["POST", `/accounts/${account}/withdraw`, '{"amount":1}'],
  ["GET", `/accounts/${account}`],
  ["HEAD", `/accounts/${account}`],
  ["PUT", `/accounts/${account}`, "x"],
  ...ofKeys(`accounts/${account}`, id),
];
const NOWHERE = [
  ["GET", "/semel/v1/keys/accounts%2Falice/nowhere"],
  ["GET", "/nowhere"],
  ["GET", "/accounts//x"],
];
const ADMIN_ROUTES = [...ofAdministrator("accounts/alice", "x"), ["GET", "/semel/v1/admin"], ["GET", "/semel/v1/%61dmin/keys"]];
const send = (method, path, as, body, rest = {}) => server.send(method, path, { id: randomUUID(), as, body, ...rest });
const account = async (name) => (await send("GET", `/accounts/${name}`, alice)).json;

test("a token of each algorithm is accepted", async () => {
  for (const alg of ALGORITHMS) {
    const answer = await server.deposit(alg, 5, { as: signers[alg].token({ sub: "alice" }) });
    assert.deepEqual([answer.status, answer.semel], [200, "executed"], answer.text);
  }
});

test("every route answers 401 without a valid token, and none has an effect", async () => {
  const id = randomUUID();
  await server.deposit("shut", 10, { id, as: alice });
  const [none, wrong] = [undefined, "x.y.z"];
  const [header, claims] = alice.split(".");
  const bad = { none, wrong, empty: "", ended: token("alice", { exp: seconds() - 60 }), early: token("alice", { nbf: seconds() + 60 }), forAnother: token("alice", { aud: "x" }), strangers: stranger.token({ sub: "alice" }), unsigned: `${header}.${claims}.`, reserved: token("semel:admin"), nobody: token("") };
  for (const [name, as] of Object.entries(bad)) {
    for (const [method, path, body] of [...routes("shut", id), ...NOWHERE, ...ADMIN_ROUTES]) {
      const answer = await send(method, path, as, body);
      assert.deepEqual([answer.status, answer.semel], [401, "unauthorized"], `${name}: ${method} ${path}`);
      assert.equal(answer.headers.get("www-authenticate"), "Bearer");
      assert.equal(answer.headers.get("semel-key"), null, "no object was asked");
    }
  }
  assert.deepEqual(await account("shut"), { id: "shut", balance: 10, entries: 1 });
  assert.equal((await server.deposit("shut", 10, { id, as: alice })).semel, "replayed", "not acknowledged, not cancelled");
});

/**
 * The expected `Semel-Status` for a token that allows no method, at a key that it allows or not. An unknown route is `not-found`: there is nothing to
 * allow.
 */
function told(method, path, allowsKey) {
  if (method === "PUT") return "not-found";
  if (!allowsKey) return "forbidden";
  // A look-up needs only the right to the key.
  if (path.includes("/outcomes/")) return "replayed";
  if (path.endsWith("/batch")) return "executed";
  return path.endsWith("/socket") ? "not-found" : "forbidden";
}

test("a token that does not allow the method or the key has no effect by any route", async () => {
  const id = randomUUID();
  await server.deposit("mine", 10, { id, as: alice });
  for (const semel of [{ methods: [] }, { keys: ["accounts/other", "accounts/mine/*"] }, { methods: ["PATCH"], keys: ["x*"] }]) {
    for (const [method, path, body] of routes("mine", id)) {
      const answer = await send(method, path, token("alice", { semel }), body);
      assert.equal(answer.semel, told(method, path, semel.keys === undefined), `${JSON.stringify(semel)}: ${method} ${path}`);
      if (answer.semel === "executed") assert.deepEqual(answer.json.map(({ headers }) => headers["semel-status"]), ["forbidden"], "each in a batch is judged by itself");
    }
  }
  assert.deepEqual(await account("mine"), { id: "mine", balance: 10, entries: 1 });
  const reader = token("alice", { semel: { methods: ["GET"], keys: ["accounts/*"] } });
  assert.equal((await send("GET", "/accounts/mine", reader)).status, 200);
  assert.equal((await send("GET", "/accounts/mine", reader, undefined, { ack: `"${id}"` })).semel, "forbidden");
  assert.equal((await server.deposit("mine", 10, { id, as: alice })).semel, "replayed", "not acknowledged, not cancelled");
});

test("the administrator's paths refuse a user's token, and the administrator's token opens nothing else", async () => {
  for (const [method, path, body] of ADMIN_ROUTES) {
    assert.equal((await send(method, path, alice, body)).semel, "forbidden", path);
    assert.ok(!["unauthorized", "forbidden"].includes((await send(method, path, ADMIN, body)).semel), path);
    for (const wrong of [ADMIN.slice(1), `${ADMIN}x`, ADMIN.toUpperCase()]) assert.equal((await send(method, path, wrong, body)).semel, "unauthorized", path);
  }
  for (const [method, path, body] of [...routes("admins", "x"), ...NOWHERE]) assert.equal((await send(method, path, ADMIN, body)).semel, "forbidden", path);
});

/** What an answer reveals, without the time and the duration. */
function heard({ status, headers, text }) {
  return { status, text, headers: [...headers].filter(([name]) => !["semel-now", "server-timing"].includes(name)) };
}

test("who uses the id of another principal learns at most that it is taken, and changes nothing", async () => {
  const [id, never] = [randomUUID(), randomUUID()];
  const key = "/semel/v1/keys/accounts%2Fhers";
  const outcome = await server.deposit("hers", 10, { id, as: alice });
  const mallory = token("mallory");
  const compared = async (ask) => {
    const [hers, nobodys] = [await ask(id), await ask(never)];
    assert.deepEqual(heard(hers), heard(nobodys));
    assert.ok(!hers.text.includes("alice"));
    return hers;
  };
  assert.equal((await compared((each) => send("GET", `${key}/outcomes/${each}`, mallory))).semel, "not-seen");
  assert.equal((await compared((each) => send("HEAD", `${key}/outcomes/${each}`, mallory))).semel, "not-seen");
  assert.equal((await compared((each) => send("POST", `${key}/acks`, mallory, JSON.stringify({ ids: [each] })))).status, 204);
  assert.equal((await compared((each) => send("GET", "/accounts/hers", mallory, undefined, { ack: `"${each}"` }))).status, 200);
  assert.equal((await compared((each) => send("GET", `${key}/outcomes/${each}`, undefined))).semel, "unauthorized");
  assert.equal((await compared((each) => send("GET", `/semel/v1/admin/keys/accounts%2Fhers/records/${each}`, mallory))).semel, "forbidden");
  assert.equal((await compared((each) => server.deposit("hers", 10, { id: each, as: mallory, headers: { "semel-principal": '"alice"' } }))).semel, "forbidden");
  // An id in use can't be used by another user. The answer has to say that much, and must say no more.
  const said = [
    await server.deposit("hers", 10, { id, as: mallory }),
    await server.deposit("hers", 99, { id, as: mallory }),
    await send("POST", `${key}/cancel`, mallory, JSON.stringify({ id })),
  ];
  for (const answer of said) assert.equal(answer.semel, "fingerprint-mismatch");
  assert.equal(said[0].text, said[1].text, "the same, whether the payload is hers or not");
  const again = await server.deposit("hers", 10, { id, as: alice });
  assert.deepEqual([again.semel, again.text], ["replayed", outcome.text]);
  assert.deepEqual(await account("hers"), { id: "hers", balance: 10, entries: 1 });
});

test("a page of a listed origin may read every answer, and a page of another origin none", async () => {
  const cors = (answer) => [...answer.headers].filter(([name]) => name.startsWith("access-control-")).map(([name]) => name);
  const asks = [
    (origin) => server.deposit("cors", 1, { as: alice, headers: { origin } }),
    (origin) => server.deposit("cors", 1, { headers: { origin } }),
    (origin) => send("GET", "/accounts/cors", alice, undefined, { headers: { origin } }),
    (origin) => send("GET", "/nowhere", alice, undefined, { headers: { origin } }),
    (origin) => send("GET", "/semel/v1/health", undefined, undefined, { headers: { origin } }),
    (origin) => send("GET", "/semel/v1/admin/keys", ADMIN, undefined, { headers: { origin } }),
    (origin) => send("OPTIONS", "/accounts/cors", undefined, undefined, { headers: { origin, "access-control-request-method": "POST" } }),
    (origin) => send("GET", `/accounts/${"x".repeat(9000)}`, alice, undefined, { headers: { origin } }),
  ];
  for (const ask of asks) {
    const allowed = await ask(APP);
    assert.equal(allowed.headers.get("access-control-allow-origin"), APP);
    assert.match(allowed.headers.get("access-control-expose-headers"), /Semel-Status/);
    assert.equal(allowed.headers.get("vary"), "Origin");
    for (const origin of ["https://evil.example", "null", `${APP}.evil`, `${APP}, https://evil.example`]) {
      const refused = await ask(origin);
      assert.deepEqual([cors(refused), refused.headers.get("vary"), refused.status], [[], "Origin", allowed.status], origin);
    }
  }
  assert.equal((await asks[6](APP)).headers.get("access-control-max-age"), "86400");
});

test("a Worker with unreadable settings answers 503, readable to pages of its origins, and logs no secret", async (t) => {
  const secret = "too-short-secret";
  const set = JSON.stringify({ keys: [{ kty: "oct", kid: "a", k: Buffer.from(secret).toString("base64url") }] });
  const broken = await serve((end) => t.after(end), "ledger", { ...vars, SEMEL_JWT_KEYS: set });
  const numberless = await serve((end) => t.after(end), "ledger", { ...vars, SEMEL_RECORDS_MAX: "five" });
  assert.equal((await numberless.deposit("x", 1, { headers: { origin: APP } })).headers.get("access-control-allow-origin"), APP);
  for (const [origin, allowed] of [[APP, APP], ["https://evil.example", null]]) {
    const answer = await broken.deposit("x", 1, { as: alice, headers: { origin } });
    assert.deepEqual([answer.status, answer.semel, answer.headers.get("access-control-allow-origin")], [503, "unavailable", allowed]);
    assert.equal(answer.headers.get("retry-after"), "1");
  }
  await broken.line(/SEMEL_JWT_KEYS can't be read: its key 1 has a secret of fewer than 32 bytes/, 2);
  assert.ok(!broken.log.includes(secret) && !broken.log.includes(Buffer.from(secret).toString("base64url")));
});

test("a principal over its rate gets 429 with a Retry-After, and no other principal is limited", async (t) => {
  const slow = await serve((end) => t.after(end), "ledger", { ...vars, SEMEL_RATE_PER_SECOND: "1", SEMEL_RATE_BURST: "2" });
  const answers = await Promise.all(Array.from({ length: 50 }, () => slow.deposit("x", 1, { as: alice })));
  const limited = answers.filter(({ semel }) => semel === "rate-limited");
  assert.ok(limited.length > 0 && limited.length <= 48, `${limited.length} of 50`);
  for (const { status, headers } of limited) assert.deepEqual([status, headers.get("retry-after"), headers.get("semel-key")], [429, "1", null]);
  assert.equal(await slow.send("GET", "/accounts/x", { as: token("carol") }).then(({ json }) => json.entries), 50 - limited.length);
  assert.equal((await slow.deposit("x", 1, { as: token("bob") })).semel, "executed");
});

test("a URL or headers that are too large are answered 413, and health tells the limits", async () => {
  const { limits } = (await server.send("GET", "/semel/v1/health")).json;
  const many = (count) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`x-${n}`, "y"]));
  for (const answer of [
    await send("POST", `/accounts/a/deposit?${"x".repeat(limits.urlBytes)}`, alice, "{}"),
    await send("GET", "/accounts/a", alice, undefined, { headers: many(limits.requestHeaders) }),
    await send("GET", "/accounts/a", alice, undefined, { headers: { "x-large": "y".repeat(limits.requestHeaderBytes) } }),
  ]) {
    assert.deepEqual([answer.status, answer.semel], [413, "too-large"]);
  }
  assert.equal((await send("GET", "/accounts/a", alice, undefined, { headers: many(limits.requestHeaders - 20) })).status, 200);
  assert.equal((await send("GET", "/accounts/a", `${alice}${"A".repeat(limits.tokenBytes)}`)).semel, "unauthorized");
});
