//! The Worker's router: decides where a request goes.

use crate::storage::console_log;
use crate::table::Table;
use crate::{remote, settings, wire};
use js_sys::{Array, Uint8Array};
use semel_core::header::{self, quoted};
use semel_core::id::{Invalid, Key, Principal};
use semel_core::message::{Headers, Method};
use semel_core::problem::{Code, Problem};
use semel_core::server::batch::first_frame;
use semel_core::server::edge::auth::{Refusal, Signed};
use semel_core::server::edge::router::{Route, route, route_own, told, wait_ms};
use semel_core::server::engine::remote::read;
use semel_core::server::log::{self, Answered, Sample};
use semel_core::server::registry::{Asked, Listing, Page, merged};
use semel_core::server::storage::sql::Row;
use semel_core::server::{Answer, Config, Cors, Gate, Handler};
use wasm_bindgen::{JsCast, JsValue};

/// How long a socket waits after its first frame until it is known who sends, in ms.
const TELLING_MS: i64 = 8_000;

/// The router, with the handler that it asks for keys.
pub struct Router<H> {
    handler: H,
    config: Config,
    log_sample: Sample,
    cors: Cors,
    pub(crate) gate: Gate,
}

impl<H: Handler> Router<H> {
    /// Makes a router with a deployment's settings. It counts in a table of the host's.
    pub fn new(handler: H, settings: &str, rates: JsValue) -> Result<Self, JsValue> {
        let (config, cors) = settings::read(settings)?;
        handler.settings().map_err(settings::thrown)?;
        let rates = Box::new(rates.unchecked_into::<Table>());
        let gate = Gate::with_table(settings::access(settings, config.open)?, rates);
        let log_sample = Sample::new(config.log_sample_ppm, settings);
        Ok(Self { handler, config, log_sample, cors, gate })
    }

    /// Routes a request. Returns one of these arrays:
    /// - an answer (see `wire.rs`); its first member is a number, unlike that of the others
    /// - `[key, lines, wait in ms, who asks]` for an object. The lines contain the key and the principal. Who asks is
    ///   given only for a batch; it is empty for a socket, and undefined otherwise
    /// - the same with a fifth member, for a read of what is executed elsewhere: whether the object is asked first
    /// - `[null, lines, wait in ms, whether it is a listing]` for the registry
    /// - `[undefined, wait in ms]` if it has to wait for keys that are being fetched, or for a signature [to be
    ///   checked](Self::signature_wanted)
    pub fn route(&mut self, method: &str, pathname: &str, search: &str, headers: &str, now_ms: f64) -> Array {
        let lines = Headers::from_lines(headers);
        let instant_ms = wire::instant_ms(now_ms);
        let (asked_by, url) = (Method::new(method), (pathname, search));
        let routed = route(&self.handler, &self.config, &mut self.gate, &asked_by, url, &lines, instant_ms);
        self.told(routed, method, &lines, now_ms)
    }

    /// The same for a message of a queue, which needs no authentication. `cancels`: whether it cancels an earlier
    /// message.
    pub fn route_message(
        &self,
        (method, headers): (&str, &str),
        url: (&str, &str),
        cancels: bool,
        now_ms: f64,
    ) -> Array {
        let lines = Headers::from_lines(headers);
        let instant_ms = wire::instant_ms(now_ms);
        let asked_by = (Principal::queue(), cancels);
        let routed = route_own(&self.handler, asked_by, &Method::new(method), url, &lines, instant_ms);
        self.told(routed, method, &lines, now_ms)
    }

    fn told(&self, routed: Route, method: &str, lines: &Headers, now_ms: f64) -> Array {
        let instant_ms = wire::instant_ms(now_ms);
        match routed {
            Route::Answer(answer) => self.answer(answer, method, lines, (now_ms, now_ms)),
            Route::Object { key, principal, wait_ms } => to_object(&key, &principal, wait_ms, None),
            Route::Elsewhere { key, principal, wait_ms, acknowledges } => {
                let route = to_object(&key, &principal, wait_ms, None);
                route.push(&JsValue::from(acknowledges));
                route
            }
            Route::Batch { key, asker, wait_ms } => to_object(&key, &asker.principal, wait_ms, Some(asker.to_text())),
            Route::Socket { key, wait_ms } if self.cors.lets_open(lines) => {
                to_object(&key, &Principal::default(), wait_ms, Some(String::new()))
            }
            Route::Socket { .. } => {
                let problem = Problem::new(Code::Forbidden, "pages of this origin may not open sockets");
                let answer = Answer::problem(&problem).stamped(instant_ms, None);
                self.answer(answer, method, lines, (now_ms, now_ms))
            }
            Route::Registry { asked, wait_ms } => Array::of4(
                &JsValue::NULL,
                &JsValue::from_str(&format!("semel-principal:{}\n", quoted(Principal::administrator().as_str()))),
                &JsValue::from(wait_ms as f64),
                &JsValue::from(matches!(asked, Asked::Keys(_))),
            ),
            Route::Wait => not_yet(wait_ms(lines, instant_ms)),
        }
    }

    /// Authenticates the first frame of a socket. Returns `[who asks, when that ends]`, or `[close code, reason]`, or,
    /// like [`Router::route`], that it has to wait.
    pub fn admit(&mut self, text: &str, key: &str, now_ms: f64) -> Array {
        let admitted = first_frame(text).map_err(Refusal::from).and_then(|headers| {
            let key = Headers::from_iter([("semel-key", key)]);
            let key = header::key(&key).map_err(Problem::from)?;
            let asker = self.gate.admit(&headers, wire::instant_ms(now_ms))?;
            let is_allowed = key.is_some_and(|key| asker.grant.allows_key(&key));
            let forbidden = || Problem::new(Code::Forbidden, "the token does not allow this key").into();
            is_allowed.then_some(asker).ok_or_else(forbidden)
        });
        match admitted {
            Ok(asker) => {
                let ends_ms = asker.ends_ms.map_or(JsValue::UNDEFINED, |ends_ms| JsValue::from(ends_ms as f64));
                Array::of2(&JsValue::from_str(&asker.to_text()), &ends_ms)
            }
            Err(Refusal::Problem(problem)) => {
                self.note_refused(&problem, key, now_ms);
                wire::closing(&problem)
            }
            Err(Refusal::Wait) => not_yet(TELLING_MS),
        }
    }

    /// Writes the line of the log of a sender who is refused. The close code has no room for the reason, so nobody else would learn it.
    fn note_refused(&self, problem: &Problem, key: &str, now_ms: f64) {
        let headers = Headers::from_iter([("semel-key", key)]);
        let key = header::key(&headers).ok().flatten();
        let now_ms = wire::instant_ms(now_ms);
        let answered =
            Answered { now_ms, took_ms: 0, by: "object", method: "GET", headers: &headers, key: key.as_ref() };
        if let Some(line) = log::line(self.log_sample, &answered, &told(problem)) {
            console_log(&line);
        }
    }

    /// The signature that has to be checked now: `[token, algorithm, public key as a JWK, signed bytes, signature]`;
    /// `None` if there is none. The token is a hash, by which the host reports the result.
    pub fn signature_wanted(&mut self) -> Option<Array> {
        let (token, Signed { alg, jwk, message, signature }) = self.gate.signature_wanted()?;
        let [alg, jwk, message] = [alg, &jwk, &message].map(JsValue::from_str);
        let [token, signature] = [&token[..], &signature].map(|bytes| Uint8Array::from(bytes).into());
        Some(Array::of5(&token, &alg, &jwk, &message, &signature))
    }

    /// Reports whether that signature is right; `None` if its key can't be used.
    pub fn signature_checked(&mut self, token: &[u8], is_right: Option<bool>) {
        if let Ok(token) = token.try_into() {
            self.gate.signature_checked(token, is_right);
        }
    }

    /// The URL from which the JWK set has to be fetched now; `None` if no fetch is due.
    pub fn keys_wanted(&mut self) -> Option<String> {
        self.gate.keys_wanted().map(str::to_owned)
    }

    /// Takes over the JWK set that an earlier instance fetched, if any, and the instant at which the last fetch began.
    pub fn keys_kept(&mut self, text: Option<String>, fetched_ms: f64, started_ms: f64) {
        self.gate.keys_kept(text.as_deref(), wire::instant_ms(fetched_ms), wire::instant_ms(started_ms));
    }

    /// Reports a fetch of the JWK set: its text, or `None`. Returns what is wrong with it, for the log.
    pub fn keys_fetched(&mut self, text: Option<String>, now_ms: f64) -> Option<String> {
        self.gate.keys_fetched(text.as_deref(), wire::instant_ms(now_ms)).err()
    }

    /// Merges the pages of all shards of the registry into one list.
    pub fn listed(
        &self,
        path: &str,
        pages: &Array,
        (method, headers): (&str, &str),
        times_ms: (f64, f64),
    ) -> Result<Array, JsValue> {
        let listing = Listing::parse(path).map_err(|Invalid(reason)| JsValue::from_str(&reason))?;
        let pages = pages.iter().map(|page| {
            let page: Array = page.unchecked_into();
            let rows = Array::from(&page.get(1));
            let rows = rows.iter().map(|row| wire::received(&row.unchecked_into(), Some));
            let rows = rows.collect::<Result<Vec<Row>, JsValue>>()?;
            let total = page.get(0).as_f64().unwrap_or_default() as i64;
            Page::from_rows(total, rows).ok_or_else(|| JsValue::from_str("a shard is of another build"))
        });
        let pages = pages.collect::<Result<_, _>>()?;
        let mut answer = Answer::read(merged(&listing, pages)).stamped(wire::instant_ms(times_ms.1), None);
        if method == "HEAD" {
            answer.body.clear();
        }
        Ok(self.answer(answer, method, &Headers::from_lines(headers), times_ms))
    }

    /// The answer to a read of what is executed elsewhere. `ended`: as in [`remote`].
    pub fn read(&self, ended: &Array, (method, headers): (&str, &str), times_ms: (f64, f64)) -> Array {
        let answer = read(remote::ended(ended), &Method::new(method)).stamped(wire::instant_ms(times_ms.1), None);
        self.answer(answer, method, &Headers::from_lines(headers), times_ms)
    }

    /// The answer if an object can't be reached, or does not answer in time. `reason` goes to the log.
    pub fn unavailable(
        &self,
        (detail, reason): (&str, Option<String>),
        (method, headers): (&str, &str),
        times_ms: (f64, f64),
    ) -> Array {
        let log = reason.unwrap_or_else(|| detail.to_owned());
        let answer = Answer::unavailable(detail).with_log(log).stamped(wire::instant_ms(times_ms.1), None);
        self.answer(answer, method, &Headers::from_lines(headers), times_ms)
    }

    fn answer(&self, answer: Answer, method: &str, headers: &Headers, (arrived_ms, now_ms): (f64, f64)) -> Array {
        let answered = Answered {
            now_ms: wire::instant_ms(now_ms),
            took_ms: wire::instant_ms(now_ms - arrived_ms),
            by: "router",
            method,
            headers,
            key: None,
        };
        let log = log::line(self.log_sample, &answered, &answer);
        wire::stamped(answer, &self.cors, headers, log)
    }
}

fn to_object(key: &Key, principal: &Principal, wait_ms: i64, asker: Option<String>) -> Array {
    let lines = format!("semel-key:{}\nsemel-principal:{}\n", quoted(&key.encoded()), quoted(principal.as_str()));
    wire::routed_to(key.as_str(), &lines, wait_ms as f64, asker.as_deref())
}

fn not_yet(wait_ms: i64) -> Array {
    Array::of2(&JsValue::UNDEFINED, &JsValue::from(wait_ms as f64))
}

/// The answer if the settings can't be read. Which pages may read it depends on the settings that can.
pub fn unset(settings: &str, headers: &str, now_ms: f64) -> Array {
    let cors = settings::cors(settings);
    let answer = Answer::unavailable("the worker can't serve with its settings");
    wire::stamped(answer.stamped(wire::instant_ms(now_ms), None), &cors, &Headers::from_lines(headers), None)
}
