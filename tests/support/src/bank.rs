//! Accounts that send money to each other. A transfer takes money from one key, and emits a credit to another.
//!
//! Invariant: the tables show whether money was made or lost, and in which order credits arrived.

use crate::world::World;
use semel_core::message::{Headers, Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::effects::{EFFECTS_PER_REQUEST_MAX, Heard, Sending};
use semel_core::server::handler::Outgoing;
use semel_core::server::storage::sql::{Rollback, SqlError, Value};
use semel_core::server::{Context, Failure, Handler, KeyRule, Sql};
use serde_json::json;
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

/// The handler of the accounts.
#[derive(Debug, Default)]
pub struct Bank {
    /// Whether credits are refused with an outcome.
    pub refuses: Cell<bool>,
    /// Whether credits fail, without an outcome.
    pub fails: Cell<bool>,
    /// Whether credits are an unknown path.
    pub knows_no_credits: Cell<bool>,
}

impl Handler for Bank {
    const SCHEMA_VERSION: i64 = 1;
    const EMITS: bool = true;

    fn key(&self, _method: &Method, path: &Path) -> KeyRule {
        match path.segments().as_slice() {
            ["accounts", id, ..] => KeyRule::Key(format!("accounts/{id}")),
            // So that only the layer itself keeps a handler from asking for what is the layer's.
            ["semel", ..] => KeyRule::Any,
            _ => KeyRule::Unhandled,
        }
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        sql.exec("CREATE TABLE account (balance INTEGER NOT NULL) STRICT", &[])?;
        sql.exec("INSERT INTO account VALUES (0)", &[])?;
        sql.exec(
            "CREATE TABLE credits (at INTEGER PRIMARY KEY, sender TEXT NOT NULL, transfer INTEGER NOT NULL) STRICT",
            &[],
        )?;
        sql.exec("CREATE TABLE transfers (number INTEGER PRIMARY KEY, target TEXT NOT NULL) STRICT", &[]).map(|_| ())
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let amount = body["amount"].as_i64().unwrap_or_default();
        let add = |sql: &dyn Sql, amount: i64| sql.exec("UPDATE account SET balance = balance + ?1", &[amount.into()]);
        match request.path.segments().as_slice() {
            [_, _, "deposit"] => add(context.sql, amount)?,
            [_, _, "credit"] if self.knows_no_credits.get() => return Err(Failure::NotFound),
            [_, _, "credit"] => {
                if self.fails.get() {
                    return Err(Failure::Other("told to".to_owned()));
                }
                if self.refuses.get() || context.principal.as_str() != "semel:emit" {
                    return Ok(Response::json(403, "{\"error\":\"refused\"}"));
                }
                let sender = request.headers.get("semel-from").unwrap_or_default();
                let transfer = body["transfer"].as_i64().unwrap_or_default();
                context.sql.exec(
                    "INSERT INTO credits (sender, transfer) VALUES (?1, ?2)",
                    &[sender.into(), transfer.into()],
                )?;
                add(context.sql, amount)?
            }
            [_, _, "transfer"] => {
                let rows = context.sql.exec("SELECT balance FROM account", &[])?;
                let balance = rows.first().and_then(|row| row.first()).and_then(Value::as_integer).unwrap_or(0);
                if balance < amount {
                    return Ok(Response::json(409, "{\"error\":\"insufficient\"}"));
                }
                add(context.sql, -amount)?;
                for to in body["to"].as_array().map(Vec::as_slice).unwrap_or_default() {
                    let to = to.as_str().unwrap_or_default();
                    let number = context
                        .sql
                        .exec("INSERT INTO transfers (target) VALUES (?1) RETURNING number", &[to.into()])?;
                    let number = number.first().and_then(|row| row.first()).and_then(Value::as_integer);
                    let credit = json!({ "amount": amount / body["to"].as_array().map_or(1, Vec::len) as i64, "transfer": number });
                    match to.strip_prefix("call:") {
                        Some(url) => context.call(url, Outgoing::json(credit.to_string()))?,
                        None => {
                            context.emit(
                                &format!("accounts/{to}"),
                                &format!("/accounts/{to}/credit"),
                                Outgoing::json(credit.to_string()),
                            )?;
                        }
                    }
                }
                Vec::new()
            }
            // Rolls back the first effect itself, and goes on.
            [_, _, "retry"] => {
                let sql = context.sql;
                let mut credit = |amount: i64| {
                    let credit = json!({ "amount": amount, "transfer": amount });
                    context.emit("accounts/bob", "/accounts/bob/credit", Outgoing::json(credit.to_string()))
                };
                let mut tried = Ok(());
                sql.transaction(&mut || {
                    tried = credit(amount);
                    Err(Rollback)
                })?;
                tried.and_then(|()| credit(1))?;
                add(sql, -1)?
            }
            // Goes on even if the effect can't be sent.
            [_, _, "careless"] => {
                let credit = json!({ "amount": amount, "transfer": amount });
                let _ = context.emit("accounts/bob", "/accounts/bob/credit", Outgoing::json(credit.to_string()));
                add(context.sql, -amount)?
            }
            // If the first effect is too large, sends the most small ones that a request may send.
            [_, _, "smaller"] => {
                let mut credit =
                    |body: Vec<u8>| context.emit("accounts/bob", "/accounts/bob/credit", Outgoing::json(body));
                if let Err(Failure::Refused(_)) = credit(vec![b' '; amount as usize]) {
                    (0..EFFECTS_PER_REQUEST_MAX).try_for_each(|_| credit(br#"{"amount":1}"#.to_vec()))?;
                }
                add(context.sql, -(EFFECTS_PER_REQUEST_MAX as i64))?
            }
            [_, _, "odd"] => {
                let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
                let header = text("header");
                let headers =
                    if header.is_empty() { Headers::new() } else { Headers::from_iter([(header, text("value"))]) };
                let outgoing =
                    Outgoing { method: Method::new(&text("method")), headers, body: vec![b'x'; amount as usize] };
                add(context.sql, 1)?;
                match body["url"].as_str() {
                    Some(url) => context.call(url, outgoing)?,
                    None => context.emit(&text("key"), &text("path"), outgoing)?,
                }
                Vec::new()
            }
            _ => return Err(Failure::NotFound),
        };
        Ok(Response::json(200, "{}"))
    }
}

impl<H: Handler> World<H> {
    /// The effect that the host has to send now.
    pub fn send_next(&mut self) -> Option<Sending> {
        static CHANCE: AtomicI64 = AtomicI64::new(0);
        self.send_next_by(CHANCE.fetch_add(1, Ordering::Relaxed))
    }

    /// The same, with a number that was never passed before.
    pub fn send_next_by(&mut self, chance: i64) -> Option<Sending> {
        self.engine.send_next(&self.database, self.wall_ms, chance).ok().flatten()
    }

    /// Reports what became of an effect. Returns the line for the log, if there is one.
    pub fn sent(&mut self, sending: &Sending, heard: Heard) -> Option<String> {
        // If the storage has failed, the object goes on as without an answer.
        self.engine.sent(&self.database, self.wall_ms, (sending.lane, sending.token), heard).ok().flatten()
    }

    /// Whether there may be effects to send, so that the host asks again.
    pub fn has_to_send(&self) -> bool {
        self.engine.has_to_send()
    }

    /// When the object has to be woken to send effects, in case it dies before.
    pub fn wakes_to_send_at(&self) -> Option<i64> {
        self.engine.wakes_to_send_at(self.wall_ms)
    }
}

impl World<Bank> {
    /// The balance of the account.
    pub fn balance(&self) -> i64 {
        self.database.number("SELECT coalesce((SELECT balance FROM account), 0)")
    }
}
