//! Runs Semel's engine in Cloudflare Workers and Durable Objects.
//!
//! An application implements [`Handler`] and names it in one line, `semel_worker::export!(Handler)`. That line makes
//! the classes that `router.js` and `host.js` call: a router for the Worker and an engine for each key's object.
//!
//! Invariants:
//! - Every call from JavaScript is synchronous, from the request's bytes to the answer's. There is no executor, and no
//!   promise that a panic could leave unsettled. A panic is an exception, which `host.js` catches, answers and counts.
//! - The boundary is narrow: all headers cross it as one string, and each SQL statement is one call.
//!
//! The calls to the object are in [`object`] and [`batch`], those to the registry in [`registry`], those to the router
//! in [`router`].

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

/// Makes a handler that does not depend on the object.
pub fn by_default<H: Default>(_storage: &wasm_bindgen::JsValue) -> H {
    H::default()
}

/// Makes the classes that `router.js` and `host.js` use. The handler must implement `Default`; the router asks that
/// handler for keys. If the handler differs from object to object, `$of` makes it from the object's storage.
#[macro_export]
macro_rules! export {
    ($handler:ty) => {
        $crate::export!($handler, $crate::by_default);
    };
    ($handler:ty, $of:expr) => {
        /// The Worker's router: decides where a request goes.
        #[wasm_bindgen::prelude::wasm_bindgen]
        pub struct SemelRouter($crate::router::Router<$handler>);

        #[wasm_bindgen::prelude::wasm_bindgen]
        impl SemelRouter {
            /// Makes a router. `settings`: each setting of the deployment as `NAME=value` and a NUL. `rates`: the
            /// host's table in which the router counts.
            #[wasm_bindgen(constructor)]
            pub fn new(settings: &str, rates: wasm_bindgen::JsValue) -> Result<Self, wasm_bindgen::JsValue> {
                $crate::router::Router::new(<$handler>::default(), settings, rates).map(Self)
            }

            /// Routes a request by its method, path, query and headers.
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

            /// Routes a message of a queue. `cancels`: whether it cancels an earlier message.
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

            /// Merges the pages of all shards of the registry into one list.
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

            /// The answer if an object can't be reached, or does not answer in time. `reason` goes to the log.
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

            /// Authenticates the first frame of a socket.
            pub fn admit(&mut self, text: &str, key: &str, now_ms: f64) -> $crate::js_sys::Array {
                self.0.admit(text, key, now_ms)
            }

            /// The signature that has to be checked now; undefined if there is none. Each is returned only once.
            pub fn signature_wanted(&mut self) -> Option<$crate::js_sys::Array> {
                self.0.signature_wanted()
            }

            /// Reports whether that signature is right; undefined if its key can't be used.
            pub fn signature_checked(&mut self, token: &[u8], is_right: Option<bool>) {
                self.0.signature_checked(token, is_right);
            }

            /// The URL from which the JWK set has to be fetched now; undefined if no fetch is due. It is returned only
            /// once.
            pub fn keys_wanted(&mut self) -> Option<String> {
                self.0.keys_wanted()
            }

            /// Takes over the JWK set that an earlier instance fetched, if any, and the instant at which the last fetch
            /// began.
            pub fn keys_kept(&mut self, text: Option<String>, fetched_ms: f64, started_ms: f64) {
                self.0.keys_kept(text, fetched_ms, started_ms);
            }

            /// Reports a fetch of the JWK set: its text, or undefined. Returns what is wrong with it, for the log.
            pub fn keys_fetched(&mut self, text: Option<String>, now_ms: f64) -> Option<String> {
                self.0.keys_fetched(text, now_ms)
            }
        }

        /// The engine of a key, as the key's Durable Object calls it.
        #[wasm_bindgen::prelude::wasm_bindgen]
        pub struct SemelEngine($crate::object::Object<$handler>);

        #[wasm_bindgen::prelude::wasm_bindgen]
        impl SemelEngine {
            /// Makes an engine over an object's storage. `under_way`: the id of the request that is under way to the
            /// upstream, if there is one.
            #[wasm_bindgen(constructor)]
            pub fn new(
                storage: wasm_bindgen::JsValue,
                settings: &str,
                under_way: Option<String>,
            ) -> Result<Self, wasm_bindgen::JsValue> {
                $crate::object::Object::new($of(&storage), storage, settings, under_way).map(Self)
            }

            /// Answers an attempt. `body` is undefined if it was too large to read.
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

            /// Answers several attempts in the order of their arrival; undefined if each has to be handled by itself.
            pub fn group(&mut self, heads: &str, bodies: &[u8], numbers: &[f64]) -> Option<$crate::js_sys::Array> {
                self.0.group(heads, bodies, numbers)
            }

            /// Counts the start of a suspect, which then runs by `handle`, unless the answer is `unavailable`.
            /// `is_counted`: this was done before and is durable; it is said again, in case the module crashed
            /// meanwhile and forgot it.
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

            /// Answers an attempt on which the handler crashed, without running the handler again.
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

            /// Answers an attempt for which `call` was sent and has ended.
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

            /// The call that has to be sent before the last attempt has an answer; undefined if there is none. It is
            /// returned only once.
            pub fn take_call(&mut self) -> Option<$crate::js_sys::Array> {
                self.0.take_call()
            }

            /// Says that this request is still under way, because what came of it could not be recorded, and will be
            /// given again. `id`: as `take_call` returned it.
            pub fn know_under_way(&mut self, id: String) {
                self.0.know_under_way(id)
            }

            /// Answers a batch, as `handle` answers a request. Without headers, answers a frame of a socket: `[text]`,
            /// or `[close code, reason]`. Undefined if each request has to run by itself. `is_alone`: they do so, and
            /// this call does the rest.
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

            /// Handles one request of a batch with this deadline, in up to four calls:
            /// - With `started_ms`: counts the start if the request is a suspect. Undefined if it is not; `[]` if it
            ///   may run now; else the answer, since the start could not be counted.
            /// - With `started_ms` and `is_again`: says that the counted start is durable.
            /// - Without: runs the request. Returns `[text, room that is left]`. `is_next`: it is not the first of the
            ///   batch.
            /// - Without, but `is_again`: counts that it crashed, and returns the same.
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

            /// Whether there may be effects to send.
            pub fn has_to_send(&self) -> bool {
                self.0.has_to_send()
            }

            /// When the object has to be awake to send effects, in case it dies before; undefined if none is known to
            /// wait.
            pub fn wakes_to_send_at(&self, now_ms: f64) -> Option<f64> {
                self.0.wakes_to_send_at(now_ms)
            }

            /// The next effect to send: `[lane, token, key or undefined, method, URL, header lines, body]`; undefined
            /// if none is due. `chance`: a whole number that was never passed before.
            pub fn send_next(
                &mut self,
                now_ms: f64,
                chance: f64,
            ) -> Result<Option<$crate::js_sys::Array>, wasm_bindgen::JsValue> {
                self.0.send_next(now_ms, chance)
            }

            /// Reports what became of an effect that was sent.
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

            /// Looks at a page of what is stored. Returns whether there is more to look at before anything can be
            /// answered.
            pub fn open(&mut self, now_ms: f64) -> Result<bool, wasm_bindgen::JsValue> {
                self.0.open(now_ms)
            }

            /// When the object has to be awake next; undefined if it need not wake by itself.
            pub fn wakes_at(&self, has_registry: bool) -> Option<f64> {
                self.0.wakes_at(has_registry)
            }

            /// Reports that the object's alarm woke it.
            pub fn woken(&mut self, now_ms: f64) {
                self.0.woken(now_ms);
            }

            /// Sweeps a page. Returns whether another page has to be swept now.
            pub fn sweep_page(&mut self, now_ms: f64) -> Result<bool, wasm_bindgen::JsValue> {
                self.0.sweep_page(now_ms)
            }

            /// `[shard, report]` for the registry; undefined if there is nothing to report.
            pub fn report(
                &mut self,
                bytes: f64,
                now_ms: f64,
            ) -> Result<Option<$crate::js_sys::Array>, wasm_bindgen::JsValue> {
                self.0.report(bytes, now_ms)
            }

            /// Takes the registry's answer to a report; undefined if the registry did not list the key as reported.
            pub fn reported(
                &mut self,
                report: &$crate::js_sys::Array,
                before_s: Option<f64>,
                now_ms: f64,
            ) -> Result<(), wasm_bindgen::JsValue> {
                self.0.reported(report, before_s, now_ms)
            }

            /// Removes the name of a deleted key. For a deployment without a registry.
            pub fn drop_name(&mut self, now_ms: f64) -> Result<(), wasm_bindgen::JsValue> {
                self.0.drop_name(now_ms)
            }

            /// Forgets the requests that were first sent before an instant, in Unix seconds.
            pub fn forget(&mut self, before_s: f64, now_ms: f64) -> Result<(), wasm_bindgen::JsValue> {
                self.0.forget(before_s, now_ms)
            }

            /// The hash that stands for the key in the log; undefined if it is not known.
            pub fn key_hash(&self) -> Option<String> {
                self.0.key_hash()
            }

            /// `[records, tombstones]` of the key; undefined if its storage can't be read.
            pub fn count(&mut self, now_ms: f64) -> Option<$crate::js_sys::Array> {
                self.0.count(now_ms)
            }
        }

        /// How long after its start an object is young, in ms. After that, only requests of sessions can be suspects.
        #[wasm_bindgen::prelude::wasm_bindgen]
        pub fn young_ms() -> f64 {
            $crate::object::YOUNG_MS
        }

        /// The answer if the settings can't be read.
        #[wasm_bindgen::prelude::wasm_bindgen]
        pub fn unset(settings: &str, headers: &str, now_ms: f64) -> $crate::js_sys::Array {
            $crate::router::unset(settings, headers, now_ms)
        }

        /// Makes panics write their message to the log. To be called once for each instance of the module.
        #[wasm_bindgen::prelude::wasm_bindgen]
        pub fn log_panics() {
            $crate::object::log_panics();
        }
    };
}
