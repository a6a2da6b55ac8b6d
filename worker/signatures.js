// Signatures of bearer tokens, checked by the runtime's WebCrypto.
//
// Invariants:
// - What is checked, and with which algorithm, the module says: of one key, of which it knows the type.
// - Whatever a key is, nothing is thrown. One that can't be used is the issuer's or the operator's matter, and says nothing of a token.

/** By the name that a token has for it. */
const ALGORITHMS = {
  RS256: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" },
  ES256: { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" },
  EdDSA: { name: "Ed25519" },
};

const encoder = new TextEncoder();

/** Resolves to whether a key has signed a message; undefined: it can't be used. */
export async function isSigned([, alg, jwk, message, signature]) {
  const algorithm = ALGORITHMS[alg];
  const key = await crypto.subtle.importKey("jwk", JSON.parse(jwk), algorithm, false, ["verify"]).catch(() => undefined);
  // Of some algorithms the runtime throws where a signature is of another length than it should be.
  return key && (await crypto.subtle.verify(algorithm, key, signature, encoder.encode(message)).catch(() => false));
}
