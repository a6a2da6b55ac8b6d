// Signatures of tokens, as the runtime checks them: true ones, forged ones, and unusable keys.

import assert from "node:assert/strict";
import { createHash, createPublicKey, generateKeyPairSync, sign, verify } from "node:crypto";
import { after, test } from "node:test";
import { gives, issuer } from "./issuer.mjs";
import { serve } from "./server.mjs";
import { AUDIENCE, signer } from "./tokens.mjs";
import { open } from "./websocket.mjs";

const encoded = (bytes) => Buffer.from(bytes).toString("base64url");
const claims = () => ({ sub: "alice", aud: AUDIENCE, exp: Math.floor(Date.now() / 1000) + 3600 });

const signers = ["RS256", "ES256", "EdDSA"].map((alg) => signer(alg));
const long = (() => {
  const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 4096 });
  return { jwk: { ...publicKey.export({ format: "jwk" }), kid: "long" }, privateKey };
})();
const ec = signers[1].jwk;
// Each has all members of a key, so only its use can show that it is none.
const unusable = [
  { ...ec, kid: "off the curve", y: ec.x },
  { ...ec, kid: "nowhere", x: encoded(new Uint8Array(32)), y: encoded(new Uint8Array(32)) },
  { ...ec, kid: "beyond", x: encoded(new Uint8Array(32).fill(0xff)), y: encoded(new Uint8Array(32).fill(0xff)) },
];
const keys = [...signers.map(({ jwk }) => jwk), long.jwk, ...unusable];
const server = await serve(after, "ledger", { SEMEL_OPEN: "false", SEMEL_JWT_KEYS: JSON.stringify({ keys }), SEMEL_JWT_AUDIENCE: AUDIENCE });
const ask = async (as) => (await server.deposit("a", 1, { as })).semel;

test("a token with any one character changed is unauthorized, for each algorithm", async () => {
  for (const { jwk, token } of signers) {
    const right = token(claims());
    const changed = [...right].map((character, at) => `${right.slice(0, at)}${character === "A" ? "B" : "A"}${right.slice(at + 1)}`);
    const answers = await Promise.all(changed.map(ask));
    const taken = answers.flatMap((semel, at) => (semel === "unauthorized" ? [] : [`${at}: ${semel}`]));
    assert.deepEqual(taken, [], jwk.kid);
    // The many wrong tokens are not held against the right one, which is sent for the first time now.
    assert.equal(await ask(right), "executed", jwk.kid);
  }
});

test("a signature by another key of the same kind is unauthorized, and so is one too short, too long, zero or empty", async () => {
  for (const { jwk, token } of signers) {
    const others = signer(jwk.kid).token(claims());
    const [header, body, signature] = token(claims()).split(".");
    const bytes = Buffer.from(signature, "base64url");
    const odd = [bytes.subarray(1), bytes.subarray(0, -1), Buffer.concat([bytes, bytes]), Buffer.concat([Buffer.of(0), bytes]), Buffer.alloc(bytes.length), Buffer.alloc(0)];
    for (const forged of [others, ...odd.map((each) => `${header}.${body}.${encoded(each)}`)]) assert.equal(await ask(forged), "unauthorized", `${jwk.kid}: ${forged}`);
  }
});

test("a token of each algorithm authenticates a socket and a batch", async () => {
  const request = (id) => ({ id, method: "POST", path: "/accounts/a/deposit", headers: { "content-type": "application/json" }, body: '{"amount":1}' });
  for (const { jwk, token } of signers) {
    const as = token({ ...claims(), jti: "not seen before" });
    const { socket } = await open(server.url, "/semel/v1/keys/accounts%2Fa/socket");
    socket.send(JSON.stringify({ authorization: `Bearer ${as}` }));
    socket.send(JSON.stringify({ frame: 1, requests: [request(`${jwk.kid} by a socket`)] }));
    const { answers } = JSON.parse(await socket.next());
    assert.equal(answers[0].headers["semel-status"], "executed", jwk.kid);
    const another = token({ ...claims(), jti: "nor this" });
    const batch = await server.send("POST", "/semel/v1/keys/accounts%2Fa/batch", { as: another, body: JSON.stringify([request(`${jwk.kid} in a batch`)]) });
    assert.equal(batch.json[0].headers["semel-status"], "executed", jwk.kid);
    const { socket: strangers } = await open(server.url, "/semel/v1/keys/accounts%2Fa/socket");
    strangers.send(JSON.stringify({ authorization: `Bearer ${signer(jwk.kid).token(claims())}` }));
    assert.deepEqual(await strangers.closed, [4401, "unauthorized"]);
  }
});

test("a token that is signed with an RSA key of 4096 bits is accepted", async () => {
  const message = `${encoded(JSON.stringify({ alg: "RS256", kid: "long" }))}.${encoded(JSON.stringify(claims()))}`;

  assert.equal(await ask(`${message}.${encoded(sign("sha256", Buffer.from(message), long.privateKey))}`), "executed");
});

test("a token that names an unusable key is unavailable, the log says so, and tokens of other keys are accepted", async () => {
  for (const { kid } of unusable) {
    const message = `${encoded(JSON.stringify({ alg: "ES256", kid }))}.${encoded(JSON.stringify(claims()))}`;
    const answer = await server.deposit("a", 1, { as: `${message}.${encoded(new Uint8Array(64).fill(7))}` });
    assert.deepEqual([answer.status, answer.semel, answer.json.executed], [503, "unavailable", "unknown"], kid);
  }
  await server.line(/the key that the token names can't be used/);
  assert.equal(await ask(signers[1].token(claims())), "executed");
});

/** A token that anybody can make: under a point of small order, some message soon has R = 1, S = 0 as a valid signature. */
function forgedUnder(x, kid) {
  const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: encoded(x) }, format: "jwk" });
  const signature = Buffer.concat([Buffer.of(1), Buffer.alloc(63)]);
  for (let jti = 0; jti < 200; jti += 1) {
    const message = `${encoded(JSON.stringify({ alg: "EdDSA", kid }))}.${encoded(JSON.stringify({ ...claims(), jti }))}`;
    if (verify(null, Buffer.from(message), key, signature)) return `${message}.${encoded(signature)}`;
  }
  return undefined;
}

test("an Ed25519 key of small order, under which anybody could sign, is ignored, and its tokens are unauthorized", async (t) => {
  const hex = ["0100000000000000000000000000000000000000000000000000000000000000", "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", "0000000000000000000000000000000000000000000000000000000000000000", "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"];

  const points = hex.map((each) => Buffer.from(each, "hex"));
  const weak = points.map((x) => ({ jwk: { kty: "OKP", crv: "Ed25519", x: encoded(x), kid: createHash("sha256").update(x).digest("hex") } }));
  const told = await issuer(t, gives(signers[2], ...weak));
  const fetching = await serve((end) => t.after(end), "ledger", { SEMEL_OPEN: "false", SEMEL_JWKS_URL: told.url, SEMEL_JWT_AUDIENCE: AUDIENCE }, { reachesLocal: true });
  const forged = points.map((x, at) => forgedUnder(x, weak[at].jwk.kid));
  assert.ok(forged.every((token) => token !== undefined), "Node takes each for a signature");
  for (const as of forged) {
    const answer = await fetching.deposit("a", 1, { as });
    assert.deepEqual([answer.semel, answer.json.detail], ["unauthorized", "no key of HS256, RS256, ES256 or EdDSA has the token's kid"]);
  }
  assert.equal((await fetching.deposit("a", 1, { as: signers[2].token(claims()) })).semel, "executed");
});
