//! What happens before a key's object is asked: who asks, which key, how long to wait.
//!
//! Invariants:
//! - Authentication comes before everything else.
//! - An answer from here carries no `Semel-Key`: no object was asked, no acknowledgement applied.
//! - A path that nothing handles reaches no object, so nobody can make objects by asking for paths.

use super::answer::Answer;
use super::config::{self, Config};
use super::control::{self, Control};
use super::handler::{Handler, KeyRule};
use super::registry::{self, Asked};
use super::schema::SCHEMA_VERSION;
use crate::header::{self, Attempt};
use crate::id::{Invalid, Key, Principal};
use crate::message::{Headers, Method};
use crate::path::Path;
use crate::problem::{Code, Problem};

/// The version of the wire protocol.
pub const PROTOCOL_VERSION: u32 = 1;
/// Where the administrator's paths begin.
const ADMIN_PREFIX: &str = "/semel/v1/admin/";

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// It is answered here.
    Answer(Answer),
    /// It goes to the object of a key.
    Object {
        /// The key.
        key: Key,
        /// Who is authenticated.
        principal: Principal,
        /// How long to wait for the object's answer, in ms.
        wait_ms: i64,
    },
    /// It goes to the registry, whose answers only the administrator gets.
    Registry {
        /// What is asked.
        asked: Asked,
        /// How long to wait for an answer, in ms.
        wait_ms: i64,
    },
}

/// Routes a request by its head.
pub fn route<H: Handler>(
    handler: &H,
    config: &Config,
    method: &Method,
    url: (&str, &str),
    headers: &Headers,
    now_ms: i64,
) -> Route {
    let answer = |answer: Answer| Route::Answer(answer.stamped(now_ms, None));
    if *method == Method::Options {
        return answer(Answer::preflight(headers.combined("access-control-request-headers").as_deref()));
    }
    let (pathname, search) = url;
    if pathname == "/semel/v1/health" && method.reads() {
        return answer(health(config, now_ms));
    }
    match find_registry(config, method, (pathname, search), headers) {
        Ok(Some(asked)) => return Route::Registry { asked, wait_ms: wait_ms(headers, now_ms) },
        Ok(None) => {}
        Err(problem) => return answer(Answer::problem(&problem)),
    }
    match find_object(handler, config, method, (pathname, search), headers, now_ms) {
        Ok((key, principal)) => Route::Object { key, principal, wait_ms: wait_ms(headers, now_ms) },
        Err(problem) => answer(Answer::problem(&problem)),
    }
}

/// The registry's paths, for the administrator alone.
fn find_registry(
    config: &Config,
    method: &Method,
    (pathname, search): (&str, &str),
    headers: &Headers,
) -> Result<Option<Asked>, Problem> {
    if !pathname.starts_with(ADMIN_PREFIX) {
        return Ok(None);
    }
    let credentials = headers.combined("authorization");
    let token = credentials.as_deref().and_then(|credentials| credentials.strip_prefix("Bearer "));
    if config.admin_token.is_none() || token != config.admin_token.as_deref() {
        return Err(Problem::new(Code::Unauthorized, "this is the administrator's, whose token it takes"));
    }
    registry::parse(method, &Path::new(pathname, search)?)
}

fn find_object<H: Handler>(
    handler: &H,
    config: &Config,
    method: &Method,
    (pathname, search): (&str, &str),
    headers: &Headers,
    now_ms: i64,
) -> Result<(Key, Principal), Problem> {
    let principal = authenticate(config, headers)?;
    let path = Path::new(pathname, search)?;
    let named = header::key(headers)?;
    let ruled = match control::parse(method, &path) {
        _ if !path.is_control() => ruled_key(handler, method, &path, named),
        Ok(Some((key, _))) => agreed(key, named),
        Ok(None) => Err(Problem::new(Code::NotFound, "no such control path and method")),
        Err(problem) => Err(problem),
    };
    // In the order of checks, parsing comes before the key rule. The object parses; only on the way to a refusal is it
    // done here as well, to give the first reason.
    let key = ruled.map_err(|problem| malformed(method, &path, headers, now_ms).unwrap_or(problem))?;
    Ok((key, principal))
}

/// In an open deployment the bearer token is the principal's name.
fn authenticate(config: &Config, headers: &Headers) -> Result<Principal, Problem> {
    if !config.open {
        let detail = "no authentication is configured; SEMEL_OPEN=\"true\" serves everybody, for development";
        return Err(Problem::new(Code::Unauthorized, detail));
    }
    let credentials = headers.combined("authorization");
    let bearer = match credentials.as_deref() {
        None => "",
        Some(credentials) => match credentials.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => return Err(Problem::new(Code::Unauthorized, "Authorization: not a bearer token")),
        },
    };
    let principal = Principal::new(bearer).map_err(|Invalid(detail)| Problem::new(Code::Unauthorized, detail))?;
    match header::principal(headers)? {
        Some(expected) if expected != principal => {
            Err(Problem::new(Code::Forbidden, "Semel-Principal names somebody else than is authenticated"))
        }
        _ => Ok(principal),
    }
}

fn ruled_key<H: Handler>(handler: &H, method: &Method, path: &Path, named: Option<Key>) -> Result<Key, Problem> {
    let not_found = || Problem::new(Code::NotFound, "nothing handles this path and method");
    if !method.changes() && !method.reads() {
        return Err(not_found());
    }
    let rule = match handler.key(method, path) {
        KeyRule::Unhandled => return Err(not_found()),
        KeyRule::Key(key) => Key::new(key)?,
        KeyRule::Any => match named {
            Some(key) => return Ok(key),
            None => return Key::new(path.joined()).map_err(Problem::from),
        },
    };
    agreed(rule, named)
}

/// The key of the path, unless `Semel-Key` names another.
fn agreed(key: Key, named: Option<Key>) -> Result<Key, Problem> {
    match named {
        Some(named) if named != key => {
            let detail = format!("the key of this path is {}", header::quoted(&key.encoded()));
            Err(Problem::new(Code::KeyMismatch, detail))
        }
        _ => Ok(key),
    }
}

fn malformed(method: &Method, path: &Path, headers: &Headers, now_ms: i64) -> Option<Problem> {
    if let Err(error) = header::acks(headers) {
        return Some(Problem::from(error));
    }
    let needs_id = match control::parse(method, path) {
        Ok(Some((_, control))) => matches!(control, Control::Cancel),
        _ => method.changes() && !path.is_control(),
    };
    match Attempt::parse(headers, now_ms) {
        Err(error) => Some(Problem::from(error)),
        Ok(Attempt { id: None, .. }) if needs_id => Some(Problem::key_missing()),
        Ok(_) => None,
    }
}

/// As long as the client would wait, never past its deadline. An attempt that comes late may still get an outcome.
fn wait_ms(headers: &Headers, now_ms: i64) -> i64 {
    let wait_ms = i64::from(header::wait_s(headers)) * 1000;
    let deadline_ms = Attempt::parse(headers, now_ms).ok().and_then(|attempt| attempt.deadline_ms);
    match deadline_ms {
        Some(deadline_ms) if deadline_ms > now_ms => wait_ms.min(deadline_ms - now_ms),
        _ => wait_ms,
    }
}

fn health(config: &Config, now_ms: i64) -> Answer {
    let body = serde_json::json!({
        "status": "ok",
        "versions": { "protocol": PROTOCOL_VERSION, "semel": env!("CARGO_PKG_VERSION"), "schema": SCHEMA_VERSION },
        "now": now_ms,
        "retentionSeconds": config.retention_s,
        "limits": {
            "idChars": crate::id::REQUEST_ID_CHARS_MAX,
            "keyBytes": crate::id::KEY_BYTES_MAX,
            "ackIds": header::ACKS_MAX,
            "ackBytes": header::ACK_BYTES_MAX,
            "aheadMs": header::AHEAD_MS_MAX,
            "waitSeconds": header::WAIT_S_MAX,
            "requestBodyBytes": config::REQUEST_BODY_BYTES_MAX,
            "outcomeBodyBytes": config::OUTCOME_BODY_BYTES_MAX,
            "outcomeHeaderBytes": config::OUTCOME_HEADER_BYTES_MAX,
            "controlIds": config::CONTROL_IDS_MAX,
            "recordsPerKey": config.records_max,
            "tombstonesPerKey": config.tombstones_max,
        },
    });
    let mut response = crate::message::Response::json(200, body.to_string());
    response.headers.append("cache-control", "no-store");
    Answer::read(response)
}
