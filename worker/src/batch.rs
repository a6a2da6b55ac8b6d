//! Batches and socket frames, as the key's object handles them.
//!
//! Invariants:
//! - The principal comes from the router, in the router's own words, never from the client.
//! - A request that may have ended the object before, or that crashes the module now, runs by itself: `batches.js` asks
//!   for one after the other. So do all requests of a batch for which the storage fails.

use crate::object::{Object, Purpose};
use crate::router::Router;
use crate::storage::console_log;
use crate::wire;
use js_sys::Array;
use semel_core::header;
use semel_core::id::Key;
use semel_core::message::Headers;
use semel_core::problem::{Code, Problem};
use semel_core::server::batch::together::{self, Asked};
use semel_core::server::batch::{Answers, Batch, Element};
use semel_core::server::edge::auth::Asker;
use semel_core::server::engine::Arrival;
use semel_core::server::log::{self, Answered};
use semel_core::server::{Answer, Handler};
use wasm_bindgen::JsValue;

/// The requests of a batch have to run one by one.
struct Alone;

/// The headers that identify a request in the log, and its place in a session.
const NAMING: &[&str] = &["idempotency-key", "semel-session", "traceparent"];

/// The key and who asks, as the router wrote them.
type To<'a> = (&'a str, &'a str);

fn to((key, asker): To<'_>) -> Result<(Key, Asker), Problem> {
    let key = header::key(&Headers::from_iter([("semel-key", key)]))?;
    let unasked = || Problem::new(Code::Unavailable, "the object was not asked by its router");
    Ok((key.ok_or_else(unasked)?, Asker::from_text(asker).ok_or_else(unasked)?))
}

impl<H: Handler> Object<H> {
    /// Answers a batch, as a request is answered. Without header `lines`, answers a frame:
    /// - `[text]`
    /// - `[text, undefined]` if all of the frame is refused
    /// - `[close code, reason]` if the frame can't be read
    ///
    /// `None` if each request has to run by itself. `is_alone`: they do so, and only the rest is done here.
    pub fn batch(
        &mut self,
        router: &mut Router<H>,
        (to, is_alone): (To<'_>, bool),
        lines: Option<String>,
        body: Option<Vec<u8>>,
        (started_ms, now_ms): (f64, f64),
    ) -> Option<Array> {
        let wall_ms = wire::instant_ms(now_ms);
        let headers = lines.as_deref().map(Headers::from_lines);
        let answered = self::to(to).and_then(|(key, asker)| {
            let batch = match &headers {
                Some(headers) => Batch::parse(&key, headers, body.as_deref())?,
                None => Batch::parse_frame(&key, &asker, wall_ms, body.as_deref())?,
            };
            let (count, frame) = (batch.elements.len(), batch.frame);
            // The router has counted one request of a batch, but none of a frame.
            let taken = match frame {
                Some(_) if !is_alone => router.gate.take_one(&asker.principal, wall_ms),
                _ => Ok(()),
            };
            let more = if is_alone { 0 } else { count.saturating_sub(1) };
            let taken = taken.and_then(|()| router.gate.take_more(&asker.principal, more, wall_ms));
            let asked = Asked { key: &key, asker: &asker, wall_ms };
            let answered = match taken {
                Ok(()) => self.together(asked, batch, is_alone, wire::instant_ms(started_ms)),
                Err(problem) => Ok((self.engine.tell_ms(wall_ms), Err(problem))),
            };
            Ok(answered.map(|(now_ms, answered)| {
                let refused = |problem: Problem| Answer::problem(&problem).stamped(now_ms, None);
                match (answered, &headers) {
                    (Ok(text), None) => Array::of1(&JsValue::from_str(&text)),
                    (Err(problem), None) => {
                        // A refusal of a frame is the answer to each request in it. There must be at least one answer.
                        let mut refusals = Answers::default();
                        let refusal = refused(problem);
                        (0..count.max(1)).for_each(|_| refusals.add(refusal.clone(), now_ms));
                        Array::of2(&JsValue::from_str(&refusals.whole(frame, now_ms)), &JsValue::UNDEFINED)
                    }
                    (Ok(text), Some(headers)) => self.whole(together::answer(text, now_ms, &key), headers, wall_ms),
                    (Err(problem), Some(headers)) => self.whole(refused(problem), headers, wall_ms),
                }
            }))
        });
        match (answered, &headers) {
            (Ok(Err(Alone)), _) => None,
            (Ok(Ok(answer)), _) => Some(answer),
            (Err(problem), None) => Some(wire::closing(&problem)),
            (Err(problem), Some(headers)) => {
                Some(self.whole(Answer::problem(&problem).stamped(wall_ms, None), headers, wall_ms))
            }
        }
    }

    /// Finishes the answer to a whole batch.
    fn whole(&self, answer: Answer, headers: &Headers, wall_ms: i64) -> Array {
        let log = self.line(headers, "POST", None, wall_ms, &answer);
        wire::stamped(answer, &self.cors, headers, log)
    }

    /// Runs a batch in one commit, unless one of its requests may have ended the object that ran before, or the storage
    /// fails. If the requests run by themselves (`is_alone`), only the rest is done, for instance the acknowledgements.
    fn together(
        &mut self,
        asked: Asked<'_>,
        mut batch: Batch,
        is_alone: bool,
        started_ms: i64,
    ) -> Result<(i64, Result<String, Problem>), Alone> {
        if is_alone {
            batch.elements.clear();
        }
        if batch.elements.iter().any(|element| self.suspects_element(element, started_ms, asked.wall_ms)) {
            return Err(Alone);
        }
        let frame = batch.frame;
        let asked_by: Vec<_> =
            batch.elements.iter().map(|element| (element.method.clone(), element.headers.only(NAMING))).collect();
        let (now_ms, answers) = self.engine.batch(&self.sql, asked, batch);
        let answers = answers.transpose().ok_or(Alone)?;
        let texts = answers.map(|answers| {
            let mut texts = Answers::default();
            for (answer, (method, headers)) in answers.into_iter().zip(&asked_by) {
                self.suspects.answered(headers, &answer);
                self.tell(headers, method.as_str(), asked.key, asked.wall_ms, &answer);
                texts.add(answer, now_ms);
            }
            texts.whole(frame, now_ms)
        });
        Ok((now_ms, texts))
    }

    /// Handles one request of a batch with this deadline.
    /// - With `started_ms` (when the object started): if the request may have ended the object before, counts its
    ///   start, and returns `[]`. If the start can't be counted, the request must not run, and this returns its answer.
    ///   `None`: the request is no suspect.
    /// - With `started_ms` and `is_again`: says once more that the start was counted, now that this is durable.
    /// - Without `started_ms`: runs the request, and returns `[text, room that is left]`. `is_next`: another request of
    ///   the batch was answered before.
    /// - Without `started_ms`, and `is_again`: counts its crash, and returns the same.
    pub fn one(
        &mut self,
        to: To<'_>,
        (text, deadline_ms): (&str, Option<f64>),
        (started_ms, is_again, is_next): (Option<f64>, bool, bool),
        room: f64,
        now_ms: f64,
    ) -> Option<Array> {
        let wall_ms = wire::instant_ms(now_ms);
        let purpose = match (started_ms, is_again) {
            (Some(_), false) => Purpose::Start,
            (Some(_), true) => Purpose::Started,
            (None, false) if is_next => Purpose::Next,
            (None, false) => Purpose::Handle,
            (None, true) => Purpose::Crashed,
        };
        let read = || Element::read(text, deadline_ms.map(wire::instant_ms), wall_ms);
        let answer = match self::to(to).and_then(|to| Ok((to, read()?))) {
            Ok((_, element))
                if started_ms.is_some_and(|ms| !self.suspects_element(&element, wire::instant_ms(ms), wall_ms)) =>
            {
                return None;
            }
            Ok(((key, asker), element)) => {
                let (method, headers) = (element.method.clone(), element.headers.only(NAMING));
                let answer = self.ask_one(purpose, Asked { key: &key, asker: &asker, wall_ms }, element);
                if started_ms.is_some() && answer.status != Code::Unavailable.status() {
                    return Some(Array::new());
                }
                self.tell(&headers, method.as_str(), &key, wall_ms, &answer);
                answer
            }
            Err(problem) => Answer::problem(&problem).stamped(wall_ms, None),
        };
        let mut texts = Answers::with_room(room as usize);
        texts.add(answer, wall_ms);
        let room = JsValue::from(texts.room() as f64);
        Some(Array::of2(&JsValue::from_str(&texts.into_text()), &room))
    }

    fn ask_one(&mut self, purpose: Purpose, asked: Asked<'_>, element: Element) -> Answer {
        let Asked { key, asker, wall_ms } = asked;
        match self.engine.judged(asked, element, wall_ms) {
            Ok(request) => {
                let principal = &asker.principal;
                self.ask(purpose, Arrival { key, principal, request: &request, body_too_large: false, wall_ms })
            }
            Err(refusal) => refusal,
        }
    }

    fn suspects_element(&self, element: &Element, started_ms: i64, now_ms: i64) -> bool {
        self.suspects((&element.method, &element.url.0), &element.headers, started_ms, now_ms)
    }

    fn line(&self, headers: &Headers, method: &str, key: Option<&Key>, now_ms: i64, answer: &Answer) -> Option<String> {
        log::line(self.log_sample, &Answered { now_ms, took_ms: 0, by: "object", method, headers, key }, answer)
    }

    fn tell(&self, headers: &Headers, method: &str, key: &Key, now_ms: i64, answer: &Answer) {
        if let Some(line) = self.line(headers, method, Some(key), now_ms, answer) {
            console_log(&line);
        }
    }
}
