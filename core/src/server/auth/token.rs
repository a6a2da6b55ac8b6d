//! One bearer token: a JWT, judged.
//!
//! Invariants:
//! - What costs nothing to check is checked before the signature, the signature before anything is believed.
//! - The algorithm is the key's. `none`, and a header that asks to be understood (`crit`), are refused.
//! - `exp` and `aud` must be there. The clock is an argument.

use super::algorithms;
use super::grant::Grant;
use super::keys::VerifyingKey;
use super::is_reserved;
use crate::id::{PRINCIPAL_BYTES_MAX, Principal};
use jsonwebtoken::{Validation, decode, decode_header};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// A token has at most so many bytes.
pub const TOKEN_BYTES_MAX: usize = 8 << 10;
/// The clocks of issuer and worker may differ by so much.
pub const LEEWAY_S: i64 = 30;

/// Of what a token says, what counts here.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Verified {
    pub principal: Principal,
    pub grant: Grant,
    not_before_s: f64,
    expires_s: f64,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    exp: f64,
    nbf: Option<f64>,
    semel: Option<Grant>,
}

/// What a token must say besides being signed.
#[derive(Debug, Clone, Default)]
pub(super) struct Expected {
    pub audience: String,
    pub issuer: Option<String>,
}

/// The `kid` of a token that may be worth verifying.
pub(super) fn kid(token: &str) -> Result<String, &'static str> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err("the token is too long");
    }
    let header = decode_header(token).map_err(|_| "the token is no JWT of an algorithm that is accepted")?;
    if header.crit.is_some() {
        return Err("the token has a critical header, which is not understood");
    }
    header.kid.ok_or("the token names no key (kid)")
}

/// Names a token together with the key that verifies it.
pub(super) fn hash(token: &str, key: &VerifyingKey) -> [u8; 32] {
    Sha256::new().chain_update(key.id).chain_update(token).finalize().into()
}

/// Verifies all of a token but its time.
pub(super) fn verify(token: &str, key: &VerifyingKey, expected: &Expected) -> Result<Verified, &'static str> {
    algorithms::install();
    let mut validation = Validation::new(key.algorithm);
    // Its own clock is the process's.
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.set_audience(&[&expected.audience]);
    validation.set_required_spec_claims(&["exp", "aud", "sub"]);
    if let Some(issuer) = &expected.issuer {
        validation.set_issuer(&[issuer]);
        validation.required_spec_claims.insert("iss".to_owned());
    }
    use jsonwebtoken::errors::ErrorKind;
    let claims: Claims = match decode(token, &key.key, &validation) {
        Ok(token) => token.claims,
        Err(error) => {
            return Err(match error.kind() {
                ErrorKind::InvalidSignature => BAD_SIGNATURE,
                ErrorKind::InvalidAlgorithm => "the token's algorithm is not that of its key",
                ErrorKind::InvalidAudience => "the token is for somebody else (aud)",
                ErrorKind::InvalidIssuer => "the token is of another issuer (iss)",
                ErrorKind::MissingRequiredClaim(_) => "the token lacks one of exp, aud, sub, iss",
                _ => "the token's claims can't be read",
            });
        }
    };
    let Claims { sub, exp, nbf, semel } = claims;
    if sub.is_empty() || sub.len() > PRINCIPAL_BYTES_MAX || is_reserved(&sub) {
        return Err("the token's sub can't be a principal");
    }
    let principal = Principal::new(sub).map_err(|_| "the token's sub can't be a principal")?;
    Ok(Verified {
        principal,
        grant: semel.unwrap_or_default(),
        not_before_s: nbf.unwrap_or(f64::NEG_INFINITY),
        expires_s: exp,
    })
}

/// What [`verify`] says where the signature is wrong: it costs more than any other refusal.
pub(super) const BAD_SIGNATURE: &str = "the token's signature is wrong";

impl Verified {
    /// Whether the token holds now.
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
