//! Accounts with a balance: `POST /accounts/{id}/deposit` and `/withdraw` with `{"amount":N}`, `GET /accounts/{id}`.
//!
//! Invariants:
//! - One account a key, one row an account.
//! - A balance is an integer from 0 to 2^53 - 1, which every JavaScript client can hold.
//! - What a client gets wrong is an outcome as well: it is recorded, and stays the answer.

use semel_worker::{
    Context, Failure, Handler, KeyRule, Method, Path, Request, Response, Row, Sql, SqlError, Value, json,
};

/// The largest integer that a JSON number carries through every client.
pub const BALANCE_MAX: i64 = (1 << 53) - 1;

/// The ledger's handler.
#[derive(Default)]
pub struct Ledger;

enum Asked<'a> {
    Deposit(&'a str),
    Withdraw(&'a str),
    Show(&'a str),
}

fn asked<'a>(method: &Method, segments: &[&'a str]) -> Option<Asked<'a>> {
    match (method, segments) {
        (Method::Post, ["accounts", id, "deposit"]) => Some(Asked::Deposit(id)),
        (Method::Post, ["accounts", id, "withdraw"]) => Some(Asked::Withdraw(id)),
        (Method::Get | Method::Head, ["accounts", id]) => Some(Asked::Show(id)),
        _ => None,
    }
}

impl Handler for Ledger {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, method: &Method, path: &Path) -> KeyRule {
        match asked(method, &path.segments()) {
            Some(Asked::Deposit(id) | Asked::Withdraw(id) | Asked::Show(id)) => KeyRule::Key(format!("accounts/{id}")),
            None => KeyRule::Unhandled,
        }
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        sql.exec(
            "CREATE TABLE account (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), balance INTEGER NOT NULL, entries INTEGER NOT NULL) STRICT",
            &[],
        )
        .map(|_| ())
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        let segments = request.path.segments();
        let asked = asked(&request.method, &segments).ok_or(Failure::NotFound)?;
        let id = match asked {
            Asked::Show(id) => {
                let (balance, entries) = held(&context.sql.exec("SELECT balance, entries FROM account", &[])?);
                return Ok(account(id, balance, entries));
            }
            Asked::Deposit(id) | Asked::Withdraw(id) => id,
        };
        // Fractions and exponents are no integers.
        let amount = json::read::Members::parse(&request.body).and_then(|mut movement| movement.required("amount"));
        let amount = match amount {
            Ok(amount) if (1..=BALANCE_MAX).contains(&amount) => amount,
            _ => return Ok(refused(400, "invalid-amount")),
        };
        let (statement, limit, otherwise) = match asked {
            Asked::Withdraw(_) => (WITHDRAW, amount, (409, "insufficient-funds")),
            _ => (DEPOSIT, BALANCE_MAX - amount, (400, "balance-too-large")),
        };
        let rows = context.sql.exec(statement, &[amount.into(), limit.into()])?;
        if rows.is_empty() {
            let (status, error) = otherwise;
            return Ok(refused(status, error));
        }
        let (balance, entries) = held(&rows);
        Ok(account(id, balance, entries))
    }
}

/// Each looks, and changes only what it may: no row, where the balance is past the limit.
const DEPOSIT: &str = "INSERT INTO account VALUES (1, ?1, 1) ON CONFLICT DO UPDATE \
     SET balance = balance + ?1, entries = entries + 1 WHERE balance <= ?2 RETURNING balance, entries";
const WITHDRAW: &str =
    "UPDATE account SET balance = balance - ?1, entries = entries + 1 WHERE balance >= ?2 RETURNING balance, entries";

/// Balance and entries; nothing, where there is no account yet.
fn held(rows: &[Row]) -> (i64, i64) {
    let value = |column: usize| rows.first().and_then(|row| row.get(column)).and_then(Value::as_integer).unwrap_or(0);
    (value(0), value(1))
}

fn account(id: &str, balance: i64, entries: i64) -> Response {
    let body = json::write::Object::default().with("id", id).with("balance", balance).with("entries", entries);
    Response::json(200, body.end())
}

fn refused(status: u16, error: &str) -> Response {
    Response::json(status, json::write::Object::default().with("error", error).end())
}
