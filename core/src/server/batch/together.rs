//! Many requests of a key in one commit, in order, each as if it had come alone: the elements of a batch, or what came while a commit ran.
//!
//! Invariants:
//! - An element takes the way of a single request: the key rule, what its token allows, and all that comes after.
//! - All that is committed is committed at once, or nothing is: what is in memory goes with it.
//! - What one element does is undone with it alone: all are written together at a desk ([`crate::server::storage::desk`]), and where one undoes what it did, all are
//!   undone, and run without. Where the storage fails, which undoes all, each is to run by itself: the host sees to that,
//!   for it knows where it was should one of them crash.

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

/// Who asks what key.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The key.
    pub key: &'a Key,
    /// Who is authenticated, and what they may.
    pub asker: &'a Asker,
    /// The wall clock, in Unix ms.
    pub wall_ms: i64,
}

impl<H: Handler> Engine<H> {
    /// Answers the elements of a batch, in order; or what refuses all of it, of which nothing has run. With the key's clock. `None`: the storage
    /// has failed, and each is to run by itself, once an empty batch has acknowledged what goes along with them.
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
            let before = requests.last().and_then(|request| request.as_ref().ok()).map(|request| request.path.clone());
            requests.push(self.judged_after(before.as_ref(), asked, element, now_ms));
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

    /// The same with one desk; `None`: it can't be, and nothing was done.
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

    /// Answers attempts that came one after the other, all in one transaction; `None`: they are to be asked for one by one, for that can't be, and
    /// nothing was done.
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
                // One by one, each is let go before the next has its own.
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

    /// Works with one desk, in one transaction; `None`: somebody has undone what they did, and with it all is undone.
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

    /// An element as the request of its key that it is, or its refusal.
    pub fn judged(&self, asked: Asked<'_>, element: Element, now_ms: i64) -> Result<Request, Answer> {
        self.judged_after(None, asked, element, now_ms)
    }

    /// `before`: the path of the one before it, which most often is its own.
    fn judged_after(
        &self,
        before: Option<&Path>,
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
        before: Option<&Path>,
        asked: Asked<'_>,
        element: Element,
        now_ms: i64,
    ) -> Result<Request, Problem> {
        let Element { method, url: (pathname, search), mut headers, body } = element;
        head::check((&pathname, &search), &headers)?;
        let path = match before.filter(|before| before.is(&pathname, &search)) {
            Some(before) => before.clone(),
            None => path_of(&pathname, &search)?,
        };
        if holds(Rule::BatchKey) {
            headers.add("semel-key", quoted(&asked.key.encoded()));
        }
        headers.add("semel-principal", quoted(asked.asker.principal.as_str()));
        log::without_broken_trace(&mut headers);
        let mut request = Request { method, path, headers, body };
        self.allowed(asked, &request, now_ms)?;
        self.name(&asked.asker.principal, &mut request);
        if !request.path.is_control() && self.handler.is_remote(&request.method, &request.path) {
            // Alone or not: the host has nowhere to wait for its outcome.
            return Err(Problem::new(Code::KeyInvalid, "what is executed elsewhere has no place in a batch yet"));
        }
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

    /// Answers one after the other, in a transaction that is open, which a failure of the storage ends.
    fn each(
        &mut self,
        sql: &dyn Sql,
        Asked { key, asker, wall_ms }: Asked<'_>,
        (acknowledgement, now_ms): (Option<&Acknowledgement>, i64),
        requests: &[Result<Request, Answer>],
    ) -> Result<Vec<Answer>, SqlError> {
        // What is due may be much: a batch has one page of it before it is answered, as a single request has.
        let mut may_sweep = true;
        let arrival = |request| Arrival { key, principal: &asker.principal, request, body_too_large: false, wall_ms };
        // The client takes an answer for the word that its acknowledgements are applied.
        if let Some(Acknowledgement { request, acks }) = acknowledgement {
            let asked = (arrival(request), Purpose::Execute, std::mem::take(&mut may_sweep));
            let answer = self.attempt_with(sql, asked, |mut turn, loaded| turn.acknowledge_all(loaded, acks.clone()));
            if answer.headers.get("semel-status") != Some("executed") && holds(Rule::BatchAcknowledges) {
                return Err(SqlError("nothing was acknowledged".to_owned()));
            }
        }
        // Those that would have no room are not kept until all have run: together they may be more than an object has memory.
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

/// The path of an element.
fn path_of(pathname: &str, search: &str) -> Result<Path, Problem> {
    // Whatever a URL has escaped would be another path, and so another fingerprint.
    if !pathname.bytes().chain(search.bytes()).all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(Invalid::new("the path is not as a URL has it").into());
    }
    if is_administrative(pathname) {
        return Err(Problem::new(Code::Forbidden, "this path is the administrator's"));
    }
    // As the URL of a single request has it, whatever its client's leaves as it is: Node 20's does so with `^`.
    let escaped = |part, these| Cow::from(utf8_percent_encode(part, these));
    let path = Path::new(&escaped(pathname, PATH_ESCAPED), &escaped(search, QUERY_ESCAPED))?;
    head::check((path.with_query(), ""), &Headers::new())?;
    Ok(path)
}

/// Of what a path may have here, what a URL escapes in it; and in a query.
const PATH_ESCAPED: &AsciiSet = &QUERY_ESCAPED.remove(b'\'').add(b'^').add(b'`').add(b'{').add(b'}');
const QUERY_ESCAPED: &AsciiSet = &AsciiSet::EMPTY.add(b'"').add(b'\'').add(b'<').add(b'>');

/// What reads runs in a transaction that is undone, whatever comes of it.
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
