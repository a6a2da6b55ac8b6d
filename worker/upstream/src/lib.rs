//! The handler of a deployment in front of an HTTP API, or of another Worker: it has every request executed there.
//!
//! Invariant: its decisions depend only on the request and the routes, so the same question gets the same answer.

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

/// The prime of FNV-1a. Nobody gains from two addresses, or paths, with the same hash.
const HASH_PRIME: u32 = 0x0100_0193;

#[wasm_bindgen(raw_module = "./settings.js")]
extern "C" {
    /// The setting `SEMEL_UPSTREAM_ROUTES`.
    #[wasm_bindgen(js_name = routesText)]
    fn routes_text() -> Option<String>;
    /// The setting `SEMEL_UPSTREAM_TIMEOUT_SECONDS`.
    #[wasm_bindgen(js_name = timeoutSeconds)]
    fn timeout_seconds() -> f64;
    /// A 32-bit number that stands for the upstream.
    #[wasm_bindgen(js_name = sideNumber)]
    fn side_number() -> u32;
}

/// How long an attempt waits for its turn or for its outcome, in ms.
#[wasm_bindgen]
pub fn wait_ms(headers: &str, now_ms: f64) -> f64 {
    router::turn_wait_ms(&Lines::from_lines(headers), now_ms as i64) as f64
}

/// The handler of an upstream.
pub struct Upstream {
    routes: Routes,
    /// How long a call may be under way, in seconds.
    timeout_s: i64,
    /// A number that stands for the upstream.
    side: u32,
    /// What is wrong with the routes; `None` if they could be read.
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
        // The same step from one character to the next as in `settings.js`.
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
