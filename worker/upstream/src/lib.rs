//! The handler of a deployment that stands in front of an HTTP API, or of another Worker: it has every request executed there.
//!
//! Invariant: it decides from the request and the routes alone, so that asked again it says the same.

mod routes;
mod template;

pub use routes::{Route, Routes};

use semel_core::message::Headers as Lines;
use semel_core::server::router;
use semel_worker::{
    Context, Failure, Handler, KeyRule, Method, Path, Principal, Request, Response, Sql, SqlError, object,
};
use wasm_bindgen::prelude::*;

semel_worker::export!(Upstream);

#[wasm_bindgen(raw_module = "./settings.js")]
extern "C" {
    /// The setting `SEMEL_UPSTREAM_ROUTES`.
    #[wasm_bindgen(js_name = routesText)]
    fn routes_text() -> Option<String>;
}

/// How long an attempt waits for its turn, or for its outcome, in ms.
#[wasm_bindgen]
pub fn wait_ms(headers: &str, now_ms: f64) -> f64 {
    router::turn_wait_ms(&Lines::from_lines(headers), now_ms as i64) as f64
}

/// The handler.
pub struct Upstream {
    routes: Result<Routes, String>,
}

impl Default for Upstream {
    fn default() -> Self {
        Self { routes: routes_text().map_or_else(|| Ok(Routes::default()), |text| Routes::parse(&text)) }
    }
}

impl Handler for Upstream {
    const SCHEMA_VERSION: i64 = 0;

    fn key(&self, method: &Method, path: &Path) -> KeyRule {
        match &self.routes {
            Ok(routes) => routes.key(method, path),
            Err(reason) => {
                object::note(&format!("SEMEL_UPSTREAM_ROUTES: {reason}"));
                KeyRule::Failed
            }
        }
    }

    fn migrate(&self, _sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        Ok(())
    }

    fn is_remote(&self, _method: &Method, _path: &Path) -> bool {
        true
    }

    fn id(&self, principal: &Principal, request: &Request) -> Option<String> {
        self.routes.as_ref().ok()?.id(principal, request)
    }

    fn handle(&self, _context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        match &self.routes {
            Ok(routes) => Err(Failure::Remote(routes.policy(request))),
            Err(reason) => Err(Failure::Other(format!("SEMEL_UPSTREAM_ROUTES: {reason}"))),
        }
    }
}
