//! The handler of the key: everything is executed elsewhere, by the policy that the path names.

use super::asked::Route;
use super::options::Times;
use semel_core::message::{Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::handler::Policy;
use semel_core::server::{Context, Failure, Handler, KeyRule, Sql, SqlError};
use std::cell::Cell;

/// The handler: everything is executed elsewhere, by the policy that the path names.
#[derive(Debug)]
pub struct Routes {
    pub(super) dedup_s: i64,
    /// As the last deployment set them.
    pub(super) times: Cell<Times>,
}

impl Handler for Routes {
    const SCHEMA_VERSION: i64 = 0;

    fn key(&self, _method: &Method, _path: &Path) -> KeyRule {
        KeyRule::Any
    }

    fn migrate(&self, _sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        Ok(())
    }

    fn is_remote(&self, _method: &Method, _path: &Path) -> bool {
        true
    }

    fn handle(&self, _context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        let segments = request.path.segments();
        let policy = match segments.as_slice() {
            ["resend", ..] => Policy::Resend { dedup_s: self.dedup_s },
            ["probe", number, ..] => {
                let times = self.times.get();
                let timeout_s = times.timeout_ms / 1000;
                Policy::Probe { path: format!("/made/{number}"), timeout_s, settle_s: times.settle_s() }
            }
            _ => Policy::Report,
        };
        Err(Failure::Remote(policy))
    }
}

/// The path of a request, which says what to do with it in doubt.
pub fn path_of(route: Route, wish: usize) -> String {
    format!("/{}/{wish}", route.name())
}
