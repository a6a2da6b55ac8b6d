//! Judges one bearer token, a JWT.
//!
//! Invariants:
//! - Cheap checks come before the signature, and the signature comes before anything in the token is believed.
//! - The key determines the algorithm. `none` is refused, and so is a header that must be understood (`crit`).
//! - `exp` and `aud` are required. The clock is an argument.

use super::grant::Grant;
use super::keys::{Look, VerifyingKey};
use crate::id::Principal;
use crate::server::json::read::{Json, Members};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// The longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 8 << 10;
/// How far the clocks of issuer and Worker may differ, in seconds.
pub const LEEWAY_S: i64 = 30;

/// What counts of a token once it is verified.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Verified {
    pub principal: Principal,
    pub grant: Grant,
    not_before_s: f64,
    expires_s: f64,
}

struct Header {
    alg: String,
    kid: Option<String>,
    has_crit: bool,
}

struct Claims {
    sub: String,
    audiences: Vec<String>,
    iss: Option<String>,
    exp: f64,
    nbf: Option<f64>,
    semel: Option<Grant>,
}

impl Header {
    fn read(mut members: Members) -> Result<Self, String> {
        Ok(Self {
            alg: members.required("alg")?,
            kid: members.optional("kid")?,
            has_crit: members.any("crit")?.is_some(),
        })
    }
}

impl Claims {
    fn read(mut members: Members) -> Result<Self, String> {
        let count = members.count();
        let semel: Option<Members> = members.optional("semel")?;
        if semel.is_none() && members.count() < count {
            return Err("the limits are null".to_owned());
        }
        Ok(Self {
            sub: members.required("sub")?,
            audiences: match members.any("aud")? {
                Some(Json::Text(one)) => vec![one.into_owned()],
                many => Vec::try_from(many.unwrap_or(Json::Null))?,
            },
            iss: members.optional("iss")?,
            exp: members.required("exp")?,
            nbf: members.optional("nbf")?,
            semel: semel.map(Grant::read).transpose()?,
        })
    }
}

/// What a token must say, apart from being signed.
#[derive(Debug, Clone, Default)]
pub(super) struct Expected {
    pub audience: String,
    pub issuer: Option<String>,
}

/// A parsed token. It claims a signature that nobody has checked yet.
pub(super) struct Claimed<'a> {
    pub kid: String,
    alg: String,
    /// The text that is signed.
    message: &'a str,
    claims: &'a str,
    signature: &'a str,
}

impl<'a> Claimed<'a> {
    pub fn parse(token: &'a str) -> Result<Self, &'static str> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err("the token is too long");
        }
        let no_token = "the bearer token is no JWT";
        let (message, signature) = token.rsplit_once('.').ok_or(no_token)?;
        let (header, claims) = message.split_once('.').ok_or(no_token)?;
        let Header { alg, kid, has_crit } = part(header, Header::read).ok_or(no_token)?;
        if has_crit {
            return Err("the token has a critical header, which is not understood");
        }
        let kid = kid.ok_or("the token names no key (kid)")?;
        Ok(Self { kid, alg, message, claims, signature })
    }

    /// When it was issued, in Unix seconds, if it says so. Nobody has checked that.
    pub fn issued_s(&self) -> Option<f64> {
        part(self.claims, |mut members| members.required("iat"))
    }

    /// Whether the key has signed it.
    pub fn look(&self, key: &VerifyingKey) -> Result<Look, &'static str> {
        if !key.is_of(&self.alg) {
            return Err("the token's algorithm is not that of its key");
        }
        // Only the one exact encoding is accepted: otherwise one token could be written in several ways. A dot in it is refused too.
        let signature = URL_SAFE_NO_PAD.decode(self.signature).map_err(|_| BAD_SIGNATURE)?;
        Ok(key.look(self.message, signature))
    }

    /// Its principal and what it allows, if all its claims except the time are as expected. The caller must have checked the signature.
    pub fn verified(self, expected: &Expected) -> Result<Verified, &'static str> {
        let Claims { sub, audiences, iss, exp, nbf, semel } = part(self.claims, Claims::read)
            .ok_or("the token's claims can't be read, or lack one of sub, aud and exp")?;
        if !audiences.contains(&expected.audience) {
            return Err("the token is for another audience (aud)");
        }
        if expected.issuer.is_some() && iss != expected.issuer {
            return Err("the token is of another issuer (iss)");
        }
        let no_principal = "the token's sub can't be a principal";
        let principal = Principal::new(sub).map_err(|_| no_principal)?;
        if principal == Principal::default() || principal.is_reserved() {
            return Err(no_principal);
        }
        Ok(Verified {
            principal,
            grant: semel.unwrap_or_default(),
            not_before_s: nbf.unwrap_or(f64::NEG_INFINITY),
            expires_s: exp,
        })
    }
}

fn part<T>(base64: &str, read: fn(Members) -> Result<T, String>) -> Option<T> {
    read(Members::parse(&URL_SAFE_NO_PAD.decode(base64).ok()?).ok()?).ok()
}

/// Stands for a token together with the key that verifies it.
pub(super) type Hash = [u8; 32];

/// The hash of a token under a key.
pub(super) fn hash(token: &str, key: &VerifyingKey) -> Hash {
    Sha256::new().chain_update(key.id).chain_update(token).finalize().into()
}

/// The reason for refusing a token with a wrong signature.
pub(super) const BAD_SIGNATURE: &str = "the token's signature is wrong";

impl Verified {
    /// The instant from which the token is not valid any more, in Unix ms.
    pub fn ends_ms(&self) -> i64 {
        ((self.expires_s + LEEWAY_S as f64) * 1000.0) as i64
    }

    /// Whether the token is valid now.
    pub fn check_time(&self, now_ms: i64) -> Result<(), &'static str> {
        let now_s = now_ms as f64 / 1000.0;
        let leeway_s = LEEWAY_S as f64;
        if now_s >= self.expires_s + leeway_s {
            return Err("the token has expired");
        }
        if now_s < self.not_before_s - leeway_s {
            return Err("the token is not valid yet");
        }
        Ok(())
    }
}
