//! Semel's engine in a Durable Object.
//!
//! An application implements [`Handler`] and names it in one line, `semel_worker::export!(Handler)`. That line makes what
//! `router.js` and `host.js` call: a router for the Worker and an object for each key.
//!
//! Invariants:
//! - Every call from JavaScript is synchronous, from the request's bytes to the answer's. There is no executor, and no
//!   promise that a panic could leave unsettled: a panic is an exception that `host.js` catches, answers and counts.
//! - The boundary is narrow: one string for all headers, one call a statement.
//!
//! The object's side of the boundary is in [`object`] and [`batch`], the registry's in [`registry`], the Worker's in [`router`].

pub mod batch;
mod effects;
pub mod object;
pub mod registry;
pub mod remote;
pub mod router;
pub mod settings;
mod storage;
mod table;
mod wire;

pub use semel_core::id::{Key, Principal, RequestId};
pub use semel_core::message::{Headers, Method, Request, Response};
pub use semel_core::path::Path;
pub use semel_core::server::handler::Outgoing;
pub use semel_core::server::json;
pub use semel_core::server::storage::sql::{Ended, Rollback, Row, Sql, SqlError, Value};
pub use semel_core::server::{Context, Failure, Handler, KeyRule, State};

#[doc(hidden)]
pub use {js_sys, wasm_bindgen};

/// A handler that is the same at every object.
pub fn by_default<H: Default>(_storage: &wasm_bindgen::JsValue) -> H {
    H::default()
}

/// Makes the classes that `router.js` and `host.js` work with, for a handler that has a `Default`, which the router asks for keys. Where it is
/// another one at each object, `$of` makes it of the object's storage.
#[macro_export]
macro_rules! export {
    ($handler:ty) => {
        $crate::export!($handler, $crate::by_default);
    };
    ($handler:ty, $of:expr) => {
        /// What the Worker asks where a request goes.
        #[wasm_bindgen::prelude::wasm_bindgen]
        pub struct SemelRouter($crate::router::Router<$handler>);

        #[wasm_bindgen::prelude::wasm_bindgen]
        impl SemelRouter {
            /// A router with a deployment's settings, `NAME=value` and a NUL of each, that counts in a table of the host's.
            #[wasm_bindgen(constructor)]
            pub fn new(settings: &str, rates: wasm_bindgen::JsValue) -> Result<Self, wasm_bindgen::JsValue> {
                $crate::router::Router::new(<$handler>::default(), settings, rates).map(Self)
            }

            /// Routes a request by its head.
            pub fn route(
                &mut self,
                method: &str,
                pathname: &str,
                search: &str,
                headers: &str,
                now_ms: f64,
            ) -> $crate::js_sys::Array {
                self.0.route(method, pathname, search, headers, now_ms)
            }

            /// Routes a message of a queue by the head that it is given.
            pub fn route_message(
                &self,
                method: &str,
                pathname: &str,
                search: &str,
                headers: &str,
                cancels: bool,
                now_ms: f64,
            ) -> $crate::js_sys::Array {
                self.0.route_message((method, headers), (pathname, search), cancels, now_ms)
            }

            /// What all shards of the registry have, as one list.
            pub fn listed(
                &self,
                path: &str,
                pages: &$crate::js_sys::Array,
                method: &str,
                headers: &str,
                arrived_ms: f64,
                now_ms: f64,
            ) -> Result<$crate::js_sys::Array, wasm_bindgen::JsValue> {
                self.0.listed(path, pages, (method, headers), (arrived_ms, now_ms))
            }

            /// The answer to a read of what is executed elsewhere.
            pub fn read(
                &self,
                ended: &$crate::js_sys::Array,
                method: &str,
                headers: &str,
                arrived_ms: f64,
                now_ms: f64,
            ) -> $crate::js_sys::Array {
                self.0.read(ended, (method, headers), (arrived_ms, now_ms))
            }

            /// The answer where an object can't be reached, or does not answer in time. `reason` goes to the log.
            pub fn unavailable(
                &self,
                detail: &str,
                reason: Option<String>,
                method: &str,
                headers: &str,
                arrived_ms: f64,
                now_ms: f64,
            ) -> $crate::js_sys::Array {
                self.0.unavailable((detail, reason), (method, headers), (arrived_ms, now_ms))
            }

            /// Who the first frame of a socket says it is.
            pub fn admit(&mut self, text: &str, key: &str, now_ms: f64) -> $crate::js_sys::Array {
                self.0.admit(text, key, now_ms)
            }

            /// The signature that is to be checked now; undefined: there is none. It is told once.
            pub fn signature_wanted(&mut self) -> Option<$crate::js_sys::Array> {
                self.0.signature_wanted()
            }

            /// Whether that signature is right; undefined: its key can't be used.
            pub fn signature_checked(&mut self, token: &[u8], is_right: Option<bool>) {
                self.0.signature_checked(token, is_right);
            }

            /// From where the JWK set is to be fetched now; undefined: it is not. It is told once.
            pub fn keys_wanted(&mut self) -> Option<String> {
                self.0.keys_wanted()
            }

            /// What the instance before had fetched, if anything, and when the last fetch began.
            pub fn keys_kept(&mut self, text: Option<String>, fetched_ms: f64, started_ms: f64) {
                self.0.keys_kept(text, fetched_ms, started_ms);
            }

            /// What a fetch of the JWK set brought: its text, or undefined. Returns what is wrong with it, for the log.
            pub fn keys_fetched(&mut self, text: Option<String>, now_ms: f64) -> Option<String> {
                self.0.keys_fetched(text, now_ms)
            }
        }

        /// What the Durable Object of a key asks.
        #[wasm_bindgen::prelude::wasm_bindgen]
        pub struct SemelEngine($crate::object::Object<$handler>);

        #[wasm_bindgen::prelude::wasm_bindgen]
        impl SemelEngine {
            /// An engine over an object's storage. `under_way`: the id of what is under way to the upstream, if anything is.
            #[wasm_bindgen(constructor)]
            pub fn new(
                storage: wasm_bindgen::JsValue,
                settings: &str,
                under_way: Option<String>,
            ) -> Result<Self, wasm_bindgen::JsValue> {
                $crate::object::Object::new($of(&storage), storage, settings, under_way).map(Self)
            }

            /// Answers an attempt; `body` is undefined where it was too large to read.
            #[expect(clippy::too_many_arguments, reason = "one call, and nothing to make on the other side")]
            pub fn handle(
                &mut self,
                method: &str,
                pathname: &str,
                search: &str,
                headers: &str,
                body: Option<Vec<u8>>,
                arrived_ms: f64,
                now_ms: f64,
            ) -> $crate::js_sys::Array {
                self.0.answer(
                    $crate::object::Purpose::Handle,
                    method,
                    (pathname, search),
                    headers,
                    body,
                    (arrived_ms, now_ms),
                )
            }

            /// Answers attempts that came one after the other; undefined: each is to be asked for by itself.
            pub fn group(&mut self, heads: &str, bodies: &[u8], numbers: &[f64]) -> Option<$crate::js_sys::Array> {
                self.0.group(heads, bodies, numbers)
            }

            /// Counts the start of a suspect, which `handle` is asked to run next, unless this is unavailable; or, where that is done and durable, says so
            /// again: a crash of the module meanwhile has it forgotten.
            #[expect(clippy::too_many_arguments, reason = "one call, and nothing to make on the other side")]
            pub fn start(
                &mut self,
                is_counted: bool,
                method: &str,
                pathname: &str,
                search: &str,
                headers: &str,
                body: Option<Vec<u8>>,
                arrived_ms: f64,
                now_ms: f64,
            ) -> $crate::js_sys::Array {
                self.0.answer(
                    if is_counted { $crate::object::Purpose::Started } else { $crate::object::Purpose::Start },
                    method,
                    (pathname, search),
                    headers,
                    body,
                    (arrived_ms, now_ms),
                )
            }

            /// Answers an attempt on which the handler crashed, without running it again.
            #[expect(clippy::too_many_arguments, reason = "one call, and nothing to make on the other side")]
            pub fn crashed(
                &mut self,
                method: &str,
                pathname: &str,
                search: &str,
                headers: &str,
                body: Option<Vec<u8>>,
                arrived_ms: f64,
                now_ms: f64,
            ) -> $crate::js_sys::Array {
                self.0.answer(
                    $crate::object::Purpose::Crashed,
                    method,
                    (pathname, search),
                    headers,
                    body,
                    (arrived_ms, now_ms),
                )
            }

            /// Answers an attempt while another request of the key is under way to the upstream.
            #[expect(clippy::too_many_arguments, reason = "one call, and nothing to make on the other side")]
            pub fn wait(
                &mut self,
                method: &str,
                pathname: &str,
                search: &str,
                headers: &str,
                body: Option<Vec<u8>>,
                arrived_ms: f64,
                now_ms: f64,
            ) -> $crate::js_sys::Array {
                self.0.answer(
                    $crate::object::Purpose::Wait,
                    method,
                    (pathname, search),
                    headers,
                    body,
                    (arrived_ms, now_ms),
                )
            }

            /// Answers an attempt of which has ended what was sent for it.
            #[expect(clippy::too_many_arguments, reason = "one call, and nothing to make on the other side")]
            pub fn settle(
                &mut self,
                call: &$crate::js_sys::Array,
                ended: &$crate::js_sys::Array,
                method: &str,
                pathname: &str,
                search: &str,
                headers: &str,
                body: Option<Vec<u8>>,
                arrived_ms: f64,
                now_ms: f64,
            ) -> $crate::js_sys::Array {
                self.0.answer(
                    $crate::remote::settled(call, ended),
                    method,
                    (pathname, search),
                    headers,
                    body,
                    (arrived_ms, now_ms),
                )
            }

            /// What is to be sent before the last attempt has an answer; undefined: nothing. It is told once.
            pub fn take_call(&mut self) -> Option<$crate::js_sys::Array> {
                self.0.take_call()
            }

            /// Answers a batch as `handle` does; or a frame of a socket, where there are no headers: `[text]`, or `[close code, reason]`.
            /// Undefined: each is to run by itself. `is_alone`: that has begun.
            #[expect(clippy::too_many_arguments, reason = "one call, and nothing to make on the other side")]
            pub fn batch(
                &mut self,
                router: &mut SemelRouter,
                key: &str,
                asker: &str,
                is_alone: bool,
                headers: Option<String>,
                body: Option<Vec<u8>>,
                started_ms: f64,
                now_ms: f64,
            ) -> Option<$crate::js_sys::Array> {
                self.0.batch(&mut router.0, ((key, asker), is_alone), headers, body, (started_ms, now_ms))
            }

            /// One request of a batch with this deadline: runs it, or if that was done before counts its crash: `[text, room that is left]`. With
            /// `started_ms`, counts its start if it is a suspect, or says again that it did, `[]`, unless it is answered; undefined: it isn't. `is_next`: it is not
            /// the first.
            #[expect(clippy::too_many_arguments, reason = "one call, and nothing to make on the other side")]
            pub fn one(
                &mut self,
                key: &str,
                asker: &str,
                text: &str,
                deadline_ms: Option<f64>,
                started_ms: Option<f64>,
                is_again: bool,
                is_next: bool,
                room: f64,
                now_ms: f64,
            ) -> Option<$crate::js_sys::Array> {
                self.0.one((key, asker), (text, deadline_ms), (started_ms, is_again, is_next), room, now_ms)
            }

            /// Whether something may be there to be sent.
            pub fn has_to_send(&self) -> bool {
                self.0.has_to_send()
            }

            /// When the object has to be awake to send, should it die; undefined: nothing is known to wait.
            pub fn wakes_to_send_at(&self, now_ms: f64) -> Option<f64> {
                self.0.wakes_to_send_at(now_ms)
            }

            /// `[lane, token, key or undefined, method, URL, header lines, body]`; undefined: nothing is to be sent now.
            /// `chance`: a whole number, each time another.
            pub fn send_next(
                &mut self,
                now_ms: f64,
                chance: f64,
            ) -> Result<Option<$crate::js_sys::Array>, wasm_bindgen::JsValue> {
                self.0.send_next(now_ms, chance)
            }

            /// What came of what was sent.
            pub fn sent(
                &mut self,
                lane: f64,
                token: f64,
                status: &wasm_bindgen::JsValue,
                text: String,
                body: Vec<u8>,
                now_ms: f64,
            ) -> Result<(), wasm_bindgen::JsValue> {
                self.0.sent((lane, token), (status, text, body), now_ms)
            }

            /// Whether an attempt may have ended the object that ran before.
            pub fn is_suspect(
                &self,
                method: &str,
                pathname: &str,
                headers: &str,
                started_ms: f64,
                now_ms: f64,
            ) -> bool {
                self.0.is_suspect(method, pathname, headers, (started_ms, now_ms))
            }

            /// Looks at a page of what is stored; whether there is more to look at before anything can be answered.
            pub fn open(&mut self, now_ms: f64) -> Result<bool, wasm_bindgen::JsValue> {
                self.0.open(now_ms)
            }

            /// When the object has to be awake next; undefined: a request will do.
            pub fn wakes_at(&self, has_registry: bool) -> Option<f64> {
                self.0.wakes_at(has_registry)
            }

            /// The object was woken.
            pub fn woken(&mut self, now_ms: f64) {
                self.0.woken(now_ms);
            }

            /// Sweeps a page; whether there is one more to sweep now.
            pub fn sweep_page(&mut self, now_ms: f64) -> Result<bool, wasm_bindgen::JsValue> {
                self.0.sweep_page(now_ms)
            }

            /// `[shard, report]` for the registry; undefined: there is nothing to tell.
            pub fn report(
                &mut self,
                bytes: f64,
                now_ms: f64,
            ) -> Result<Option<$crate::js_sys::Array>, wasm_bindgen::JsValue> {
                self.0.report(bytes, now_ms)
            }

            /// The registry's answer to a report; undefined: its list is not as it was told.
            pub fn reported(
                &mut self,
                report: &$crate::js_sys::Array,
                before_s: Option<f64>,
                now_ms: f64,
            ) -> Result<(), wasm_bindgen::JsValue> {
                self.0.reported(report, before_s, now_ms)
            }

            /// Where there is no registry: drops the name of a key that was deleted.
            pub fn drop_name(&mut self, now_ms: f64) -> Result<(), wasm_bindgen::JsValue> {
                self.0.drop_name(now_ms)
            }

            /// Forgets what was first sent before an instant.
            pub fn forget(&mut self, before_s: f64, now_ms: f64) -> Result<(), wasm_bindgen::JsValue> {
                self.0.forget(before_s, now_ms)
            }

            /// What stands for the key in the log; undefined where it is not known.
            pub fn key_hash(&self) -> Option<String> {
                self.0.key_hash()
            }

            /// How many records and tombstones the key keeps; undefined where its storage can't be read.
            pub fn count(&mut self, now_ms: f64) -> Option<$crate::js_sys::Array> {
                self.0.count(now_ms)
            }
        }

        /// How long an object is young, and has suspects whatever they are, in ms.
        #[wasm_bindgen::prelude::wasm_bindgen]
        pub fn young_ms() -> f64 {
            $crate::object::YOUNG_MS
        }

        /// The answer where the settings can't be read.
        #[wasm_bindgen::prelude::wasm_bindgen]
        pub fn unset(settings: &str, headers: &str, now_ms: f64) -> $crate::js_sys::Array {
            $crate::router::unset(settings, headers, now_ms)
        }

        /// Called once for each instance of the module: a panic's message goes to the log.
        #[wasm_bindgen::prelude::wasm_bindgen]
        pub fn log_panics() {
            $crate::object::log_panics();
        }
    };
}
