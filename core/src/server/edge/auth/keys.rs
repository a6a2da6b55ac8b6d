//! The keys that tokens are verified with, read from a JWK set.
//!
//! Invariants:
//! - A key has a `kid` and one algorithm, which follows from its type and curve. A token can't choose another algorithm.
//! - An operator's set is read strictly. Of a fetched set, keys that can't be used are left out.
//! - A secret never comes from a URL.
//! - The algorithms are HS256, RS256, ES256 and EdDSA with Ed25519, and no others. Nothing here signs.
//! - Signatures made with a secret are checked here. Those of a key pair are checked by the host, which gets the public
//!   half, written anew here. Nothing else from the set reaches the host.

use crate::server::json::read::{Json, Members};
use crate::server::json::write::Object;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// The most keys in a set.
pub const KEYS_MAX: usize = 100;
/// The shortest secret for HS256, in bytes: a shorter one can be guessed (RFC 7518, 3.2).
const SECRET_BYTES_MIN: usize = 32;
/// The shortest modulus for RS256: a shorter one can be broken (RFC 7518, 3.3).
const MODULUS_BITS_MIN: usize = 2048;
/// The longest modulus: a check with a longer one takes long, and one of 8,192 bits has ended a workerd.
const MODULUS_BITS_MAX: usize = 4096;
/// 65537, which all issuers use.
const EXPONENT: &str = "AQAB";
/// The length of a coordinate of P-256, and of a point of Ed25519.
const POINT_BYTES: usize = 32;
/// The points of Ed25519 of small order, in every encoding except for the sign. Anybody could sign under such a key, and
/// a runtime may accept it. libsodium refuses the same points.
const WEAK_POINTS: [&str; 7] = [
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "7P_______________________________________38",
    "7f_______________________________________38",
    "7v_______________________________________38",
    "JuiVj8KyJ7BFw_SJ8u-Y8NXfrAXTxjM5sTgCiG1T_AU",
    "xxdqcD1N2E-6PAt2DRBnDyogU_osOczGTsf9d5KsA3o",
];

/// One key, with its one algorithm.
pub struct VerifyingKey {
    algorithm: Algorithm,
    /// A hash of the key, which differs for another key with the same `kid`.
    pub(super) id: [u8; 32],
}

enum Algorithm {
    Hs256(Hmac<Sha256>),
    /// A key pair: the name of its algorithm, and the public half as a JWK.
    Public(&'static str, String),
}

/// A signature for the host to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// RS256, ES256 or EdDSA.
    pub alg: &'static str,
    /// The public half of the key: a JWK with only the required members.
    pub jwk: String,
    /// The text that is signed.
    pub message: String,
    /// The signature.
    pub signature: Vec<u8>,
}

/// What can be said of a signature here.
pub(super) enum Look {
    /// Whether it is right.
    Done(bool),
    /// The host has to check it.
    Ask(Signed),
}

impl VerifyingKey {
    /// The `alg` of tokens that this key verifies.
    fn alg(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Hs256(_) => HS256,
            Algorithm::Public(alg, _) => alg,
        }
    }

    /// Whether this key may verify a token with that `alg`.
    pub(super) fn is_of(&self, alg: &str) -> bool {
        is_called(self.alg(), alg)
    }

    pub(super) fn look(&self, message: &str, signature: Vec<u8>) -> Look {
        match &self.algorithm {
            // This compares in constant time.
            Algorithm::Hs256(mac) => Look::Done(mac.clone().chain_update(message).verify_slice(&signature).is_ok()),
            Algorithm::Public(alg, jwk) => {
                Look::Ask(Signed { alg, jwk: jwk.clone(), message: message.to_owned(), signature })
            }
        }
    }
}

/// Shows nothing of the key, which may be a secret.
impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a key for {}", self.alg())
    }
}

const HS256: &str = "HS256";
const RS256: &str = "RS256";
const ES256: &str = "ES256";
const EDDSA: &str = "EdDSA";

/// Whether an algorithm has that name. RFC 9864 calls EdDSA with this curve `Ed25519`.
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
    n: Option<String>,
    e: Option<String>,
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
            n: members.optional("n")?,
            e: members.optional("e")?,
            k: members.optional("k")?,
        })
    }
}

impl KeySet {
    /// Reads an operator's setting. The error shows nothing of any key.
    pub fn from_setting(text: &str) -> Result<Self, String> {
        let mut set = Self::default();
        // Counts from 1, like the errors of the other settings.
        for (n, json) in (1..).zip(jwks(text)?) {
            let jwk = Jwk::read(json).map_err(no_set)?;
            let (kid, key) = key(jwk, true).map_err(|reason| format!("its key {n} {reason}"))?;
            if set.0.insert(kid, Rc::new(key)).is_some() {
                return Err(format!("its key {n} has the kid of another"));
            }
        }
        Ok(set)
    }

    /// Reads a fetched set. If two keys have the same `kid`, the first one is used.
    pub fn from_url(text: &str) -> Result<Self, String> {
        let mut set = Self::default();
        let usable = |json| key(Jwk::read(json).ok()?, false).ok();
        for (kid, key) in jwks(text)?.into_iter().filter_map(usable) {
            set.0.entry(kid).or_insert_with(|| Rc::new(key));
        }
        Ok(set)
    }

    /// The key with that `kid`.
    pub fn get(&self, kid: &str) -> Option<Rc<VerifyingKey>> {
        self.0.get(kid).cloned()
    }
}

fn jwks(text: &str) -> Result<Vec<Json<'_>>, String> {
    let keys = Members::parse(text.as_bytes()).and_then(|mut set| set.required::<Vec<Json>>("keys")).map_err(no_set)?;
    if keys.len() > KEYS_MAX { Err(format!("it has more than {KEYS_MAX} keys")) } else { Ok(keys) }
}

/// Replaces an error that may quote a secret.
fn no_set(_: String) -> String {
    "it is not a JWK set: {\"keys\":[...]}".to_owned()
}

fn key(jwk: Jwk, allow_secret: bool) -> Result<(String, VerifyingKey), &'static str> {
    let alg = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("oct", None) if allow_secret => HS256,
        ("RSA", None) => RS256,
        ("EC", Some("P-256")) => ES256,
        ("OKP", Some("Ed25519")) => EDDSA,
        _ => return Err("is none of oct, RSA, EC with P-256, OKP with Ed25519"),
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
    let public = |members: &[(&str, &str)]| {
        let object = members.iter().fold(Object::default(), |object, (name, value)| object.with(name, *value));
        let jwk = object.end().into_text();
        (Sha256::new().chain_update(alg).chain_update(&jwk), Algorithm::Public(alg, jwk))
    };
    let (hash, algorithm) = match alg {
        HS256 => {
            let secret = bytes(&part(jwk.k)?)?;
            if secret.len() < SECRET_BYTES_MIN {
                return Err("has a secret of fewer than 32 bytes");
            }
            let mac = Hmac::new_from_slice(&secret).map_err(|_| "has no secret")?;
            (Sha256::new().chain_update(alg).chain_update(&secret), Algorithm::Hs256(mac))
        }
        RS256 => {
            let n = part(jwk.n)?;
            if !is_modulus(&bytes(&n)?) || part(jwk.e)? != EXPONENT {
                return Err("is not of 2048 to 4096 bits with the exponent 65537");
            }
            public(&[("kty", "RSA"), ("n", &n), ("e", EXPONENT)])
        }
        ES256 => {
            let (x, y) = (point(jwk.x)?, point(jwk.y)?);
            public(&[("kty", "EC"), ("crv", "P-256"), ("x", &x), ("y", &y)])
        }
        _ => {
            let x = point(jwk.x)?;
            if is_weak(&x) {
                return Err(NO_POINT);
            }
            public(&[("kty", "OKP"), ("crv", "Ed25519"), ("x", &x)])
        }
    };
    Ok((kid, VerifyingKey { algorithm, id: hash.finalize().into() }))
}

const NO_POINT: &str = "is no point of its curve that could be a key";

fn part(part: Option<String>) -> Result<String, &'static str> {
    part.ok_or("lacks a part (k; n and e; or x and y)")
}

fn bytes(part: &str) -> Result<Vec<u8>, &'static str> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| "has a part that is not base64url")
}

/// Checks the length of a coordinate. The host finds out whether the point is on the curve.
fn point(coordinate: Option<String>) -> Result<String, &'static str> {
    let coordinate = part(coordinate)?;
    if bytes(&coordinate)?.len() == POINT_BYTES { Ok(coordinate) } else { Err(NO_POINT) }
}

/// Whether a modulus has enough bits, and not too many. Leading zeros are not allowed (RFC 7518, 6.3.1.1), but some
/// issuers write them, so they do not count.
fn is_modulus(bytes: &[u8]) -> bool {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let bits_of_first = bytes.get(zeros).map_or(0, |first| first.ilog2() as usize + 1);
    let bits = bits_of_first + 8 * bytes.len().saturating_sub(zeros + 1);
    (MODULUS_BITS_MIN..=MODULUS_BITS_MAX).contains(&bits)
}

/// Whether a point is of small order. `x` is in base64url; the highest bit of its last byte is the sign.
fn is_weak(x: &str) -> bool {
    let x = URL_SAFE_NO_PAD.decode(x).unwrap_or_default();
    let y = x.split_last().map(|(last, rest)| [rest, &[last & 0x7f]].concat()).unwrap_or_default();
    WEAK_POINTS.contains(&URL_SAFE_NO_PAD.encode(y).as_str())
}
