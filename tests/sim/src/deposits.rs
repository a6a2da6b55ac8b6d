//! The application of the simulation: each key is an account, and each request a deposit.
//!
//! Invariants:
//! - An effect is a row with what the request's body says. So an effect that happened twice shows, whatever ids the
//!   attempts had.
//! - The answer to a deposit is the number of deposits including it, as a sequential account would count.

use semel_core::message::{Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::{Context, Failure, Handler, KeyRule, Sql, SqlError, Value};
use semel_support::Database;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The beginning of the statement that makes an effect.
pub const EFFECT: &str = "INSERT INTO effects";

/// The beginning of the statement of a handler that ends the object.
pub const END: &str = "SELECT 'the end'";

const TABLE: &str = "CREATE TABLE IF NOT EXISTS effects (number TEXT NOT NULL, id TEXT NOT NULL, principal TEXT NOT NULL, \
     at_ms INTEGER NOT NULL) STRICT";

/// Stale reads are stale if there are more deposits than this.
const STALE_FROM: i64 = 9;

/// What goes wrong in the handler after it has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trouble {
    /// Nothing.
    #[default]
    None,
    /// The handler gives up.
    Fails,
    /// A statement of the handler fails.
    BadSql,
    /// The handler answers 500.
    Answers500,
    /// The handler panics.
    Panics,
    /// The handler ends the object: it never returns, or takes all memory.
    Kills,
}

/// A database for effects that are not committed with their record.
pub struct Apart(pub Database);

impl Apart {
    /// Makes an empty one.
    pub fn new() -> Rc<Self> {
        let database = Database::in_memory();
        database.exec(TABLE, &[]).expect("a table");
        Rc::new(Self(database))
    }
}

/// The handler of a key.
#[derive(Default)]
pub struct Deposits {
    /// Where effects are written, if not in the database of the key.
    pub apart: Option<Rc<Apart>>,
    /// What goes wrong at the next call.
    pub trouble: Cell<Trouble>,
    /// What goes wrong besides, by the number of the request, and how often.
    pub troubles: RefCell<BTreeMap<String, (Trouble, u32)>>,
    /// The numbers on which it panicked.
    pub panicked: RefCell<Vec<String>>,
    /// How often the handler began to make an effect.
    pub calls: Cell<u64>,
    /// How often the handler panicked.
    pub panics: Cell<u64>,
    /// Whether reads miss the last of many deposits.
    pub is_stale: Cell<bool>,
}

impl Handler for Deposits {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, method: &Method, path: &Path) -> KeyRule {
        match path.segments().as_slice() {
            // A client that knows the key of a path does not know its key for another method.
            ["keys", key, ..] if *method == Method::Put => {
                KeyRule::Key(format!("keys/{}", key.parse::<usize>().unwrap_or_default() ^ 1))
            }
            ["keys", key, ..] => KeyRule::Key(format!("keys/{key}")),
            _ => KeyRule::Unhandled,
        }
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        sql.exec(TABLE, &[]).map(|_| ())
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        let number = String::from_utf8_lossy(&request.body).into_owned();
        if request.path.segments().last() != Some(&"deposits") {
            return Err(Failure::NotFound);
        }
        let sql = self.apart.as_ref().map_or(context.sql, |apart| &apart.0);
        if request.method.reads() {
            let count = count(sql)?;
            let count = if self.is_stale.get() && count > STALE_FROM { count - 1 } else { count };
            // A read's writes must be rolled back.
            insert(sql, context, "read", "")?;
            return Ok(Response::json(200, format!("{{\"count\":{count}}}")));
        }
        let id = name_of(request);
        self.calls.set(self.calls.get() + 1);
        insert(sql, context, &number, &id)?;
        match self.trouble_at(&number) {
            Trouble::None => {}
            Trouble::Kills => drop(sql.exec(END, &[])?),
            Trouble::Fails => return Err(Failure::Other("told to fail".to_owned())),
            Trouble::BadSql => drop(sql.exec("INSERT INTO nowhere VALUES (1)", &[])?),
            Trouble::Answers500 => return Ok(Response::json(500, String::new())),
            // Without the hook that prints a panic, because this one is intended.
            Trouble::Panics => {
                self.panics.set(self.panics.get() + 1);
                self.panicked.borrow_mut().push(number);
                std::panic::resume_unwind(Box::new("told to panic"))
            }
        }
        let (status, body) = outcome(&number, count(sql)?);
        Ok(Response::json(status, body))
    }
}

/// The answer to a deposit: status and body. `count`: the number of deposits including it. The outcome may also be an
/// error of the application.
pub fn outcome(number: &str, count: i64) -> (u16, Vec<u8>) {
    let status = if number.ends_with('7') { 409 } else { 201 };
    (status, format!("{{\"number\":\"{number}\",\"count\":{count}}}").into_bytes())
}

impl Deposits {
    /// What goes wrong now.
    fn trouble_at(&self, number: &str) -> Trouble {
        match self.troubles.borrow_mut().get_mut(number) {
            Some((trouble, times)) if *times > 0 => {
                *times -= 1;
                *trouble
            }
            _ => self.trouble.get(),
        }
    }
}

/// The id of a request, or its place in a session without the acknowledgement.
pub fn name_of(request: &Request) -> String {
    let place = request.headers.get("semel-session").and_then(|place| place.split(";ack=").next());
    request.headers.get("idempotency-key").or(place).unwrap_or_default().replace('"', "")
}

fn insert(sql: &dyn Sql, context: &Context<'_>, number: &str, id: &str) -> Result<(), SqlError> {
    let arguments = [number.into(), id.into(), context.principal.as_str().into(), context.now_ms.into()];
    sql.exec("INSERT INTO effects VALUES (?1, ?2, ?3, ?4)", &arguments).map(|_| ())
}

fn count(sql: &dyn Sql) -> Result<i64, SqlError> {
    let rows = sql.exec("SELECT count(*) FROM effects", &[])?;
    Ok(rows.first().and_then(|row| row.first()).and_then(Value::as_integer).unwrap_or(-1))
}
