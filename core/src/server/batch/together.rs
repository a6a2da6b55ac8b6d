//! Many requests of a key in one commit, in order, each as if it had come alone: the elements of a batch, or requests
//! that came while a commit ran.
//!
//! Invariants:
//! - An element passes the same checks as a single request: the key rule, what its token allows, and all that comes after.
//! - Either all is committed at once or nothing is, and what is in memory follows the commit.
//! - If an element is undone, only that element is. All write together at a desk ([`crate::server::storage::desk`]); if
//!   one of them undoes what it did, all are undone, and run again without a shared desk.
//! - If the storage fails, all are undone, and each has to run by itself. The host does that, because it knows which one
//!   was running if one crashes.

use super::{Acknowledgement, Batch, Element, ROOM, without_room};
use crate::header::{self, quoted};
use crate::id::{Invalid, Key};
use crate::message::{Headers, Method, Request};
use crate::path::Path;
use crate::problem::{Code, Problem};
use crate::rules::{Rule, holds};
use crate::server::answer::Answer;
use crate::server::attempt::turn::{Loaded, Purpose};
use crate::server::control::Control;
use crate::server::edge::auth::Asker;
use crate::server::edge::router::{is_administrative, judge};
use crate::server::engine::ahead::Ahead;
use crate::server::engine::{Arrival, Engine};
use crate::server::handler::Handler;
use crate::server::head;
use crate::server::log;
use crate::server::storage::desk::Desk;
use crate::server::storage::sql::{Sql, SqlError, atomically};
use percent_encoding::{AsciiSet, utf8_percent_encode};
use std::borrow::Cow;

/// Who asks, and which key.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The key.
    pub key: &'a Key,
    /// Who is authenticated, and what they may do.
    pub asker: &'a Asker,
    /// The wall clock, in Unix ms.
    pub wall_ms: i64,
}

impl<H: Handler> Engine<H> {
    /// Answers the elements of a batch, in order. Returns the key's clock, and the answers, or the problem that refuses
    /// all of the batch, of which nothing has run.
    ///
    /// `None`: the storage has failed. Each element then has to run by itself, after an empty batch has acknowledged what
    /// comes along with them.
    pub fn batch(
        &mut self,
        sql: &dyn Sql,
        asked: Asked<'_>,
        batch: Batch,
    ) -> (i64, Result<Option<Vec<Answer>>, Problem>) {
        self.know_key(asked.key);
        let now_ms = match self.load(sql, asked.wall_ms) {
            Ok(loaded) => self.loaded.insert(loaded).clock_ms,
            Err(_) => self.tell_ms(asked.wall_ms),
        };
        if let Err(problem) = batch.check(now_ms) {
            return (now_ms, Err(problem));
        }
        let Batch { acknowledgement, elements, .. } = batch;
        let judged =
            acknowledgement.as_ref().map(|Acknowledgement { request, .. }| self.allowed(asked, request, now_ms));
        if let Some(Err(problem)) = judged {
            return (now_ms, Err(problem));
        }
        let mut requests: Vec<Result<Request, Answer>> = Vec::with_capacity(elements.len());
        for element in elements {
            let before = requests.last().and_then(|request| request.as_ref().ok());
            requests.push(self.judged_after(before, asked, element, now_ms));
        }
        if !holds(Rule::BatchInOrder) {
            requests.reverse();
        }
        let acknowledgement = acknowledgement.as_ref();
        let mut answers = self.batch_at_a_desk(sql, asked, (acknowledgement, now_ms), &requests);
        if let Ok(None) = answers {
            let mut each = || self.each(sql, asked, (acknowledgement, now_ms), &requests);
            answers = if holds(Rule::BatchInOneCommit) { atomically(sql, each) } else { each() }.map(Some);
        }
        let Ok(Some(answers)) = answers else {
            if holds(Rule::BatchMemory) {
                self.failed(now_ms);
            }
            let failed = || Problem::new(Code::Unavailable, "the key's storage failed");
            return (now_ms, if requests.is_empty() { Err(failed()) } else { Ok(None) });
        };
        for answer in &answers {
            self.told(answer);
        }
        (now_ms, Ok(Some(answers)))
    }

    /// Answers the elements at one desk; `None` if that is not possible, and nothing was done.
    fn batch_at_a_desk(
        &mut self,
        sql: &dyn Sql,
        asked: Asked<'_>,
        (acknowledgement, now_ms): (Option<&Acknowledgement>, i64),
        requests: &[Result<Request, Answer>],
    ) -> Result<Option<Vec<Answer>>, SqlError> {
        if !holds(Rule::BatchInOneCommit) || requests.iter().flatten().any(is_undone_always) {
            return Ok(None);
        }
        let acks = acknowledgement.map_or(&[][..], |acknowledgement| &acknowledgement.acks);
        let ahead = Ahead::of(requests.iter().flatten(), acks);
        self.at_a_desk(sql, &ahead, |engine, desk| engine.each(desk, asked, (acknowledgement, now_ms), requests))
    }

    /// Answers attempts that came one after the other, all in one transaction. `None`: that is not possible and nothing
    /// was done, so each has to be asked for by itself.
    pub fn group(&mut self, sql: &dyn Sql, arrivals: &[Arrival<'_>]) -> Option<Vec<Answer>> {
        let is_by_itself = |Arrival { request, .. }: &Arrival<'_>| {
            is_undone_always(request) || self.handler.is_remote(&request.method, &request.path)
        };
        let first = arrivals.first().filter(|_| !arrivals.iter().any(is_by_itself))?;
        self.know_key(first.key);
        let loaded = self.load(sql, first.wall_ms).ok()?;
        let now_ms = self.loaded.insert(loaded).clock_ms;
        let requests = || arrivals.iter().map(|arrival| arrival.request);
        let acks: Vec<_> = requests().flat_map(|request| header::acks(&request.headers).unwrap_or_default()).collect();
        let ahead = Ahead::of(requests(), &acks);
        let answers = self.at_a_desk(sql, &ahead, |engine, desk| {
            let (mut may_sweep, mut room) = (true, ROOM);
            let each = arrivals.iter().map(|arrival| {
                let answer = engine.attempt(desk, *arrival, Purpose::Execute, std::mem::take(&mut may_sweep));
                // When they run one by one, each answer is released before the next one exists.
                room = room.checked_sub(answer.body.len()).unwrap_or_else(|| {
                    desk.undo();
                    0
                });
                if engine.loaded.is_none() || desk.is_undone() { Err(failed()) } else { Ok(answer) }
            });
            each.collect()
        });
        match answers {
            Ok(answers) => {
                answers.iter().flatten().for_each(|answer| self.told(answer));
                answers
            }
            Err(_) => {
                self.failed(now_ms);
                None
            }
        }
    }

    /// Does `work` at one desk, in one transaction; `None` if a request has undone what it did, and so all is undone.
    fn at_a_desk<T>(
        &mut self,
        sql: &dyn Sql,
        ahead: &Ahead<'_>,
        work: impl FnOnce(&mut Self, &Desk<'_>) -> Result<T, SqlError>,
    ) -> Result<Option<T>, SqlError> {
        let before = self.loaded.as_mut().map(|loaded| {
            let packed = std::mem::take(&mut loaded.packed);
            let before = loaded.clone();
            loaded.packed = packed;
            loaded.packed.begin();
            before
        });
        let (chores, has_tables) =
            (self.chores.clone(), before.as_ref().is_some_and(|before| before.versions.engine > 0));
        let desk = Desk::shared(sql, std::mem::take(&mut self.kept.0));
        let ended = atomically(sql, || {
            if has_tables {
                desk.read_ahead(&ahead.acknowledged, &ahead.ids)?;
            }
            let done = work(self, &desk)?;
            desk.write()?;
            Ok(done)
        });
        let is_undone = desk.is_undone();
        if ended.is_ok() {
            self.kept.0 = desk.into_kept();
        }
        if !is_undone {
            self.loaded.iter_mut().for_each(|loaded| loaded.packed.keep());
            return ended.map(Some);
        }
        self.chores = chores;
        self.loaded = self.loaded.take().zip(before).map(|(loaded, before)| {
            let mut packed = loaded.packed;
            packed.take_back();
            Loaded { packed, ..before }
        });
        Ok(None)
    }

    /// An element as a request of its key, or the answer that refuses it.
    pub fn judged(&self, asked: Asked<'_>, element: Element, now_ms: i64) -> Result<Request, Answer> {
        self.judged_after(None, asked, element, now_ms)
    }

    /// `before`: the request of the element before it, whose method and path are usually the same. It is allowed, and
    /// nothing else of an element decides that.
    fn judged_after(
        &self,
        before: Option<&Request>,
        asked: Asked<'_>,
        element: Element,
        now_ms: i64,
    ) -> Result<Request, Answer> {
        let has_body = element.method != Method::Head;
        self.request(before, asked, element, now_ms).map_err(|problem| {
            let mut refusal = Answer::problem(&problem).stamped(now_ms, None);
            if !has_body {
                refusal.body.clear();
            }
            refusal
        })
    }

    fn request(
        &self,
        before: Option<&Request>,
        asked: Asked<'_>,
        element: Element,
        now_ms: i64,
    ) -> Result<Request, Problem> {
        let Element { method, url: (pathname, search), mut headers, body } = element;
        head::check((&pathname, &search), &headers)?;
        let before = before.filter(|before| before.path.is(&pathname, &search));
        let path = match before {
            Some(before) => before.path.clone(),
            None => path_of(&pathname, &search)?,
        };
        let is_allowed = before.is_some_and(|before| before.method == method);
        if holds(Rule::BatchKey) {
            headers.add("semel-key", quoted(&asked.key.encoded()));
        }
        headers.add("semel-principal", quoted(asked.asker.principal.as_str()));
        log::without_broken_trace(&mut headers);
        let mut request = Request { method, path, headers, body };
        if !is_allowed {
            self.allowed(asked, &request, now_ms)?;
            if !request.path.is_control() && self.handler.is_remote(&request.method, &request.path) {
                // Even alone: the host has nowhere to wait for its outcome.
                return Err(Problem::new(Code::KeyInvalid, "what is executed elsewhere has no place in a batch yet"));
            }
        }
        self.name(&asked.asker.principal, &mut request);
        Ok(request)
    }

    fn allowed(&self, asked: Asked<'_>, request: &Request, now_ms: i64) -> Result<(), Problem> {
        let Request { method, path, headers, .. } = request;
        match judge(&self.handler, asked.asker, method, path, headers, now_ms)? {
            (_, Some(Control::Batch | Control::Socket)) => {
                Err(Problem::new(Code::NotFound, "a batch has no batch or socket in it"))
            }
            _ => Ok(()),
        }
    }

    /// Answers the requests one after the other, in the open transaction. Fails if the storage does, which ends the transaction.
    fn each(
        &mut self,
        sql: &dyn Sql,
        Asked { key, asker, wall_ms }: Asked<'_>,
        (acknowledgement, now_ms): (Option<&Acknowledgement>, i64),
        requests: &[Result<Request, Answer>],
    ) -> Result<Vec<Answer>, SqlError> {
        // Much may be due, so a batch, like a single request, sweeps one page at most before it is answered.
        let mut may_sweep = true;
        let arrival = |request| Arrival { key, principal: &asker.principal, request, body_too_large: false, wall_ms };
        // The client takes the answer to mean that its acknowledgements are applied, so they come first.
        if let Some(Acknowledgement { request, acks }) = acknowledgement {
            let asked = (arrival(request), Purpose::Execute, std::mem::take(&mut may_sweep));
            let answer = self.attempt_with(sql, asked, |mut turn, loaded| turn.acknowledge_all(loaded, acks.clone()));
            if answer.headers.get("semel-status") != Some("executed") && holds(Rule::BatchAcknowledges) {
                return Err(SqlError("nothing was acknowledged".to_owned()));
            }
        }
        // An answer without room is dropped at once: all of them together may be more than the object's memory.
        let mut room = ROOM;
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let answer = match request {
                Ok(request) => self.attempt(sql, arrival(request), Purpose::Execute, std::mem::take(&mut may_sweep)),
                Err(refusal) => refusal.clone(),
            };
            if self.loaded.is_none() && request.is_ok() || sql.desk().is_some_and(Desk::is_undone) {
                return Err(failed());
            }
            answers.push(match room.checked_sub(answer.body.len()) {
                Some(left) => {
                    room = left;
                    answer
                }
                None => without_room(now_ms),
            });
        }
        Ok(answers)
    }
}

/// Checks and escapes the path of an element.
fn path_of(pathname: &str, search: &str) -> Result<Path, Problem> {
    // An unescaped character would be escaped in a URL, which makes another path, and so another fingerprint.
    if !pathname.bytes().chain(search.bytes()).all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(Invalid::new("the path is not as a URL has it").into());
    }
    if is_administrative(pathname) {
        return Err(Problem::new(Code::Forbidden, "this path is the administrator's"));
    }
    // Escapes what the URL of a single request would have escaped. Some clients leave such characters as they are, as
    // Node 20 does with `^`.
    let escaped = |part, these| Cow::from(utf8_percent_encode(part, these));
    let path = Path::new(&escaped(pathname, PATH_ESCAPED), &escaped(search, QUERY_ESCAPED))?;
    head::check((path.with_query(), ""), &Headers::new())?;
    Ok(path)
}

/// The characters allowed in a path here that a URL escapes in it; and those in a query.
const PATH_ESCAPED: &AsciiSet = &QUERY_ESCAPED.remove(b'\'').add(b'^').add(b'`').add(b'{').add(b'}');
const QUERY_ESCAPED: &AsciiSet = &AsciiSet::EMPTY.add(b'"').add(b'\'').add(b'<').add(b'>');

/// Whether a request reads: its transaction is always undone.
fn is_undone_always(request: &Request) -> bool {
    request.method.reads() && !request.path.is_control()
}

fn failed() -> SqlError {
    SqlError("not all can be committed together".to_owned())
}

/// The answer to a whole batch.
pub fn answer(text: String, now_ms: i64, key: &Key) -> Answer {
    let headers = [
        ("content-type", "application/json"),
        ("cache-control", "no-store"),
        ("semel-status", "executed"),
        ("idempotent-replayed", "false"),
    ];
    let headers = Headers::from_iter(headers);
    Answer { status: 200, headers, body: text.into_bytes(), log: None }.stamped(now_ms, Some(key))
}
