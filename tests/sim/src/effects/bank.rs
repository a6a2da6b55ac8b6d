//! The handler: a transfer takes money from one account, and emits credits to others. Some transfers call an address
//! outside, all with the same request.
//!
//! Invariant: a credit names its transfer, and when that was made. If a transfer is made anew after its account was
//! restored, its credit is another.

use super::outside::url_of;
use semel_core::message::{Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::handler::Outgoing;
use semel_core::server::{Context, Failure, Handler, KeyRule, Sql, SqlError};
use serde_json::{Value, json};
use std::cell::Cell;

/// The first balance of each account.
pub const FIRST: i64 = 1_000_000;
/// One in so many transfers is refused with an outcome.
const REFUSED: i64 = 9;
/// One in so many transfers makes a call.
const CALLS: i64 = 3;

const TABLES: [&str; 5] = [
    "CREATE TABLE account (balance INTEGER NOT NULL) STRICT",
    "INSERT INTO account VALUES (1000000)",
    "CREATE TABLE sent (at INTEGER PRIMARY KEY, name TEXT NOT NULL, target TEXT NOT NULL, amount INTEGER NOT NULL) STRICT",
    "CREATE TABLE got (at INTEGER PRIMARY KEY, name TEXT NOT NULL, sender TEXT NOT NULL, amount INTEGER NOT NULL) STRICT",
    "CREATE TABLE calls (at INTEGER PRIMARY KEY, number INTEGER NOT NULL) STRICT",
];

/// The handler of a key.
#[derive(Debug, Default)]
pub struct Accounts {
    /// Whether credits are an unknown path for now.
    pub is_closed: Cell<bool>,
}

impl Handler for Accounts {
    const SCHEMA_VERSION: i64 = 1;
    const EMITS: bool = true;

    fn key(&self, _method: &Method, path: &Path) -> KeyRule {
        match path.segments().as_slice() {
            ["accounts", account, ..] => KeyRule::Key(key_of(account)),
            _ => KeyRule::Unhandled,
        }
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        TABLES.iter().try_for_each(|statement| sql.exec(statement, &[]).map(|_| ()))
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let add = |sql: &dyn Sql, amount: i64| sql.exec("UPDATE account SET balance = balance + ?1", &[amount.into()]);
        match request.path.segments().as_slice() {
            [_, account, "transfer"] => {
                let targets: Vec<&str> =
                    body["to"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                for (part, to) in targets.into_iter().enumerate() {
                    let number = body["number"].as_i64().unwrap_or_default();
                    let (name, amount) = (format!("{number}.{part} of {}", context.now_ms), number + 1);
                    let row = [name.as_str().into(), to.into(), amount.into()];
                    context.sql.exec("INSERT INTO sent (name, target, amount) VALUES (?1, ?2, ?3)", &row)?;
                    add(context.sql, -amount)?;
                    let credit = json!({ "name": name, "amount": amount, "number": number }).to_string();
                    context.emit(&key_of(to), &format!("/accounts/{to}/credit"), Outgoing::json(credit))?;
                }
                let number = body["number"].as_i64().unwrap_or_default();
                if number % CALLS == 0 {
                    context.sql.exec("INSERT INTO calls (number) VALUES (?1)", &[number.into()])?;
                    context.call(&url_of(account), Outgoing::json("{}"))?;
                }
            }
            [_, _, "credit"] if self.is_closed.get() => return Err(Failure::NotFound),
            [_, _, "credit"] => {
                let number = body["number"].as_i64().unwrap_or_default();
                if number % REFUSED == REFUSED - 1 {
                    return Ok(Response::json(409, "{}"));
                }
                let (name, amount) = (body["name"].as_str().unwrap_or_default(), body["amount"].as_i64().unwrap_or(0));
                let sender = request.headers.get("semel-from").unwrap_or_default();
                let row = [name.into(), sender.into(), amount.into()];
                context.sql.exec("INSERT INTO got (name, sender, amount) VALUES (?1, ?2, ?3)", &row)?;
                add(context.sql, amount)?;
            }
            _ => return Err(Failure::NotFound),
        }
        Ok(Response::json(200, "{}"))
    }
}

/// The key of an account.
pub fn key_of(account: &str) -> String {
    format!("accounts/{account}")
}
