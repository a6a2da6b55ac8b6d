//! The handler of keys that send to each other: a payment at one key emits a credit to another.
//!
//! Invariant: a credit names its payment and when that was made. A payment that is made again, after its key was put back, has
//! another name.

use crate::ledger::MOOD;
use semel_core::message::{Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::handler::Outgoing;
use semel_core::server::storage::sql::SqlError;
use semel_core::server::{Context, Failure, Handler, KeyRule, Sql, Value};

/// The key that gets the credits. All tables of the model are those of the key that sends.
pub const RECEIVER: &str = "receiver";
/// The value of the header [`MOOD`] at which the handler knows no credits.
pub const KNOWS_NONE: &str = "knows none";

/// The handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Payer;

impl Handler for Payer {
    const SCHEMA_VERSION: i64 = 1;
    const EMITS: bool = true;

    fn key(&self, _method: &Method, _path: &Path) -> KeyRule {
        KeyRule::Any
    }

    fn migrate(&self, _sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        Ok(())
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        let header = |name: &str| request.headers.get(name).unwrap_or_default();
        if header(MOOD) == KNOWS_NONE {
            return Err(Failure::NotFound);
        }
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let is_payment = request.path.segments().as_slice() == ["pay"];
        let name = if is_payment { format!("{body} of {}", context.now_ms) } else { body };
        let (principal, now_ms) = (context.principal.as_str(), context.now_ms);
        let id = header("idempotency-key").replace('"', "");
        let row = [id.into(), principal.into(), name.as_str().into(), Value::Null, Value::Null, now_ms.into()];
        context.sql.exec("INSERT INTO effects", &row)?;
        if is_payment {
            context.emit(RECEIVER, "/credit", Outgoing::json(name))?;
        }
        Ok(Response::json(200, "{}"))
    }
}
