//! Routes, from the setting `SEMEL_UPSTREAM_ROUTES`: which key a request has, what makes its id, and what is done if it
//! is in doubt.
//!
//! Invariants:
//! - Only the first route that names a request counts. A request that no route names goes to the key of its path, and
//!   is reported if it is in doubt.
//! - If any route can't be read, none is used.

use crate::template::{From, Template, member};
use semel_core::header;
use semel_core::server::handler::Policy;
use semel_core::server::json::read::{Json, Members};
use semel_worker::{KeyRule, Method, Path, Principal, Request, RequestId};
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// The most routes there may be, since each request is compared with them.
pub const ROUTES_MAX: usize = 256;
/// The most seconds that a route may name: thirty days.
const SECONDS_MAX: i64 = 30 * 86_400;
/// The beginning of each id that is made here.
const MADE: &str = "hash-";

/// A segment of a route's path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    /// Equals this text, which is decoded, as the segments of a request are.
    Is(String),
    /// Takes any segment, under this name.
    Named(String),
}

/// What makes the id of a request whose client sends none.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Body,
    Member(String),
    Header(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum InDoubt {
    Report,
    Resend { dedup_s: i64 },
    Probe { path: Template, settle_s: i64 },
}

/// One route: the requests that it names, and what it says of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Empty: all methods.
    methods: Vec<Method>,
    segments: Vec<Segment>,
    /// Whether further segments may follow.
    is_open: bool,
    key: Option<Template>,
    in_doubt: InDoubt,
    id_from: Vec<Source>,
}

/// All routes, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routes(Vec<Route>);

impl Routes {
    /// Reads a JSON array of routes.
    pub fn parse(text: &str) -> Result<Self, String> {
        let routes = Json::parse(text.as_bytes())
            .and_then(|routes| Vec::<Json>::try_from(routes).map_err(|expected| format!("not {expected}")))
            .map_err(|error| format!("{error}; routes are as [{{\"path\":\"/shops/:shop/*\"}}]"))?;
        if routes.len() > ROUTES_MAX {
            return Err(format!("{} routes; there may be {ROUTES_MAX}", routes.len()));
        }
        let numbered = routes.into_iter().enumerate();
        let read = numbered.map(|(n, route)| Route::parse(route).map_err(|error| format!("route {}: {error}", n + 1)));
        read.collect::<Result<_, _>>().map(Self)
    }

    /// The key of a request.
    pub fn key(&self, method: &Method, path: &Path) -> KeyRule {
        let found = self.of(method, path);
        let key = found.and_then(|(route, captured)| {
            route.key.as_ref()?.fill(From { id: "", captured: &captured, body: &[] }, false)
        });
        key.map_or(KeyRule::Any, KeyRule::Key)
    }

    /// The id of a request whose client sent none. `None`: the client has to send one, since no route makes it, or the
    /// request lacks a part of it.
    pub fn id(&self, principal: &Principal, request: &Request) -> Option<String> {
        let (route, _) = self.of(&request.method, &request.path)?;
        if route.id_from.is_empty() {
            return None;
        }
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        add(principal.as_str().as_bytes());
        add(request.method.as_str().as_bytes());
        add(request.path.with_query().as_bytes());
        for source in &route.id_from {
            match source {
                Source::Body => add(&request.body),
                // What is empty tells no request from another.
                Source::Member(name) => add(member(&request.body, name).filter(|text| !text.is_empty())?.as_bytes()),
                Source::Header(name) => {
                    add(request.headers.combined(name).filter(|value| !value.is_empty())?.as_bytes());
                }
            }
        }
        let mut id = MADE.to_owned();
        for byte in hash.finalize() {
            // Writing to a string does not fail.
            let _ = write!(id, "{byte:02x}");
        }
        Some(id)
    }

    /// Whether an id has the form of those that are made here, if any route makes ids. Such an id may belong to another
    /// client's request, whichever route leads to the key.
    pub fn owns(&self, id: &RequestId) -> bool {
        id.as_str().starts_with(MADE) && self.0.iter().any(|route| !route.id_from.is_empty())
    }

    /// Whether a route makes ids for such a request, provided that the request has the parts.
    pub fn makes_ids(&self, method: &Method, path: &Path) -> bool {
        self.of(method, path).is_some_and(|(route, _)| !route.id_from.is_empty())
    }

    /// What to do with a request that is in doubt. `timeout_s`: how long its call may be under way, in seconds.
    pub fn policy(&self, request: &Request, timeout_s: i64) -> Policy {
        let Some((route, captured)) = self.of(&request.method, &request.path) else { return Policy::Report };
        match &route.in_doubt {
            InDoubt::Report => Policy::Report,
            InDoubt::Resend { dedup_s } => Policy::Resend { dedup_s: *dedup_s },
            InDoubt::Probe { path, settle_s } => {
                let id = header::own_id(&request.headers).ok().flatten();
                let id = id.as_ref().map_or("", |id| id.as_str());
                // While the call may be under way, a probe that finds nothing proves nothing. And the effect may take
                // its settling time from the end of the call on.
                let settle_s = settle_s.saturating_add(timeout_s);
                // If the request lacks a part of the probe's path, it is reported.
                let filled = path.fill(From { id, captured: &captured, body: &request.body }, true);
                filled.map_or(Policy::Report, |path| Policy::Probe { path, timeout_s, settle_s })
            }
        }
    }

    fn of(&self, method: &Method, path: &Path) -> Option<(&Route, Vec<(String, String)>)> {
        let segments = path.segments();
        self.0.iter().find_map(|route| route.names(method, &segments).map(|captured| (route, captured)))
    }
}

impl Route {
    fn parse(route: Json) -> Result<Self, String> {
        let mut members = Members::try_from(route).map_err(|expected| format!("a route must be {expected}"))?;
        let methods = members.optional::<Vec<String>>("methods")?.unwrap_or_default();
        let methods: Vec<Method> = methods.iter().map(|name| Method::new(name)).collect();
        // A method like `post` would name no request, and the defaults would apply without notice.
        if let Some(none) = methods.iter().find(|method| !method.changes() && !method.reads()) {
            return Err(format!("methods has {:?}; it may have GET, HEAD, POST, PUT, PATCH and DELETE", none.as_str()));
        }
        let path: String = members.required("path")?;
        let (segments, is_open) = segments(&path)?;
        let names: Vec<&str> = segments
            .iter()
            .filter_map(|segment| match segment {
                Segment::Named(name) => Some(name.as_str()),
                Segment::Is(_) => None,
            })
            .collect();
        let key = members.optional::<String>("key")?.map(|key| Template::parse(&key, &names)).transpose()?;
        if key.as_ref().is_some_and(|key| !key.is_of_path()) {
            return Err("key: only what the path has, for the router reads no body".to_owned());
        }
        let in_doubt = in_doubt(&mut members, &names)?;
        let id_from = members.optional::<Vec<String>>("idFrom")?.unwrap_or_default();
        let id_from = id_from.iter().map(|source| self::source(source)).collect::<Result<_, _>>()?;
        members.end()?;
        Ok(Self { methods, segments, is_open, key, in_doubt, id_from })
    }

    /// The named segments of the path, if this is its route.
    fn names(&self, method: &Method, path: &[&str]) -> Option<Vec<(String, String)>> {
        let is_method = self.methods.is_empty() || self.methods.contains(method);
        let is_long = if self.is_open { path.len() >= self.segments.len() } else { path.len() == self.segments.len() };
        if !is_method || !is_long {
            return None;
        }
        let mut captured = Vec::new();
        for (segment, part) in self.segments.iter().zip(path) {
            match segment {
                Segment::Is(text) if text == part => {}
                Segment::Is(_) => return None,
                Segment::Named(name) => captured.push((name.clone(), (*part).to_owned())),
            }
        }
        Some(captured)
    }
}

fn in_doubt(members: &mut Members, names: &[&str]) -> Result<InDoubt, String> {
    let policy = members.optional::<String>("inDoubt")?;
    let mut seconds = |name: &str| match members.optional::<i64>(name)? {
        Some(seconds) if (1..=SECONDS_MAX).contains(&seconds) => Ok(Some(seconds)),
        Some(seconds) => Err(format!("{name} is {seconds}; it must be from 1 to {SECONDS_MAX}")),
        None => Ok(None),
    };
    let (dedup_s, settle_s) = (seconds("dedupSeconds")?, seconds("settleSeconds")?);
    let probe = members.optional::<String>("probe")?;
    match (policy.as_deref(), dedup_s, settle_s, probe) {
        (None | Some("report"), None, None, None) => Ok(InDoubt::Report),
        (Some("resend"), Some(dedup_s), None, None) => Ok(InDoubt::Resend { dedup_s }),
        (Some("probe"), None, Some(settle_s), Some(path)) if path.starts_with('/') => {
            Ok(InDoubt::Probe { path: Template::parse(&path, names)?, settle_s })
        }
        (policy, ..) => {
            let given = policy.unwrap_or("report");
            Err(format!(
                "inDoubt is {given:?}; it may be \"report\"; or \"resend\" with dedupSeconds; or \"probe\" with probe, a path, and settleSeconds"
            ))
        }
    }
}

fn segments(path: &str) -> Result<(Vec<Segment>, bool), String> {
    let wrong = || format!("path {path:?} is not as \"/shops/:shop/*\"");
    let path_of = path.strip_prefix('/').ok_or_else(wrong)?;
    let (path_of, is_open) = match path_of {
        "*" => ("", true),
        _ => path_of.strip_suffix("/*").map_or((path_of, false), |before| (before, true)),
    };
    let parts = path_of.split('/').filter(|_| !path_of.is_empty());
    let segment = |part: &str| match part.strip_prefix(':') {
        // The segment is compared with decoded text. With an escape, or as dots, it would name no request, without
        // notice.
        _ if matches!(part, "" | "." | ".." | ":") || part.contains(['*', '{', '}', '%', '\\']) => Err(wrong()),
        Some(name) => Ok(Segment::Named(name.to_owned())),
        None => Ok(Segment::Is(part.to_owned())),
    };
    Ok((parts.map(segment).collect::<Result<_, _>>()?, is_open))
}

fn source(source: &str) -> Result<Source, String> {
    match (source, source.split_once('.')) {
        ("body", _) => Ok(Source::Body),
        (_, Some(("body", name))) if !name.is_empty() => Ok(Source::Member(name.to_owned())),
        (_, Some(("header", name))) if !name.is_empty() => Ok(Source::Header(name.to_ascii_lowercase())),
        _ => Err(format!("idFrom {source:?} is not \"body\", \"body.NAME\" or \"header.NAME\"")),
    }
}

#[cfg(test)]
mod tests;
