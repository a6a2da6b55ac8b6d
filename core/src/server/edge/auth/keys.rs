//! The keys that tokens are verified with, read from a JWK set.
//!
//! Invariants:
//! - A key has a `kid` and one algorithm, which its type and curve tell. A token can't choose another.
//! - What an operator sets is read strictly; of what is fetched, keys that can't be used are left out.
//! - A secret never comes from a URL.
//! - HS256, RS256, ES256 and EdDSA with Ed25519, and nothing else, and nothing that signs.
//! - What a secret has signed is checked here; what a key pair has, by the host, which is handed the public half as it is written here anew: of
//!   what a set says beside that, nothing reaches it.

use crate::server::json::read::{Json, Members};
use crate::server::json::write::Object;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// A set has at most so many keys.
pub const KEYS_MAX: usize = 100;
/// HS256 with a shorter secret can be guessed (RFC 7518, 3.2).
const SECRET_BYTES_MIN: usize = 32;
/// RS256 with a shorter modulus can be broken (RFC 7518, 3.3).
const MODULUS_BITS_MIN: usize = 2048;
/// A longer one takes long to check with, and one of 8,192 bits has ended a workerd.
const MODULUS_BITS_MAX: usize = 4096;
/// 65537, which all issuers have.
const EXPONENT: &str = "AQAB";
/// A coordinate of P-256, and a point of Ed25519.
const POINT_BYTES: usize = 32;
/// The points of Ed25519 of small order, in all their forms but for the sign: anybody could sign under them, and a runtime may take
/// them. They are what libsodium refuses as well.
const WEAK_POINTS: [&str; 7] = [
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "7P_______________________________________38",
    "7f_______________________________________38",
    "7v_______________________________________38",
    "JuiVj8KyJ7BFw_SJ8u-Y8NXfrAXTxjM5sTgCiG1T_AU",
    "xxdqcD1N2E-6PAt2DRBnDyogU_osOczGTsf9d5KsA3o",
];

/// One key, which is of one algorithm.
pub struct VerifyingKey {
    algorithm: Algorithm,
    /// Another key under the same `kid` has another one.
    pub(super) id: [u8; 32],
}

enum Algorithm {
    Hs256(Hmac<Sha256>),
    /// Of a key pair: what it is called, and the public half as a JWK.
    Public(&'static str, String),
}

/// A signature that the host is to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// RS256, ES256 or EdDSA.
    pub alg: &'static str,
    /// The public half of the key: a JWK with the members that it must have, and no others.
    pub jwk: String,
    /// What is signed.
    pub message: String,
    /// The signature.
    pub signature: Vec<u8>,
}

/// What can be said of a signature here.
pub(super) enum Look {
    /// It is right, or not.
    Done(bool),
    /// The host is to say it.
    Ask(Signed),
}

impl VerifyingKey {
    /// What a token that this key verifies has as `alg`.
    fn alg(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Hs256(_) => HS256,
            Algorithm::Public(alg, _) => alg,
        }
    }

    /// Whether a token that says `alg` may be of this key.
    pub(super) fn is_of(&self, alg: &str) -> bool {
        is_called(self.alg(), alg)
    }

    pub(super) fn look(&self, message: &str, signature: Vec<u8>) -> Look {
        match &self.algorithm {
            // In constant time.
            Algorithm::Hs256(mac) => Look::Done(mac.clone().chain_update(message).verify_slice(&signature).is_ok()),
            Algorithm::Public(alg, jwk) => {
                Look::Ask(Signed { alg, jwk: jwk.clone(), message: message.to_owned(), signature })
            }
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
const RS256: &str = "RS256";
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

/// Whether it is on the curve, the host finds out.
fn point(coordinate: Option<String>) -> Result<String, &'static str> {
    let coordinate = part(coordinate)?;
    if bytes(&coordinate)?.len() == POINT_BYTES { Ok(coordinate) } else { Err(NO_POINT) }
}

/// Whether a number has enough bits, and not too many. There should be no zeros in front of it (RFC 7518, 6.3.1.1), and some write them.
fn is_modulus(bytes: &[u8]) -> bool {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let bits_of_first = bytes.get(zeros).map_or(0, |first| first.ilog2() as usize + 1);
    let bits = bits_of_first + 8 * bytes.len().saturating_sub(zeros + 1);
    (MODULUS_BITS_MIN..=MODULUS_BITS_MAX).contains(&bits)
}

/// `x` in base64url. The highest bit of its last byte is the sign.
fn is_weak(x: &str) -> bool {
    let x = URL_SAFE_NO_PAD.decode(x).unwrap_or_default();
    let y = x.split_last().map(|(last, rest)| [rest, &[last & 0x7f]].concat()).unwrap_or_default();
    WEAK_POINTS.contains(&URL_SAFE_NO_PAD.encode(y).as_str())
}
