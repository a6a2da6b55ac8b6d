// Makes bearer tokens and JWK sets with Node's own cryptography, so not with the code that verifies them.

import { createHmac, generateKeyPairSync, randomBytes, sign } from "node:crypto";

export const AUDIENCE = "https://api.example";

const encoded = (bytes) => Buffer.from(bytes).toString("base64url");
const seconds = () => Math.floor(Date.now() / 1000);

/** Makes a signer with a new key: HS256, RS256, ES256 or EdDSA. */
export function signer(alg, kid = alg) {
  const { jwk, signature } = { HS256: hmac, RS256: rsa, ES256: ecdsa, EdDSA: eddsa }[alg]();
  const raw = (header, claims) => {
    const message = `${encoded(header)}.${encoded(claims)}`;
    return `${message}.${encoded(signature(message))}`;
  };
  const token = (claims) => raw(JSON.stringify({ alg, kid, typ: "JWT" }), JSON.stringify({ aud: AUDIENCE, exp: seconds() + 3600, ...claims }));
  return { jwk: { ...jwk, kid }, token, raw };
}

export const jwks = (...signers) => JSON.stringify({ keys: signers.map(({ jwk }) => jwk) }, null, 2);

function hmac() {
  const secret = randomBytes(32);
  return { jwk: { kty: "oct", k: encoded(secret) }, signature: (message) => createHmac("sha256", secret).update(message).digest() };
}

function rsa() {
  const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { jwk: publicKey.export({ format: "jwk" }), signature: (message) => sign("sha256", Buffer.from(message), privateKey) };
}

function ecdsa() {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const signature = (message) => sign("sha256", Buffer.from(message), { key: privateKey, dsaEncoding: "ieee-p1363" });
  return { jwk: publicKey.export({ format: "jwk" }), signature };
}

function eddsa() {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  return { jwk: publicKey.export({ format: "jwk" }), signature: (message) => sign(null, Buffer.from(message), privateKey) };
}
