//! Bearer tokens, true and forged: each part is what a test wants it to be.

use crate::world::START_S;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use p256::ecdsa::signature::Signer as _;
use serde_json::{Value, json};
use sha2::Sha256;

/// The audience of [`claims`].
pub const AUDIENCE: &str = "https://api.example";

/// Who signs, with a key made of one byte, again and again.
#[derive(Debug, Clone, Copy)]
pub enum Signer {
    /// HMAC with SHA-256.
    Hs256(u8),
    /// ECDSA on P-256.
    Es256(u8),
    /// Ed25519.
    EdDsa(u8),
}

impl Signer {
    /// One of each algorithm.
    pub const ALL: [Self; 3] = [Self::Hs256(7), Self::Es256(7), Self::EdDsa(7)];

    /// What its tokens have as `alg`.
    pub fn alg(self) -> &'static str {
        match self {
            Self::Hs256(_) => "HS256",
            Self::Es256(_) => "ES256",
            Self::EdDsa(_) => "EdDSA",
        }
    }

    /// What its tokens have as `kid`, unless a test says otherwise.
    pub fn kid(self) -> String {
        format!("{self:?}")
    }

    /// What verifies its tokens.
    pub fn jwk(self) -> Value {
        let encoded = |bytes: &[u8]| BASE64.encode(bytes);
        match self {
            Self::Hs256(byte) => json!({ "kty": "oct", "kid": self.kid(), "k": encoded(&[byte; 32]) }),
            Self::Es256(byte) => {
                let point = ec(byte).verifying_key().to_sec1_point(false);
                let (x, y) = (point.x().expect("an x"), point.y().expect("a y"));
                json!({ "kty": "EC", "crv": "P-256", "kid": self.kid(), "x": encoded(x), "y": encoded(y) })
            }
            Self::EdDsa(byte) => {
                let x = encoded(ed(byte).verifying_key().as_bytes());
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": self.kid(), "x": x })
            }
        }
    }

    /// Signs bytes.
    pub fn sign(self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Hs256(byte) => hs256(&[byte; 32], message),
            Self::Es256(byte) => {
                let signature: p256::ecdsa::Signature = ec(byte).sign(message);
                signature.to_bytes().to_vec()
            }
            Self::EdDsa(byte) => ed25519_dalek::Signer::sign(&ed(byte), message).to_bytes().to_vec(),
        }
    }

    /// A token with these claims.
    pub fn token(self, claims: &Value) -> String {
        self.token_with(&json!({ "alg": self.alg(), "kid": self.kid() }).to_string(), &claims.to_string())
    }

    /// A token of these texts, whatever they are, truly signed.
    pub fn token_with(self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", BASE64.encode(header), BASE64.encode(claims));
        let signature = BASE64.encode(self.sign(message.as_bytes()));
        format!("{message}.{signature}")
    }
}

/// HMAC with SHA-256, with any secret.
pub fn hs256(secret: &[u8], message: &[u8]) -> Vec<u8> {
    let mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length will do");
    mac.chain_update(message).finalize().into_bytes().to_vec()
}

fn ec(byte: u8) -> p256::ecdsa::SigningKey {
    p256::ecdsa::SigningKey::from_slice(&[byte; 32]).expect("a scalar")
}

fn ed(byte: u8) -> ed25519_dalek::SigningKey {
    ed25519_dalek::SigningKey::from_bytes(&[byte; 32])
}

/// The claims of somebody whose token holds for an hour from the start.
pub fn claims(sub: &str) -> Value {
    json!({ "sub": sub, "aud": AUDIENCE, "exp": START_S + 3600 })
}

/// A JWK set of these.
pub fn jwks(signers: &[Signer]) -> String {
    json!({ "keys": signers.iter().map(|signer| signer.jwk()).collect::<Vec<_>>() }).to_string()
}
