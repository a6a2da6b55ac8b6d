//! What happens before a key's object is asked: who asks, which key, whether they may, and how long to wait.
//!
//! Invariants:
//! - Authentication comes before everything else, and so does the rate, which depends on who asks. The exceptions are the
//!   check of the head's size, preflights, the health check, and the opening of a socket.
//! - The decoded path decides whether a request is the administrator's, before anything of it is parsed.
//! - An answer from here has no `Semel-Key`: no object was asked, and no acknowledgement was applied.
//! - An application's path that nothing handles reaches no object. A path of the protocol may name any key, used or not.
//!   A request to an unused key creates an object, but leaves no tables, unless it is refused as of long ago: then the
//!   key keeps its fence. The opening of a socket creates one even before it is known who asks.

use super::auth::{Asker, Gate, Grant, Refusal, TOKEN_BYTES_MAX};
use super::cors;
use crate::header::{self, Attempt};
use crate::id::{Key, Principal, percent_decoded};
use crate::message::{Headers, Method};
use crate::path::Path;
use crate::problem::{Code, Problem};
use crate::server::answer::Answer;
use crate::server::config::{self, ANSWERS_BYTES_MAX, Config, ELEMENTS_MAX};
use crate::server::control::{self, Control};
use crate::server::handler::{Handler, KeyRule};
use crate::server::head;
use crate::server::json::write::Object;
use crate::server::registry::{self, Asked};
use crate::server::storage::schema::SCHEMA_VERSION;

/// The version of the wire protocol.
pub const PROTOCOL_VERSION: u32 = 1;

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// The router answers it.
    Answer(Answer),
    /// To the object of a key.
    Object {
        /// The key.
        key: Key,
        /// Who is authenticated.
        principal: Principal,
        /// How long to wait for the object's answer, in ms.
        wait_ms: i64,
    },
    /// It reads what is executed elsewhere, and is sent there. It takes no turn, and an object is asked only if it acknowledges something.
    Elsewhere {
        /// The key.
        key: Key,
        /// Who is authenticated.
        principal: Principal,
        /// How long to wait for the answer, in ms.
        wait_ms: i64,
        /// Whether it goes to the object of its key first, which applies what comes along.
        acknowledges: bool,
    },
    /// To the object of a key, which judges each request in the batch.
    Batch {
        /// The key.
        key: Key,
        /// Who is authenticated, and what they may do.
        asker: Asker,
        /// How long to wait for the object's answer, in ms.
        wait_ms: i64,
    },
    /// To the object of a key, which still has to learn who asks.
    Socket {
        /// The key.
        key: Key,
        /// How long to wait for the object's answer, in ms.
        wait_ms: i64,
    },
    /// To the registry of keys. Only the administrator gets its answers.
    Registry {
        /// What is asked.
        asked: Asked,
        /// How long to wait for an answer, in ms.
        wait_ms: i64,
    },
    /// Who asks is not known yet: keys are being fetched, or there is a signature to check.
    Wait,
}

/// Routes a request by its method, URL and headers.
pub fn route<H: Handler>(
    handler: &H,
    config: &Config,
    gate: &mut Gate,
    method: &Method,
    url: (&str, &str),
    headers: &Headers,
    now_ms: i64,
) -> Route {
    let answer = |answer: Answer| Route::Answer(answer.stamped(now_ms, None));
    if let Err(problem) = head::check(url, headers) {
        return answer(Answer::problem(&problem));
    }
    if *method == Method::Options {
        return answer(cors::preflight(headers));
    }
    if url.0 == "/semel/v1/health" && method.reads() {
        return answer(health(config, now_ms));
    }
    let routed = if is_administrative(url.0) {
        administrative(handler, gate, method, url, headers, now_ms)
    } else {
        find_object(handler, gate, method, url, headers, now_ms)
    };
    match routed {
        Ok(route) => route,
        Err(Refusal::Wait) => Route::Wait,
        Err(Refusal::Problem(problem)) => answer(told(&problem)),
    }
}

/// The answer to who is not admitted. It logs why nobody can be, which only the operator can change.
pub fn told(problem: &Problem) -> Answer {
    let answer = Answer::problem(problem);
    if problem.code == Code::Unavailable { answer.with_log(problem.detail.as_str()) } else { answer }
}

/// Routes a request that the deployment itself makes, under one of the layer's own principals: nobody has to be
/// authenticated, and no rate applies. So only changes of the application may be made in this way. With `cancels`, only
/// the cancellation of such a change may be.
pub fn route_own<H: Handler>(
    handler: &H,
    (principal, cancels): (Principal, bool),
    method: &Method,
    url: (&str, &str),
    headers: &Headers,
    now_ms: i64,
) -> Route {
    let routed = head::check(url, headers).and_then(|()| {
        let path = Path::new(url.0, url.1).map_err(Problem::from)?;
        let is_cancellation = || matches!(control::parse(method, &path), Ok(Some((_, Control::Cancel))));
        let is_change = || !path.is_control() && method.changes();
        let may_be_asked = if cancels { is_cancellation() } else { is_change() };
        if is_administrative(url.0) || !may_be_asked {
            return Err(Problem::new(Code::NotFound, "not a change of the application"));
        }
        let asker = Asker { principal, grant: Grant::default(), ends_ms: None };
        let (key, _) = judge(handler, &asker, method, &path, headers, now_ms)?;
        Ok(Route::Object { key, principal: asker.principal, wait_ms: wait_ms(headers, now_ms) })
    });
    routed.unwrap_or_else(|problem| Route::Answer(Answer::problem(&problem).stamped(now_ms, None)))
}

fn find_object<H: Handler>(
    handler: &H,
    gate: &mut Gate,
    method: &Method,
    (pathname, search): (&str, &str),
    headers: &Headers,
    now_ms: i64,
) -> Result<Route, Refusal> {
    // Browsers can't send credentials when they open a socket, so its first frame has them.
    if let Some(key) = socket_key(method, (pathname, search), headers) {
        gate.admit_stranger(headers, now_ms)?;
        return Ok(Route::Socket { key, wait_ms: wait_ms(headers, now_ms) });
    }
    let asker = gate.admit(headers, now_ms)?;
    let path = Path::new(pathname, search).map_err(Problem::from)?;
    let (key, control) = judge(handler, &asker, method, &path, headers, now_ms)?;
    let wait_ms = wait_ms(headers, now_ms);
    match control {
        Some(Control::Batch) => Ok(Route::Batch { key, asker, wait_ms }),
        Some(Control::Socket) => Err(Problem::new(Code::NotFound, "a socket is opened by Upgrade: websocket").into()),
        None if method.reads() && handler.is_remote(method, &path) => {
            // No object checks this request, so it is checked here.
            malformed(handler, method, &path, headers, now_ms).map_or(Ok(()), Err)?;
            let acknowledges = headers.get("semel-ack").is_some();
            Ok(Route::Elsewhere { key, principal: asker.principal, wait_ms, acknowledges })
        }
        _ => Ok(Route::Object { key, principal: asker.principal, wait_ms }),
    }
}

/// The key of a request to open a socket; `None` for any other request.
fn socket_key(method: &Method, (pathname, search): (&str, &str), headers: &Headers) -> Option<Key> {
    headers.get("upgrade").filter(|to| to.eq_ignore_ascii_case("websocket"))?;
    let path = Path::new(pathname, search).ok()?;
    match control::parse(method, &path) {
        Ok(Some((key, Control::Socket))) => agreed(key, header::key(headers).ok()?).ok(),
        _ => None,
    }
}

/// The key of a request, and what it asks if its path is the protocol's. Fails if the caller may not ask it.
pub(in crate::server) fn judge<H: Handler>(
    handler: &H,
    asker: &Asker,
    method: &Method,
    path: &Path,
    headers: &Headers,
    now_ms: i64,
) -> Result<(Key, Option<Control>), Problem> {
    let named = header::key(headers).map_err(Problem::from)?;
    let control = control::parse(method, path);
    let ruled = match &control {
        _ if !path.is_control() => ruled_key(handler, method, path, named),
        Ok(Some((key, _))) => agreed(key.clone(), named),
        Ok(None) => Err(Problem::new(Code::NotFound, "no such control path and method")),
        Err(problem) => Err(problem.clone()),
    };
    // Parsing comes before the key rule in the order of checks. Normally the object parses; a request that is refused
    // here is parsed here too, so that the answer gives the first reason.
    let key = ruled.map_err(|problem| malformed(handler, method, path, headers, now_ms).unwrap_or(problem))?;
    let control = control.ok().flatten().map(|(_, control)| control);
    let granted = check_granted(asker, method, control.as_ref(), &key, headers);
    granted.map_err(|problem| malformed(handler, method, path, headers, now_ms).unwrap_or(problem))?;
    Ok((key, control))
}

/// Checks what the token allows. That covers acknowledgements, even those that come along with another request, because
/// they delete outcomes.
fn check_granted(
    Asker { grant, .. }: &Asker,
    method: &Method,
    control: Option<&Control>,
    key: &Key,
    headers: &Headers,
) -> Result<(), Problem> {
    let is_allowed = match control {
        // Each request in a batch is judged by itself.
        Some(Control::LookUp(_) | Control::Batch | Control::Socket) => grant.allows_key(key),
        Some(Control::Acknowledge | Control::Cancel | Control::TakeOver) => grant.allows_some_change(key),
        None => grant.allows(method, key),
        // No token of a user allows an administrator's request.
        Some(Control::Admin(_)) => false,
    };
    let acknowledges = headers.get("semel-ack").is_some();
    if is_allowed && (!acknowledges || grant.allows_some_change(key)) {
        Ok(())
    } else {
        Err(Problem::new(Code::Forbidden, "the token does not allow this at this key"))
    }
}

/// Whether a path is the administrator's, however it is escaped, and whatever follows the prefix.
pub(in crate::server) fn is_administrative(pathname: &str) -> bool {
    let mut segments = pathname.split('/').skip(1);
    ["semel", "v1", "admin"].iter().all(|expected| {
        // Nearly no segment has an escape. Looking for one first saves decoding each.
        let is_escaped = |segment: &str| percent_decoded(segment).is_ok_and(|decoded| decoded == *expected);
        segments.next().is_some_and(|segment| segment == *expected || segment.contains('%') && is_escaped(segment))
    })
}

fn administrative<H: Handler>(
    handler: &H,
    gate: &mut Gate,
    method: &Method,
    (pathname, search): (&str, &str),
    headers: &Headers,
    now_ms: i64,
) -> Result<Route, Refusal> {
    let principal = gate.admit_administrator(headers, now_ms)?;
    let path = Path::new(pathname, search).map_err(Problem::from)?;
    let named = header::key(headers).map_err(Problem::from)?;
    let wait_ms = wait_ms(headers, now_ms);
    if let Some(asked) = registry::parse(method, &path)? {
        // A listing is not parsed any further, so it is checked here.
        malformed(handler, method, &path, headers, now_ms)
            .filter(|_| matches!(asked, Asked::Keys(_)))
            .map_or(Ok(()), Err)?;
        return Ok(Route::Registry { asked, wait_ms });
    }
    // An application's path that decodes to one of these belongs to neither.
    let segments = if path.is_control() { path.segments() } else { Vec::new() };
    match segments.as_slice() {
        ["semel", "v1", "admin", "keys", key, ..] if control::parse(method, &path)?.is_some() => {
            let key = agreed(Key::new(*key).map_err(Problem::from)?, named)?;
            Ok(Route::Object { key, principal, wait_ms })
        }
        _ => Err(Problem::new(Code::NotFound, "no such path and method of the administrator").into()),
    }
}

fn ruled_key<H: Handler>(handler: &H, method: &Method, path: &Path, named: Option<Key>) -> Result<Key, Problem> {
    let not_found = || Problem::new(Code::NotFound, "nothing handles this path and method");
    if !method.changes() && !method.reads() {
        return Err(not_found());
    }
    let rule = match handler.key(method, path) {
        KeyRule::Unhandled => return Err(not_found()),
        KeyRule::Failed => return Err(Problem::new(Code::RolledBack, "the application could not tell the key")),
        KeyRule::Key(key) => Key::new(key)?,
        KeyRule::Any => match named {
            Some(key) => return Ok(key),
            None => return Key::new(path.joined()).map_err(Problem::from),
        },
    };
    agreed(rule, named)
}

/// The key of the path. Fails if `Semel-Key` names another one.
fn agreed(key: Key, named: Option<Key>) -> Result<Key, Problem> {
    match named {
        Some(named) if named != key => {
            let detail = format!("the key of this path is {}", header::quoted(&key.encoded()));
            Err(Problem::new(Code::KeyMismatch, detail))
        }
        _ => Ok(key),
    }
}

fn malformed<H: Handler>(handler: &H, method: &Method, path: &Path, headers: &Headers, now_ms: i64) -> Option<Problem> {
    if let Err(error) = header::acks(headers) {
        return Some(Problem::from(error));
    }
    let needs_id = match control::parse(method, path) {
        Ok(Some((_, control))) => control.is_recorded(),
        _ => method.changes() && !path.is_control() && !handler.makes_ids(method, path),
    };
    match Attempt::parse(headers, now_ms) {
        Err(error) => Some(Problem::from(error)),
        Ok(Attempt { session: Some(_), .. }) if !control::may_be_numbered(method, path) => Some(control::unnumbered()),
        Ok(attempt) if needs_id && !attempt.is_named() => Some(Problem::key_missing()),
        Ok(_) => None,
    }
}

/// How long to wait for an answer, in ms: as long as the client would, but never past its deadline. With a deadline that
/// has passed it waits too, since the attempt may still get an outcome.
pub fn wait_ms(headers: &Headers, now_ms: i64) -> i64 {
    let wait_ms = i64::from(header::wait_s(headers)) * 1000;
    match header::deadline_ms(headers, now_ms) {
        Some(deadline_ms) if deadline_ms > now_ms => wait_ms.min(deadline_ms - now_ms),
        _ => wait_ms,
    }
}

/// How long to wait until another attempt is through, in ms. An attempt that is too late to start does not wait, and gets what there is.
pub fn turn_wait_ms(headers: &Headers, now_ms: i64) -> i64 {
    let is_late = header::deadline_ms(headers, now_ms).is_some_and(|deadline_ms| deadline_ms < now_ms);
    if is_late { 0 } else { wait_ms(headers, now_ms) }
}

fn health(config: &Config, now_ms: i64) -> Answer {
    let versions = Object::default()
        .with("protocol", PROTOCOL_VERSION)
        .with("semel", env!("CARGO_PKG_VERSION"))
        .with("schema", SCHEMA_VERSION);
    let limits = Object::default()
        .with("idChars", crate::id::REQUEST_ID_CHARS_MAX)
        .with("keyBytes", crate::id::KEY_BYTES_MAX)
        .with("ackIds", header::ACKS_MAX)
        .with("ackBytes", header::ACK_BYTES_MAX)
        .with("aheadMs", header::AHEAD_MS_MAX)
        .with("waitSeconds", header::WAIT_S_MAX)
        .with("urlBytes", head::URL_BYTES_MAX)
        .with("requestHeaders", head::HEADERS_MAX)
        .with("requestHeaderBytes", head::HEADER_BYTES_MAX)
        .with("tokenBytes", TOKEN_BYTES_MAX)
        .with("requestBodyBytes", config::REQUEST_BODY_BYTES_MAX)
        .with("outcomeBodyBytes", config::OUTCOME_BODY_BYTES_MAX)
        .with("outcomeHeaderBytes", config::OUTCOME_HEADER_BYTES_MAX)
        .with("controlIds", config::CONTROL_IDS_MAX)
        .with("batchElements", ELEMENTS_MAX)
        .with("batchAnswersBytes", ANSWERS_BYTES_MAX)
        .with("recordsPerKey", config.records_max)
        .with("tombstonesPerKey", config.tombstones_max)
        .with("sessionsPerKey", config.sessions_max)
        .with("sessionNameChars", crate::session::SESSION_NAME_CHARS_MAX)
        .with("sessionWindow", crate::server::storage::sessions::state::WINDOW)
        .with("bytesPerKey", config.bytes_max);
    let body = Object::default()
        .with("status", "ok")
        .with("versions", versions.end())
        .with("now", now_ms)
        .with("retentionSeconds", config.retention())
        .with("limits", limits.end());
    let mut response = crate::message::Response::json(200, body.end());
    response.headers.append("cache-control", "no-store");
    Answer::read(response)
}
