//! URLs as browsers and workerd read them, the router, and fingerprints.
//!
//! Invariant: a path is what [`url`] makes of a URL, as `new URL(request.url)` does in the Worker.

use crate::effects::Effects;
use crate::headers::{NOW_MS, check_key, decoded};
use crate::source::Source;
use semel_core::client::request::control_target;
use semel_core::fingerprint::Fingerprint;
use semel_core::header::WAIT_S_MAX;
use semel_core::id::Key;
use semel_core::message::{Headers, Method, Request};
use semel_core::path::Path;
use semel_core::server::control::{self, Control};
use semel_core::server::edge::router::{Route, route};
use semel_core::server::{Access, Answer, Config, Gate};
use semel_support::Reply;
use url::Url;

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "post", ""];

/// The headers that the router reads, and those that a fingerprint covers.
const HEADERS: &[&str] = &[
    "idempotency-key",
    "semel-key",
    "semel-ack",
    "semel-first-sent",
    "semel-deadline",
    "semel-session",
    "semel-principal",
    "prefer",
    "authorization",
    "access-control-request-headers",
    "content-type",
    "content-encoding",
];

/// Routes what the bytes stand for.
pub fn check(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let method = Method::new(source.pick(METHODS));
    let headers = headers(&mut source);
    let target = source.text();
    check_target(&target, &method, &headers);
    // The same target, as a host would hand it over that did not parse the URL.
    let (pathname, search) = target.split_at(target.find('?').unwrap_or(target.len()));
    check_path(pathname, search);
    check_routed(&method, (pathname, search), &headers);
    check_fingerprints(&mut source, &method, &headers, &target);
}

fn headers(source: &mut Source<'_>) -> Headers {
    let mut headers = Headers::new();
    for _ in 0..source.below(4) {
        headers.append(source.pick(HEADERS), source.header_text());
    }
    headers
}

/// Routes a target that is resolved against a Worker's URL.
pub fn check_target(target: &str, method: &Method, headers: &Headers) {
    let Ok(url) = Url::parse(&format!("http://semel.test/{target}")) else { return };
    let search = url.query().filter(|query| !query.is_empty()).map_or(String::new(), |query| format!("?{query}"));
    check_path(url.path(), &search);
    check_routed(method, (url.path(), &search), headers);
}

/// Checks the pathname and the search of a URL.
pub fn check_path(pathname: &str, search: &str) {
    let path = Path::new(pathname, search);
    assert_eq!(path.is_ok(), is_path(pathname), "{pathname:?}");
    let Ok(path) = path else { return };
    assert_eq!(path.with_query(), format!("{pathname}{search}"));
    let raw = pathname.split('/').skip(1).filter(|segment| !segment.is_empty());
    assert_eq!(path.segments(), raw.filter_map(decoded).collect::<Vec<_>>());
    let Ok(key) = Key::new(path.joined()) else { return };
    check_key(&key);
    check_control_path(&key);
}

/// The rule of PROTOCOL.md for paths.
fn is_path(pathname: &str) -> bool {
    let is_control = pathname.starts_with("/semel/");
    let is_segment = |raw: &str| {
        decoded(raw).is_some_and(|segment| {
            let is_way = segment == "." || segment == ".." || segment.contains(['/', '\\']);
            !segment.is_empty() && !segment.chars().any(char::is_control) && (is_control || !is_way)
        })
    };
    pathname == "/" || pathname.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_segment))
}

/// A client that names a key in a control path reaches that key, whatever a URL parser does to the path.
pub fn check_control_path(key: &Key) {
    let target = control_target(&key.encoded(), "acks");
    let url = Url::parse("http://semel.test").and_then(|base| base.join(&target)).expect("a URL");
    let path = Path::new(url.path(), "").expect("a path");
    assert_eq!(control::parse(&Method::Post, &path), Ok(Some((key.clone(), Control::Acknowledge))));
}

fn check_routed(method: &Method, url: (&str, &str), headers: &Headers) {
    for open in [true, false] {
        let config = Config { open, ..Config::default() };
        let gate = &mut Gate::new(Access::open_or_closed(open));
        match route(&Effects, &config, gate, method, url, headers, NOW_MS) {
            Route::Answer(answer) => check_answer(answer),
            other @ (Route::Registry { .. } | Route::Wait) => {
                panic!("there is no administrator, and no key: {other:?}")
            }
            Route::Object { key, wait_ms, .. }
            | Route::Elsewhere { key, wait_ms, .. }
            | Route::Batch { key, wait_ms, .. }
            | Route::Socket { key, wait_ms } => {
                assert!(open, "nobody is served unless it is said");
                assert!((1..=i64::from(WAIT_S_MAX) * 1000).contains(&wait_ms));
                check_key(&key);
                assert!(is_path(url.0), "{url:?}");
            }
        }
    }
}

fn check_answer(answer: Answer) {
    let reply = Reply::checked(answer);
    assert!(reply.status() < 500, "the router has no storage that fails");
    assert_eq!(reply.header("semel-key"), None, "no object was asked");
    for (_, value) in reply.headers().iter() {
        assert!(!value.contains(['\r', '\n', '\0']), "{value:?}");
    }
}

/// Two requests have the same fingerprint if and only if everything that is covered is equal.
fn check_fingerprints(source: &mut Source<'_>, method: &Method, headers: &Headers, target: &str) {
    let request = |target: &str, method: &Method, headers: &Headers, body: &[u8]| {
        let (pathname, search) = target.split_at(target.find('?').unwrap_or(target.len()));
        let path = Path::new(pathname, search).ok()?;
        Some(Request { method: method.clone(), path, headers: headers.clone(), body: body.to_vec() })
    };
    let other_target = if source.flag() { source.text() } else { target.to_owned() };
    let other_method = if source.flag() { Method::new(source.pick(METHODS)) } else { method.clone() };
    let other_headers = if source.flag() { self::headers(source) } else { headers.clone() };
    let body = source.bytes();
    let other_body = if source.flag() { source.bytes() } else { body };
    let one = request(target, method, headers, body);
    let Some((one, other)) = one.zip(request(&other_target, &other_method, &other_headers, other_body)) else { return };
    assert_eq!(Fingerprint::of(&one) == Fingerprint::of(&other), covered(&one) == covered(&other), "{one:?} {other:?}");
}

/// What a fingerprint covers. An absent header and an empty one are the same.
fn covered(request: &Request) -> (String, String, String, String, Vec<u8>) {
    let joined = |name: &str| {
        let lines = request.headers.iter().filter(|(each, _)| *each == name);
        lines.map(|(_, value)| value).collect::<Vec<_>>().join(", ")
    };
    let content_type = joined("content-type");
    let (essence, parameters) = content_type.split_at(content_type.find(';').unwrap_or(content_type.len()));
    (
        request.method.as_str().to_owned(),
        request.path.with_query().to_owned(),
        essence.to_ascii_lowercase() + parameters,
        joined("content-encoding"),
        request.body.clone(),
    )
}
