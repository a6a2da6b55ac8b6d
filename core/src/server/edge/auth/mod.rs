//! Who is asking: bearer tokens of users, and the administrator's token.
//!
//! Invariants:
//! - Nobody is served unless a setting says how to authenticate them, or the deployment is open, for development.
//! - No token has a principal whose name begins with `semel:`.
//! - The administrator's token opens the administrator's paths, and no others. It is compared in constant time, and kept as a hash.
//! - A request counts against the rate once it is known who asks, before anything is looked up.
//! - The host checks signatures of key pairs. That takes another turn, after which it asks the gate again. A wrong
//!   signature costs no more than any other refusal, so wrong signatures have no rate.
//!
//! Modules:
//! - [`settings`]: the operator's settings. [`keys`]: JWK sets. [`jwks`]: when they are fetched
//! - [`grant`]: what a token allows
//! - `token`: judges one token. `verified`: remembers the tokens that were verified

pub mod grant;
pub mod jwks;
pub mod keys;
pub mod settings;
mod token;
mod verified;

pub use grant::Grant;
pub use keys::Signed;
pub use settings::Access;
pub use token::{LEEWAY_S, TOKEN_BYTES_MAX};

use super::rate::{Rate, Table};
use crate::header;
use crate::id::{Invalid, Principal};
use crate::message::Headers;
use crate::problem::{Code, Problem};
use crate::server::json::read::Members;
use jwks::{Found, Keys};
use keys::{Look, VerifyingKey};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::rc::Rc;
use subtle::ConstantTimeEq as _;
use token::{BAD_SIGNATURE, Claimed, Expected, Verified};
use verified::VerifiedTokens;

/// The longest address that is used, in characters.
const ADDRESS_CHARS_MAX: usize = 64;

/// Who asks, and what they may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// The principal of their records.
    pub principal: Principal,
    /// What their token allows.
    pub grant: Grant,
    /// When the token ends, in Unix ms; `None` if it does not.
    pub ends_ms: Option<i64>,
}

impl Asker {
    /// The form in which the parts of a Worker pass it on: when the token ends, the principal, and what it allows, a line each.
    pub fn to_text(&self) -> String {
        let ends = self.ends_ms.map(|ends_ms| ends_ms.to_string()).unwrap_or_default();
        let grant = self.grant.written().into_text();
        // Neither a principal nor this JSON has a line feed in it.
        format!("{ends}\n{}\n{grant}", self.principal.as_str())
    }

    /// Reads what [`Asker::to_text`] wrote; `None` for anything else.
    pub fn from_text(text: &str) -> Option<Self> {
        let (ends, rest) = text.split_once('\n')?;
        let (principal, grant) = rest.split_once('\n')?;
        let ends_ms = if ends.is_empty() { None } else { Some(ends.parse().ok()?) };
        let grant = Members::parse(grant.as_bytes()).and_then(Grant::read).ok()?;
        Some(Self { principal: Principal::new(principal).ok()?, grant, ends_ms })
    }

    /// Whether the token has ended.
    pub fn has_ended(&self, now_ms: i64) -> bool {
        self.ends_ms.is_some_and(|ends_ms| now_ms >= ends_ms)
    }
}

/// Why a caller is not admitted.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The caller is told this problem.
    Problem(Problem),
    /// It is not known yet: keys are being fetched, or there is a [signature to check](Gate::signature_wanted).
    Wait,
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Admits callers, with what it remembers of them. All of that except the table of rates may be lost at any time.
#[derive(Debug)]
pub struct Gate {
    is_open: bool,
    /// Whether any setting says how to authenticate users.
    has_keys: bool,
    administrator: Option<[u8; 32]>,
    expected: Expected,
    keys: Keys,
    verified: VerifiedTokens,
    /// The signature that the host is to check next, with the hash of its token, until the host takes it.
    wanted: Option<(token::Hash, Signed)>,
    /// The result of the last check.
    checked: Option<(token::Hash, Option<bool>)>,
    rate: Rate,
}

impl Gate {
    /// A gate with a deployment's settings.
    pub fn new(access: Access) -> Self {
        Self::with_table(access, Box::<BTreeMap<_, _>>::default())
    }

    /// A gate that counts the requests of each principal in the given table.
    pub fn with_table(access: Access, principals: Box<dyn Table>) -> Self {
        let Access { is_open, administrator, issuer, audience, keys, url, rate_per_second, rate_burst } = access;
        Self {
            is_open,
            has_keys: keys.is_some() || url.is_some(),
            administrator,
            expected: Expected { audience, issuer },
            keys: Keys::new(keys.unwrap_or_default(), url),
            verified: VerifiedTokens::default(),
            wanted: None,
            checked: None,
            rate: Rate::new(rate_per_second, rate_burst, principals),
        }
    }

    /// Admits a caller to any path except the administrator's.
    pub fn admit(&mut self, headers: &Headers, now_ms: i64) -> Result<Asker, Refusal> {
        let token = bearer(headers)?;
        if token.as_deref().is_some_and(|token| self.is_administrator(token)) {
            let detail = "the administrator's token is for the administrator's paths";
            return Err(Problem::new(Code::Forbidden, detail).into());
        }
        let asker = self.user(token.as_deref(), now_ms)?;
        self.take_one(&asker.principal, now_ms)?;
        expect(&asker.principal, headers)?;
        Ok(asker)
    }

    /// Admits only the administrator.
    pub fn admit_administrator(&mut self, headers: &Headers, now_ms: i64) -> Result<Principal, Refusal> {
        let token = bearer(headers)?;
        let administrator = Principal::administrator();
        match token.as_deref() {
            Some(token) if self.is_administrator(token) => {
                expect(&administrator, headers)?;
                Ok(administrator)
            }
            // In an open deployment any token is a name, so a wrong administrator's token can't be told from a user's.
            Some(token) if !self.is_open => {
                let asker = self.user(Some(token), now_ms)?;
                self.take_one(&asker.principal, now_ms)?;
                Err(Problem::new(Code::Forbidden, "this path is the administrator's").into())
            }
            _ => Err(unauthorized("this path needs the administrator's token").into()),
        }
    }

    /// Counts the other requests of a batch, of which the first was counted already.
    pub fn take_more(&mut self, principal: &Principal, more: usize, now_ms: i64) -> Result<(), Problem> {
        self.rate.take_more(principal.as_str(), more, now_ms).map_err(|wait_ms| rate_limited(wait_ms, "requests"))
    }

    /// Counts one request of a caller who was admitted before.
    pub fn take_one(&mut self, principal: &Principal, now_ms: i64) -> Result<(), Problem> {
        self.rate.take(principal.as_str(), now_ms).map_err(|wait_ms| rate_limited(wait_ms, "requests"))
    }

    /// Lets a caller open a socket before it is known who it is. The rate is that of the address.
    pub fn admit_stranger(&mut self, headers: &Headers, now_ms: i64) -> Result<(), Problem> {
        // No token has a principal with such a name.
        let who = format!("semel:{}", address(headers).unwrap_or_default());
        self.rate.take(&who, now_ms).map_err(|wait_ms| rate_limited(wait_ms, "sockets"))
    }

    /// The URL from which the JWK set is to be fetched now; `None` if it is not. Each fetch is returned once.
    pub fn keys_wanted(&mut self) -> Option<&str> {
        self.keys.wanted()
    }

    /// The signature that the host is to check now, with a hash to name it by; `None` if there is none. It is returned
    /// once, right after [`Refusal::Wait`].
    pub fn signature_wanted(&mut self) -> Option<([u8; 32], Signed)> {
        self.wanted.take()
    }

    /// Takes the result of a check; `None` if the key can't be used. The caller that waits for it must ask next, with no other in between.
    pub fn signature_checked(&mut self, hash: [u8; 32], is_right: Option<bool>) {
        self.checked = Some((hash, is_right));
    }

    /// Takes what the module before this one had fetched, if anything, and when the last fetch began.
    pub fn keys_kept(&mut self, text: Option<&str>, fetched_ms: i64, started_ms: i64) {
        self.keys.kept(text, fetched_ms, started_ms);
    }

    /// Takes the result of a fetch of the JWK set. The error is for the log.
    pub fn keys_fetched(&mut self, text: Option<&str>, now_ms: i64) -> Result<(), String> {
        self.keys.fetched(text, now_ms)
    }

    /// Compares hashes, so that the time it takes reveals neither the length nor the content of the token.
    fn is_administrator(&self, token: &str) -> bool {
        self.administrator.is_some_and(|administrator| bool::from(hash(token).ct_eq(&administrator)))
    }

    fn user(&mut self, token: Option<&str>, now_ms: i64) -> Result<Asker, Refusal> {
        if self.is_open {
            return Ok(Asker { principal: named(token.unwrap_or_default())?, grant: Grant::default(), ends_ms: None });
        }
        if !self.has_keys {
            let detail = "no authentication is configured; SEMEL_OPEN=\"true\" serves everybody, for development";
            return Err(unauthorized(detail).into());
        }
        let Some(token) = token else { return Err(unauthorized("there is no bearer token").into()) };
        let verified = self.verify(token, now_ms)?;
        verified.check_time(now_ms).map_err(unauthorized)?;
        let Verified { principal, grant, .. } = (*verified).clone();
        Ok(Asker { principal, grant, ends_ms: Some(verified.ends_ms()) })
    }

    fn verify(&mut self, token: &str, now_ms: i64) -> Result<Rc<Verified>, Refusal> {
        let claimed = Claimed::parse(token).map_err(unauthorized)?;
        let key = match self.keys.find(&claimed.kid, now_ms) {
            Found::Key(key) => key,
            Found::Unknown => {
                let may_be_new = claimed.issued_s().is_some_and(|issued_s| self.keys.may_lack(issued_s, now_ms));
                // Not 503: a stranger can claim this, and each answer from 500 on has a line in the log.
                let code = if may_be_new { Code::RateLimited } else { Code::Unauthorized };
                // A key of another algorithm, such as PS256, may have that `kid`: it was left out of what was fetched.
                return Err(Problem::new(code, "no key of HS256, RS256, ES256 or EdDSA has the token's kid").into());
            }
            Found::Unavailable => {
                let detail = "the keys to verify tokens with can't be fetched";
                return Err(Problem::new(Code::Unavailable, detail).into());
            }
            Found::Wait => return Err(Refusal::Wait),
        };
        let hash = token::hash(token, &key);
        if let Some(known) = self.verified.get(&hash) {
            return Ok(known);
        }
        if !self.is_signed(&claimed, &key, hash)? {
            return Err(unauthorized(BAD_SIGNATURE).into());
        }
        let verified = Rc::new(claimed.verified(&self.expected).map_err(unauthorized)?);
        self.verified.insert(hash, verified.clone());
        Ok(verified)
    }

    fn is_signed(&mut self, claimed: &Claimed, key: &VerifyingKey, hash: token::Hash) -> Result<bool, Refusal> {
        match self.checked.take_if(|(checked, _)| *checked == hash) {
            Some((_, Some(is_right))) => return Ok(is_right),
            Some((_, None)) => {
                return Err(Problem::new(Code::Unavailable, "the key that the token names can't be used").into());
            }
            None => {}
        }
        match claimed.look(key).map_err(unauthorized)? {
            Look::Done(is_right) => Ok(is_right),
            Look::Ask(signed) => {
                self.wanted = Some((hash, signed));
                Err(Refusal::Wait)
            }
        }
    }
}

/// The address of a caller, if the platform names it. For IPv6 only the first 64 bits, because whoever has one address in
/// that range has all of them.
fn address(headers: &Headers) -> Option<String> {
    let address: String = headers.get("cf-connecting-ip")?.chars().take(ADDRESS_CHARS_MAX).collect();
    if address.contains('.') {
        return Some(address);
    }
    let (before, after) = address.split_once("::").unwrap_or((&address, ""));
    let count = |part: &str| part.split(':').filter(|group| !group.is_empty()).count();
    let left_out = 8_usize.saturating_sub(count(before) + count(after));
    let groups = before.split(':').chain(repeat_n("0", left_out)).chain(after.split(':'));
    Some(groups.filter(|group| !group.is_empty()).take(4).collect::<Vec<_>>().join(":"))
}

/// The bearer token, if there are credentials. Fails for other credentials, and for more than one.
fn bearer(headers: &Headers) -> Result<Option<String>, Problem> {
    let Some(credentials) = headers.combined("authorization") else { return Ok(None) };
    match credentials.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim().to_owned())),
        _ => Err(unauthorized("Authorization: not a bearer token")),
    }
}

/// In an open deployment, the bearer token is the principal's name.
fn named(name: &str) -> Result<Principal, Problem> {
    let principal = Principal::new(name).map_err(|Invalid(detail)| unauthorized(detail))?;
    if principal.is_reserved() { Err(unauthorized("names that begin with semel: are reserved")) } else { Ok(principal) }
}

/// Fails if `Semel-Principal` names another principal than the authenticated one.
fn expect(principal: &Principal, headers: &Headers) -> Result<(), Problem> {
    match header::principal(headers)? {
        Some(expected) if expected != *principal => {
            Err(Problem::new(Code::Forbidden, "Semel-Principal names another principal than the authenticated one"))
        }
        _ => Ok(()),
    }
}

fn unauthorized(detail: impl Into<String>) -> Problem {
    Problem::new(Code::Unauthorized, detail)
}

fn rate_limited(wait_ms: i64, what: &str) -> Problem {
    Problem::new(Code::RateLimited, format!("too many {what}; the next is due in {wait_ms} ms"))
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}
