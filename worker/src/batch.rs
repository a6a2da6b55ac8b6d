//! The object's side of batches and sockets.
//!
//! Invariants:
//! - Who asks is what the router has said, in the same words: it is never taken from what the client sends.
//! - What may have ended the object before, or ends the module now, runs by itself: `host.js` asks for one after the other.

use crate::object::{Object, Purpose};
use crate::router::Router;
use crate::storage::console_log;
use crate::wire;
use js_sys::Array;
use semel_core::header;
use semel_core::id::Key;
use semel_core::message::Headers;
use semel_core::problem::{Code, Problem};
use semel_core::server::auth::Asker;
use semel_core::server::batch::{self, Batch, Element, answer_text};
use semel_core::server::engine::Arrival;
use semel_core::server::log::{self, Answered};
use semel_core::server::suspicion;
use semel_core::server::together::{self, Asked};
use semel_core::server::{Answer, Handler};
use wasm_bindgen::JsValue;

/// The room for the answers of a batch.
pub const ROOM: f64 = batch::ROOM as f64;

/// What is to be run by itself.
struct Alone;

/// Key and asker, as the router has said them.
type To<'a> = (&'a str, &'a str);

fn to((key, asker): To<'_>) -> Result<(Key, Asker), Problem> {
    let key = header::key(&Headers::from_iter([("semel-key", key)]))?;
    let unasked = || Problem::new(Code::Unavailable, "the object was not asked by its router");
    Ok((key.ok_or_else(unasked)?, Asker::from_json(asker).ok_or_else(unasked)?))
}

impl<H: Handler> Object<H> {
    /// Answers a batch; `None`: each is to run by itself.
    pub fn batch(
        &mut self,
        router: &mut Router<H>,
        (to, is_alone): (To<'_>, bool),
        headers: &str,
        body: Option<Vec<u8>>,
        (started_ms, now_ms): (f64, f64),
    ) -> Option<Array> {
        let wall_ms = wire::instant_ms(now_ms);
        let headers = Headers::from_lines(headers);
        let answered = self::to(to).and_then(|(key, asker)| {
            let batch = Batch::parse(&key, &headers, body.as_deref())?;
            if !is_alone {
                // The router has counted one.
                router.gate.take_more(&asker.principal, batch.elements.len().saturating_sub(1), wall_ms)?;
            }
            let asked = Asked { key: &key, asker: &asker, wall_ms };
            let answered = self.together(asked, batch, is_alone, wire::instant_ms(started_ms));
            Ok(answered.map(|(now_ms, answered)| match answered {
                Ok(text) => together::answer(text, now_ms, &key),
                Err(problem) => Answer::problem(&problem).stamped(now_ms, None),
            }))
        });
        let answer = match answered {
            Ok(Err(Alone)) => return None,
            Ok(Ok(answer)) => answer,
            Err(problem) => Answer::problem(&problem).stamped(wall_ms, None),
        };
        let log = self.line(&headers, "POST", None, wall_ms, &answer);
        Some(wire::stamped(answer, &self.cors, &headers, log))
    }

    /// Answers a frame: `[text]`; `[text, undefined]` where all of it is refused; `[close code, reason]` where it can't be read.
    /// `None`: each is to run by itself.
    pub fn frame(
        &mut self,
        router: &mut Router<H>,
        (to, is_alone): (To<'_>, bool),
        text: &str,
        (started_ms, now_ms): (f64, f64),
    ) -> Option<Array> {
        let wall_ms = wire::instant_ms(now_ms);
        let answered = self::to(to).and_then(|(key, asker)| {
            if asker.has_ended(wall_ms) {
                return Err(Problem::new(Code::Unauthorized, "the token has expired"));
            }
            let batch = Batch::parse_frame(&key, text)?;
            let (count, frame) = (batch.elements.len(), batch.frame);
            let taken = if is_alone { Ok(()) } else { take(router, &asker, count, wall_ms) };
            let asked = Asked { key: &key, asker: &asker, wall_ms };
            let answered = match taken {
                Ok(()) => self.together(asked, batch, is_alone, wire::instant_ms(started_ms)),
                Err(problem) => Ok((wall_ms, Err(problem))),
            };
            Ok(answered.map(|(now_ms, answered)| match answered {
                Ok(text) => Array::of1(&JsValue::from_str(&text)),
                Err(problem) => {
                    // What refuses a frame is the answer to all there is in it; one there must be.
                    let refusal = Answer::problem(&problem).stamped(now_ms, None);
                    let refusals = vec![answer_text(refusal, now_ms, &mut batch::ROOM.clone()); count.max(1)];
                    Array::of2(&JsValue::from_str(&batch::text(frame, now_ms, &refusals)), &JsValue::UNDEFINED)
                }
            }))
        });
        match answered {
            Ok(Err(Alone)) => None,
            Ok(Ok(answer)) => Some(answer),
            Err(problem) => Some(wire::closing(&problem)),
        }
    }

    /// Runs a batch in one commit, unless one of its requests may have ended the object that ran before; of what runs by itself, only
    /// what goes along with it.
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
        if batch.elements.iter().any(|element| is_suspect(element, started_ms, asked.wall_ms)) {
            return Err(Alone);
        }
        let frame = batch.frame;
        let asked_by: Vec<_> =
            batch.elements.iter().map(|element| (element.method.clone(), element.headers.clone())).collect();
        let (now_ms, answers) = self.engine.batch(&self.sql, asked, batch);
        let texts = answers.map(|answers| {
            let mut room = batch::ROOM;
            let each = answers.into_iter().zip(&asked_by).map(|(answer, (method, headers))| {
                self.tell(headers, method.as_str(), asked.key, asked.wall_ms, &answer);
                answer_text(answer, now_ms, &mut room)
            });
            batch::text(frame, now_ms, &each.collect::<Vec<_>>())
        });
        Ok((now_ms, texts))
    }

    /// Counts the start of the only request of a batch, if it may have ended the object that ran before; whether it may.
    pub fn start_one(&mut self, to: To<'_>, text: &str, (started_ms, now_ms): (f64, f64)) -> bool {
        let Ok((key, asker, element)) = only(to, text) else { return false };
        let wall_ms = wire::instant_ms(now_ms);
        let is_suspect = is_suspect(&element, wire::instant_ms(started_ms), wall_ms);
        if is_suspect {
            self.ask_one(Purpose::Start, Asked { key: &key, asker: &asker, wall_ms }, element);
        }
        is_suspect
    }

    /// Answers the only request of a batch, or counts its crash. `[text, room that is left]`.
    pub fn one(&mut self, to: To<'_>, text: &str, has_crashed: bool, room: f64, now_ms: f64) -> Array {
        let wall_ms = wire::instant_ms(now_ms);
        let purpose = if has_crashed { Purpose::Crashed } else { Purpose::Handle };
        let answer = match only(to, text) {
            Ok((key, asker, element)) => {
                let (method, headers) = (element.method.clone(), element.headers.clone());
                let answer = self.ask_one(purpose, Asked { key: &key, asker: &asker, wall_ms }, element);
                self.tell(&headers, method.as_str(), &key, wall_ms, &answer);
                answer
            }
            Err(problem) => Answer::problem(&problem).stamped(wall_ms, None),
        };
        let mut room = room as usize;
        let text = answer_text(answer, wall_ms, &mut room);
        Array::of2(&JsValue::from_str(&text), &JsValue::from(room as f64))
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

    fn line(&self, headers: &Headers, method: &str, key: Option<&Key>, now_ms: i64, answer: &Answer) -> Option<String> {
        log::line(self.log_sample_ppm, &Answered { now_ms, took_ms: 0, by: "object", method, headers, key }, answer)
    }

    fn tell(&self, headers: &Headers, method: &str, key: &Key, now_ms: i64, answer: &Answer) {
        if let Some(line) = self.line(headers, method, Some(key), now_ms, answer) {
            console_log(&line);
        }
    }
}

fn take<H>(router: &mut Router<H>, asker: &Asker, count: usize, now_ms: i64) -> Result<(), Problem> {
    router.gate.take_one(&asker.principal, now_ms)?;
    router.gate.take_more(&asker.principal, count.saturating_sub(1), now_ms)
}

fn only(to: To<'_>, text: &str) -> Result<(Key, Asker, Element), Problem> {
    let (key, asker) = self::to(to)?;
    let element = Batch::parse(&key, &Headers::new(), Some(text.as_bytes()))?.elements.pop();
    let element = element.ok_or_else(|| Problem::new(Code::BodyInvalid, "no request"))?;
    Ok((key, asker, element))
}

fn is_suspect(element: &Element, started_ms: i64, now_ms: i64) -> bool {
    suspicion::is_suspect(&element.method, &element.url.0, &element.headers, started_ms, now_ms)
}
