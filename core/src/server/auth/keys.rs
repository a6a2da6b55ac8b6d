//! The keys that tokens are verified with, read from a JWK set.
//!
//! Invariants:
//! - A key has a `kid` and one algorithm, which its type and curve tell. A token can't choose another.
//! - What an operator sets is read strictly; of what is fetched, keys that can't be used are left out.
//! - A secret never comes from a URL.

use super::algorithms;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A set has at most so many keys.
pub const KEYS_MAX: usize = 100;
/// HS256 with a shorter secret can be guessed (RFC 7518, 3.2).
const SECRET_BYTES_MIN: usize = 32;
const COORDINATE_BYTES: usize = 32;

/// One key.
#[derive(Debug)]
pub struct VerifyingKey {
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
    /// Another key under the same `kid` has another one.
    pub(super) id: [u8; 32],
}

/// Keys by `kid`.
#[derive(Debug, Default)]
pub struct KeySet(BTreeMap<String, Rc<VerifyingKey>>);

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
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

impl KeySet {
    /// Reads what an operator has set. An error never holds anything of a key.
    pub fn from_setting(text: &str) -> Result<Self, String> {
        let mut set = Self::default();
        for (index, jwk) in jwks(text)?.into_iter().enumerate() {
            let (kid, key) = key(jwk, true).map_err(|reason| format!("its key {index} {reason}"))?;
            if set.0.insert(kid, Rc::new(key)).is_some() {
                return Err(format!("its key {index} has the kid of another"));
            }
        }
        Ok(set)
    }

    /// Reads what was fetched. Of two keys with one `kid`, the first counts.
    pub fn from_url(text: &str) -> Result<Self, String> {
        let mut set = Self::default();
        for (kid, key) in jwks(text)?.into_iter().filter_map(|jwk| key(jwk, false).ok()) {
            set.0.entry(kid).or_insert_with(|| Rc::new(key));
        }
        Ok(set)
    }

    /// The key of that `kid`.
    pub fn get(&self, kid: &str) -> Option<Rc<VerifyingKey>> {
        self.0.get(kid).cloned()
    }
}

fn jwks(text: &str) -> Result<Vec<serde_json::Value>, String> {
    // What serde_json says of an error may quote a secret.
    let Jwks { keys } = serde_json::from_str(text).map_err(|_| "it is not a JWK set: {\"keys\":[...]}".to_owned())?;
    if keys.len() > KEYS_MAX { Err(format!("it has more than {KEYS_MAX} keys")) } else { Ok(keys) }
}

fn key(jwk: serde_json::Value, allow_secret: bool) -> Result<(String, VerifyingKey), String> {
    let jwk: Jwk = serde_json::from_value(jwk).map_err(|_| "is no JWK".to_owned())?;
    let algorithm = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("oct", None) if allow_secret => Algorithm::HS256,
        ("EC", Some("P-256")) => Algorithm::ES256,
        ("OKP", Some("Ed25519")) => Algorithm::EdDSA,
        _ => return Err("is none of oct, EC with P-256, OKP with Ed25519".to_owned()),
    };
    let name = match algorithm {
        Algorithm::HS256 => "HS256",
        Algorithm::ES256 => "ES256",
        _ => "EdDSA",
    };
    // `Ed25519` is what RFC 9864 calls it.
    if jwk.alg.is_some_and(|alg| alg != name && !(name == "EdDSA" && alg == "Ed25519")) {
        return Err(format!("has an alg that is not {name}"));
    }
    let is_for_verifying = jwk.r#use.is_none_or(|r#use| r#use == "sig")
        && jwk.key_ops.is_none_or(|ops| ops.iter().any(|op| op == "verify"));
    if !is_for_verifying {
        return Err("is not for verifying".to_owned());
    }
    let kid = jwk.kid.filter(|kid| !kid.is_empty()).ok_or("has no kid")?;
    let bytes = |part: Option<String>, what: &str| {
        let text = part.ok_or_else(|| format!("has no {what}"))?;
        URL_SAFE_NO_PAD.decode(text).map_err(|_| format!("has an {what} that is not base64url"))
    };
    let coordinate = |part, what| match bytes(part, what) {
        Ok(bytes) if bytes.len() != COORDINATE_BYTES => Err(format!("has an {what} of another length")),
        other => other,
    };
    let (material, key) = match algorithm {
        Algorithm::HS256 => {
            let secret = bytes(jwk.k, "k")?;
            if secret.len() < SECRET_BYTES_MIN {
                return Err(format!("has a secret of fewer than {SECRET_BYTES_MIN} bytes"));
            }
            (secret.clone(), DecodingKey::from_secret(&secret))
        }
        Algorithm::ES256 => {
            let point = [vec![4], coordinate(jwk.x, "x")?, coordinate(jwk.y, "y")?].concat();
            (point.clone(), DecodingKey::from_ec_der(&point))
        }
        _ => {
            let x = coordinate(jwk.x, "x")?;
            (x.clone(), DecodingKey::from_ed_der(&x))
        }
    };
    if !algorithms::is_key(algorithm, &key) {
        return Err("is no point of its curve that could be a key".to_owned());
    }
    let id = Sha256::new().chain_update(name).chain_update(&material).finalize().into();
    Ok((kid, VerifyingKey { algorithm, key, id }))
}
