// Checks signatures of bearer tokens with the runtime's WebCrypto.
//
// Invariants:
// - The module says what to check: one key, whose type it knows, and the algorithm.
// - Nothing is thrown, whatever the key is. A key that can't be used is the issuer's or the operator's fault, and says nothing about the token.

/** By the `alg` of a token. */
const ALGORITHMS = {
  RS256: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" },
  ES256: { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" },
  EdDSA: { name: "Ed25519" },
};

const encoder = new TextEncoder();

/** Resolves to whether the key has signed the message; to undefined if the key can't be used. */
export async function isSigned([, alg, jwk, message, signature]) {
  const algorithm = ALGORITHMS[alg];
  const key = await crypto.subtle.importKey("jwk", JSON.parse(jwk), algorithm, false, ["verify"]).catch(() => undefined);
  // For some algorithms the runtime throws if the signature has a wrong length.
  return key && (await crypto.subtle.verify(algorithm, key, signature, encoder.encode(message)).catch(() => false));
}
