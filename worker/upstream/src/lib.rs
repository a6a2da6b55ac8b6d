//! The handler of a deployment that stands in front of an HTTP API, or of another Worker: it has every request executed there.
//!
//! Invariant: it decides from the request and the routes alone, so that asked again it says the same.

mod routes;
mod template;

pub use routes::{Route, Routes};

use semel_core::message::Headers as Lines;
use semel_core::server::edge::router;
use semel_core::server::handler::Policy;
use semel_worker::{
    Context, Failure, Handler, KeyRule, Method, Path, Principal, Request, RequestId, Response, Sql, SqlError,
};
use wasm_bindgen::prelude::*;

semel_worker::export!(Upstream);

/// FNV-1a: nobody gains by two addresses, or paths, that it does not tell apart.
const HASH_PRIME: u32 = 0x0100_0193;

#[wasm_bindgen(raw_module = "./settings.js")]
extern "C" {
    /// The setting `SEMEL_UPSTREAM_ROUTES`.
    #[wasm_bindgen(js_name = routesText)]
    fn routes_text() -> Option<String>;
    /// The setting `SEMEL_UPSTREAM_TIMEOUT_SECONDS`.
    #[wasm_bindgen(js_name = timeoutSeconds)]
    fn timeout_seconds() -> f64;
    /// What stands for where all is sent, in 32 bits.
    #[wasm_bindgen(js_name = sideNumber)]
    fn side_number() -> u32;
}

/// How long an attempt waits for its turn, or for its outcome, in ms.
#[wasm_bindgen]
pub fn wait_ms(headers: &str, now_ms: f64) -> f64 {
    router::turn_wait_ms(&Lines::from_lines(headers), now_ms as i64) as f64
}

/// The handler.
pub struct Upstream {
    routes: Routes,
    /// How long a call may be under way.
    timeout_s: i64,
    /// What stands for where all is sent.
    side: u32,
    /// Why there are none, where they can't be read.
    wrong: Option<String>,
}

impl Default for Upstream {
    fn default() -> Self {
        let timeout_s = timeout_seconds().ceil() as i64;
        match routes_text().map_or_else(|| Ok(Routes::default()), |text| Routes::parse(&text)) {
            Ok(routes) => Self { routes, timeout_s, side: side_number(), wrong: None },
            Err(reason) => {
                let wrong = Some(format!("SEMEL_UPSTREAM_ROUTES: {reason}"));
                Self { routes: Routes::default(), timeout_s, side: 0, wrong }
            }
        }
    }
}

impl Handler for Upstream {
    const SCHEMA_VERSION: i64 = 0;

    fn settings(&self) -> Result<(), String> {
        self.wrong.clone().map_or(Ok(()), Err)
    }

    fn key(&self, method: &Method, path: &Path) -> KeyRule {
        self.routes.key(method, path)
    }

    fn migrate(&self, _sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        Ok(())
    }

    fn is_remote(&self, _method: &Method, _path: &Path) -> bool {
        true
    }

    fn whither(&self, request: &Request) -> i64 {
        let path = match self.routes.policy(request, self.timeout_s) {
            Policy::Probe { path, .. } => path,
            Policy::Report | Policy::Resend { .. } => String::new(),
        };
        // As settings.js goes on from one sign to the next.
        path.bytes().fold(self.side, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(HASH_PRIME)).into()
    }

    fn id(&self, principal: &Principal, request: &Request) -> Option<String> {
        self.routes.id(principal, request)
    }

    fn makes_ids(&self, method: &Method, path: &Path) -> bool {
        self.routes.makes_ids(method, path)
    }

    fn owns(&self, id: &RequestId) -> bool {
        self.routes.owns(id)
    }

    fn handle(&self, _context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        Err(Failure::Remote(self.routes.policy(request, self.timeout_s)))
    }
}
