//! Bearer tokens, valid and forged: a test decides about each part.
//!
//! Signatures of key pairs are made and verified by the host. Here a hash of the public half and the message stands for
//! such a signature, so anybody could make one. `tests/e2e/auth.test.mjs` tests on the runtime that it tells valid
//! signatures from forged ones.

use crate::world::START_S;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use semel_core::message::Headers;
use semel_core::server::Gate;
use semel_core::server::edge::auth::{Asker, Refusal, Signed};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The audience of [`claims`].
pub const AUDIENCE: &str = "https://api.example";

/// A signer. Its key is a single byte, repeated.
#[derive(Debug, Clone, Copy)]
pub enum Signer {
    /// HMAC with SHA-256.
    Hs256(u8),
    /// RSA. The first bit of the modulus must be set.
    Rs256(u8),
    /// ECDSA on P-256.
    Es256(u8),
    /// Ed25519.
    EdDsa(u8),
}

impl Signer {
    /// One of each algorithm.
    pub const ALL: [Self; 4] = [Self::Hs256(7), Self::Rs256(0x87), Self::Es256(7), Self::EdDsa(7)];

    /// The `alg` of its tokens.
    pub fn alg(self) -> &'static str {
        match self {
            Self::Hs256(_) => "HS256",
            Self::Rs256(_) => "RS256",
            Self::Es256(_) => "ES256",
            Self::EdDsa(_) => "EdDSA",
        }
    }

    /// The `kid` of its tokens, unless a test says otherwise.
    pub fn kid(self) -> String {
        format!("{self:?}")
    }

    /// The JWK that verifies its tokens.
    pub fn jwk(self) -> Value {
        let mut jwk = match self {
            Self::Hs256(byte) => json!({ "kty": "oct", "k": BASE64.encode([byte; 32]) }),
            _ => self.public(),
        };
        jwk["kid"] = self.kid().into();
        jwk
    }

    /// The public half of its key, as the host gets it.
    fn public(self) -> Value {
        match self {
            Self::Hs256(_) => Value::Null,
            Self::Rs256(byte) => json!({ "kty": "RSA", "n": BASE64.encode([byte; 256]), "e": "AQAB" }),
            Self::Es256(byte) => {
                let [x, y] = [byte, !byte].map(|byte| BASE64.encode([byte; 32]));
                json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y })
            }
            Self::EdDsa(byte) => json!({ "kty": "OKP", "crv": "Ed25519", "x": BASE64.encode([byte; 32]) }),
        }
    }

    /// Signs a message.
    pub fn sign(self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Hs256(byte) => hs256(&[byte; 32], message),
            _ => stood_in_for(self.alg(), &self.public(), message),
        }
    }

    /// A token with these claims.
    pub fn token(self, claims: &Value) -> String {
        self.token_with(&json!({ "alg": self.alg(), "kid": self.kid() }).to_string(), &claims.to_string())
    }

    /// A token of these texts, whatever they are, with a valid signature.
    pub fn token_with(self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", BASE64.encode(header), BASE64.encode(claims));
        let signature = BASE64.encode(self.sign(message.as_bytes()));
        format!("{message}.{signature}")
    }
}

/// The bytes that stand for the signature of a key pair.
fn stood_in_for(alg: &str, public: &Value, message: &[u8]) -> Vec<u8> {
    Sha256::new().chain_update(alg).chain_update(public.to_string()).chain_update(message).finalize().to_vec()
}

/// Asks a gate as the host does: if a signature has to be checked, checks it and asks again.
pub fn admitted(gate: &mut Gate, headers: &Headers, now_ms: i64) -> Result<Asker, Refusal> {
    let asked = gate.admit(headers, now_ms);
    if check(gate) { gate.admit(headers, now_ms) } else { asked }
}

/// Checks the signature that has to be checked. Returns whether there was one.
pub fn check(gate: &mut Gate) -> bool {
    let Some((token, Signed { alg, jwk, message, signature })) = gate.signature_wanted() else { return false };
    let public: Value = serde_json::from_str(&jwk).expect("a JWK");
    gate.signature_checked(token, Some(stood_in_for(alg, &public, message.as_bytes()) == signature));
    true
}

/// HMAC with SHA-256, with any secret.
pub fn hs256(secret: &[u8], message: &[u8]) -> Vec<u8> {
    let mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length will do");
    mac.chain_update(message).finalize().into_bytes().to_vec()
}

/// The claims of a token that is valid for an hour from the start.
pub fn claims(sub: &str) -> Value {
    json!({ "sub": sub, "aud": AUDIENCE, "exp": START_S + 3600 })
}

/// A JWK set of the signers' keys.
pub fn jwks(signers: &[Signer]) -> String {
    json!({ "keys": signers.iter().map(|signer| signer.jwk()).collect::<Vec<_>>() }).to_string()
}
