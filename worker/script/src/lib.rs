//! Calls a handler that is written in JavaScript: `semel/worker` of the npm package.
//!
//! Invariants:
//! - The engine calls this handler inside the transaction, like any other handler, and nothing is awaited.
//! - An exception of the handler is no trap of this module: `script.js` catches each, and returns as text what went
//!   wrong.

use js_sys::{Array, Uint8Array};
use semel_worker::{
    Context, Failure, Handler, Headers, KeyRule, Method, Outgoing, Path, Request, Response, Sql, SqlError, object,
};
use wasm_bindgen::prelude::*;

semel_worker::export!(Script, Script::of);

#[wasm_bindgen(raw_module = "./script.js")]
extern "C" {
    /// The key of a request. Null: nothing handles the request. Undefined: any key will do. `[reason]`: the key can't
    /// be found.
    #[wasm_bindgen(js_name = keyOf)]
    fn key_of(method: &str, path: &str) -> JsValue;

    /// How many versions the tables of this object's class have had.
    #[wasm_bindgen(js_name = versionsOf)]
    fn versions_of(storage: &JsValue) -> f64;

    /// Brings the tables up to date, from the version `from`. Returns what went wrong, if anything did.
    fn migrate(storage: &JsValue, from: f64) -> Option<String>;

    /// Handles a request: `[status, header lines, text or bytes or undefined]`. Null: the handler does not know the
    /// path. Undefined: `store` refused something, and the handler went no further. Text: what went wrong. `store`
    /// takes an effect to be sent; if it can't be stored, it returns `[reason, whether the layer refused it]`.
    fn handle(
        storage: &JsValue,
        method: &str,
        path: &str,
        headers: &str,
        body: &Uint8Array,
        now_ms: f64,
        key: &str,
        principal: &str,
        store: &mut dyn FnMut(Array) -> Option<Array>,
    ) -> JsValue;
}

/// The handler of one object. By default the router's, which is only asked for keys.
#[derive(Default)]
pub struct Script {
    storage: JsValue,
    versions: i64,
}

impl Script {
    /// Makes the handler of the object that has this storage.
    pub fn of(storage: &JsValue) -> Self {
        Self { storage: storage.clone(), versions: versions_of(storage) as i64 }
    }
}

impl Handler for Script {
    /// The version of the router's handler, which has no tables.
    const SCHEMA_VERSION: i64 = 0;
    const EMITS: bool = true;

    fn schema_version(&self) -> i64 {
        self.versions
    }

    fn key(&self, method: &Method, path: &Path) -> KeyRule {
        let key = key_of(method.as_str(), path.with_query());
        if let Some(key) = key.as_string() {
            KeyRule::Key(key)
        } else if key.is_undefined() {
            KeyRule::Any
        } else if key.is_null() {
            KeyRule::Unhandled
        } else {
            let reason = key.unchecked_ref::<Array>().get(0).as_string().unwrap_or_default();
            object::note(&format!("the key of a request can't be told: {reason}"));
            KeyRule::Failed
        }
    }

    fn migrate(&self, _sql: &dyn Sql, from: i64) -> Result<(), SqlError> {
        migrate(&self.storage, from as f64).map_or(Ok(()), |reason| Err(SqlError(reason)))
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        let body = Uint8Array::from(request.body.as_slice());
        let (now_ms, key, principal) = (context.now_ms as f64, context.key, context.principal);
        let mut refused = None;
        let mut store = |sent: Array| {
            let (reason, is_refused) = match emit(context, &sent).err()? {
                Failure::Refused(problem) => {
                    let reason = problem.detail.clone();
                    refused = Some(problem);
                    (reason, true)
                }
                Failure::Sql(SqlError(reason)) | Failure::Other(reason) => (reason, false),
                Failure::NotFound | Failure::Remote(_) => ("it can't be sent".to_owned(), false),
            };
            Some(Array::of2(&JsValue::from_str(&reason), &JsValue::from(is_refused)))
        };
        let answer = handle(
            &self.storage,
            request.method.as_str(),
            request.path.with_query(),
            &request.headers.to_lines(),
            &body,
            now_ms,
            key.as_str(),
            principal.as_str(),
            &mut store,
        );
        if answer.is_undefined() {
            return Err(refused.map_or_else(|| Failure::Other("it has no answer".to_owned()), Failure::Refused));
        }
        if let Some(reason) = answer.as_string() {
            return Err(Failure::Other(reason));
        }
        if answer.is_null() {
            return Err(Failure::NotFound);
        }
        let answer: &Array = answer.unchecked_ref();
        Ok(Response {
            status: answer.get(0).as_f64().unwrap_or_default() as u16,
            headers: Headers::from_lines(&answer.get(1).as_string().unwrap_or_default()),
            body: bytes_of(&answer.get(2)),
        })
    }
}

/// Stores an effect: `[key or undefined, URL, method, header lines, body]`.
fn emit(context: &mut Context<'_>, sent: &Array) -> Result<(), Failure> {
    let text = |at: u32| sent.get(at).as_string().unwrap_or_default();
    let method = Method::new(&text(2));
    let outgoing = Outgoing { method, headers: Headers::from_lines(&text(3)), body: bytes_of(&sent.get(4)) };
    match sent.get(0).as_string() {
        Some(key) => context.emit(&key, &text(1), outgoing),
        None => context.call(&text(1), outgoing),
    }
}

fn bytes_of(body: &JsValue) -> Vec<u8> {
    if let Some(text) = body.as_string() {
        return text.into_bytes();
    }
    body.dyn_ref::<Uint8Array>().map(Uint8Array::to_vec).unwrap_or_default()
}
