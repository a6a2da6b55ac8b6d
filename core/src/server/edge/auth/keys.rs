//! The keys that tokens are verified with, read from a JWK set.
//!
//! Invariants:
//! - A key has a `kid` and one algorithm, which its type and curve tell. A token can't choose another.
//! - What an operator sets is read strictly; of what is fetched, keys that can't be used are left out.
//! - A secret never comes from a URL.
//! - HS256, ES256 and EdDSA with Ed25519, and nothing else: there is no RSA here, and nothing that signs.

use crate::server::json::read::{Json, Members};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek as ed25519;
use hmac::{Hmac, KeyInit as _, Mac as _};
use p256::ecdsa::{self, signature::Verifier as _};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// A set has at most so many keys.
pub const KEYS_MAX: usize = 100;
/// HS256 with a shorter secret can be guessed (RFC 7518, 3.2).
const SECRET_BYTES_MIN: usize = 32;
/// Of a point in SEC 1.
const UNCOMPRESSED: u8 = 4;

/// One key, which is of one algorithm.
pub struct VerifyingKey {
    algorithm: Algorithm,
    /// Another key under the same `kid` has another one.
    pub(super) id: [u8; 32],
}

enum Algorithm {
    Hs256(Hmac<Sha256>),
    Es256(ecdsa::VerifyingKey),
    EdDsa(ed25519::VerifyingKey),
}

impl VerifyingKey {
    /// What a token that this key verifies has as `alg`.
    fn alg(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Hs256(_) => HS256,
            Algorithm::Es256(_) => ES256,
            Algorithm::EdDsa(_) => EDDSA,
        }
    }

    /// Whether a token that says `alg` may be of this key.
    pub(super) fn is_of(&self, alg: &str) -> bool {
        is_called(self.alg(), alg)
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.algorithm {
            // In constant time.
            Algorithm::Hs256(mac) => mac.clone().chain_update(message).verify_slice(signature).is_ok(),
            Algorithm::Es256(key) => {
                ecdsa::Signature::from_slice(signature).is_ok_and(|signature| key.verify(message, &signature).is_ok())
            }
            Algorithm::EdDsa(key) => ed25519::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify_strict(message, &signature).is_ok()),
        }
    }
}

/// Nothing of it: it may be a secret.
impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a key for {}", self.alg())
    }
}

const HS256: &str = "HS256";
const ES256: &str = "ES256";
const EDDSA: &str = "EdDSA";

/// Whether an algorithm has that name. `Ed25519` is what RFC 9864 calls EdDSA with its curve.
#[inline(never)]
fn is_called(alg: &str, name: &str) -> bool {
    name == alg || alg == EDDSA && name == "Ed25519"
}

/// Keys by `kid`.
#[derive(Debug, Default)]
pub struct KeySet(BTreeMap<String, Rc<VerifyingKey>>);

struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    k: Option<String>,
}

impl Jwk {
    fn read(key: Json) -> Result<Self, String> {
        let mut members = Members::try_from(key)?;
        Ok(Self {
            kty: members.required("kty")?,
            kid: members.optional("kid")?,
            alg: members.optional("alg")?,
            r#use: members.optional("use")?,
            key_ops: members.optional("key_ops")?,
            crv: members.optional("crv")?,
            x: members.optional("x")?,
            y: members.optional("y")?,
            k: members.optional("k")?,
        })
    }
}

impl KeySet {
    /// Reads what an operator has set. An error never holds anything of a key.
    pub fn from_setting(text: &str) -> Result<Self, String> {
        let mut set = Self::default();
        // Counted from 1, as the rules and the routes of other settings are.
        for (n, json) in (1..).zip(jwks(text)?) {
            let jwk = Jwk::read(json).map_err(no_set)?;
            let (kid, key) = key(jwk, true).map_err(|reason| format!("its key {n} {reason}"))?;
            if set.0.insert(kid, Rc::new(key)).is_some() {
                return Err(format!("its key {n} has the kid of another"));
            }
        }
        Ok(set)
    }

    /// Reads what was fetched. Of two keys with one `kid`, the first counts.
    pub fn from_url(text: &str) -> Result<Self, String> {
        let mut set = Self::default();
        let usable = |json| key(Jwk::read(json).ok()?, false).ok();
        for (kid, key) in jwks(text)?.into_iter().filter_map(usable) {
            set.0.entry(kid).or_insert_with(|| Rc::new(key));
        }
        Ok(set)
    }

    /// The key of that `kid`.
    pub fn get(&self, kid: &str) -> Option<Rc<VerifyingKey>> {
        self.0.get(kid).cloned()
    }
}

fn jwks(text: &str) -> Result<Vec<Json<'_>>, String> {
    let keys = Members::parse(text.as_bytes()).and_then(|mut set| set.required::<Vec<Json>>("keys")).map_err(no_set)?;
    if keys.len() > KEYS_MAX { Err(format!("it has more than {KEYS_MAX} keys")) } else { Ok(keys) }
}

/// What was said of an error may quote a secret.
fn no_set(_: String) -> String {
    "it is not a JWK set: {\"keys\":[...]}".to_owned()
}

fn key(jwk: Jwk, allow_secret: bool) -> Result<(String, VerifyingKey), &'static str> {
    let alg = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("oct", None) if allow_secret => HS256,
        ("EC", Some("P-256")) => ES256,
        ("OKP", Some("Ed25519")) => EDDSA,
        _ => return Err("is none of oct, EC with P-256, OKP with Ed25519"),
    };
    if jwk.alg.is_some_and(|said| !is_called(alg, &said)) {
        return Err("has an alg that is not that of its type");
    }
    let is_for_verifying = jwk.r#use.is_none_or(|r#use| r#use == "sig")
        && jwk.key_ops.is_none_or(|ops| ops.iter().any(|op| op == "verify"));
    if !is_for_verifying {
        return Err("is not for verifying");
    }
    let kid = jwk.kid.filter(|kid| !kid.is_empty()).ok_or("has no kid")?;
    let no_point = "is no point of its curve that could be a key";
    let (algorithm, material) = match alg {
        HS256 => {
            let secret = bytes(jwk.k)?;
            if secret.len() < SECRET_BYTES_MIN {
                return Err("has a secret of fewer than 32 bytes");
            }
            (Algorithm::Hs256(Hmac::new_from_slice(&secret).map_err(|_| "has no secret")?), secret)
        }
        ES256 => {
            let (x, y) = (bytes(jwk.x)?, bytes(jwk.y)?);
            // Both parts are whole: together they could be, where each is not.
            if x.len() != y.len() {
                return Err(no_point);
            }
            let point = [vec![UNCOMPRESSED], x, y].concat();
            (Algorithm::Es256(ecdsa::VerifyingKey::from_sec1_bytes(&point).map_err(|_| no_point)?), point)
        }
        _ => {
            let point = bytes(jwk.x)?;
            let key = ed25519::VerifyingKey::try_from(point.as_slice()).map_err(|_| no_point)?;
            (Algorithm::EdDsa(Some(key).filter(|key| !key.is_weak()).ok_or(no_point)?), point)
        }
    };
    let id = Sha256::new().chain_update(alg).chain_update(&material).finalize().into();
    Ok((kid, VerifyingKey { algorithm, id }))
}

fn bytes(part: Option<String>) -> Result<Vec<u8>, &'static str> {
    let text = part.ok_or("lacks a part (k, or x and y)")?;
    URL_SAFE_NO_PAD.decode(text).map_err(|_| "has a part that is not base64url")
}
