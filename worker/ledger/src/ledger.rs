//! The ledger's handler: accounts with a balance. It takes `POST /accounts/{id}/deposit` and `/withdraw` with
//! `{"amount":N}`, and `GET /accounts/{id}`.
//!
//! Invariants:
//! - Each key has one account, and each account one row.
//! - A balance is an integer from 0 to 2^53 - 1, which every JavaScript client can represent.
//! - A client's mistake is an outcome as well: it is recorded, and stays the answer.

use semel_worker::{
    Context, Failure, Handler, KeyRule, Method, Path, Request, Response, Sql, SqlError, State, Value, json,
};

/// The largest integer that every client reads exactly from a JSON number.
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
    const STATES_ONLY: bool = true;

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
            Asked::Show(id) => return Ok(account(id, context.state()?)),
            Asked::Deposit(id) | Asked::Withdraw(id) => id,
        };
        // Numbers with a fraction or an exponent are refused: they are no integers.
        let amount = json::read::Members::parse(&request.body).and_then(|mut movement| movement.required("amount"));
        let amount = match amount {
            Ok(amount) if (1..=BALANCE_MAX).contains(&amount) => amount,
            _ => return Ok(refused(400, "invalid-amount")),
        };
        let Account { balance, entries } = context.state()?;
        let balance = match asked {
            Asked::Withdraw(_) if amount > balance => return Ok(refused(409, "insufficient-funds")),
            Asked::Withdraw(_) => balance - amount,
            _ if amount > BALANCE_MAX - balance => return Ok(refused(400, "balance-too-large")),
            _ => balance + amount,
        };
        let after = Account { balance, entries: entries + 1 };
        context.put(after)?;
        Ok(account(id, after))
    }
}

#[derive(Clone, Copy)]
struct Account {
    balance: i64,
    entries: i64,
}

impl State for Account {
    // The handler never makes a balance that could not be stored.
    const IS_KEPT: bool = true;

    fn load(sql: &dyn Sql) -> Result<Self, SqlError> {
        let rows = sql.exec("SELECT balance, entries FROM account", &[])?;
        // 0 if there is no account yet.
        let value =
            |column: usize| rows.first().and_then(|row| row.get(column)).and_then(Value::as_integer).unwrap_or(0);
        Ok(Self { balance: value(0), entries: value(1) })
    }

    fn store(&self, sql: &dyn Sql) -> Result<(), SqlError> {
        let statement = "INSERT OR REPLACE INTO account VALUES (1, ?1, ?2)";
        sql.run(statement, &[self.balance.into(), self.entries.into()]).map(|_| ())
    }
}

fn account(id: &str, Account { balance, entries }: Account) -> Response {
    let body = json::write::Object::default().with("id", id).with("balance", balance).with("entries", entries);
    Response::json(200, body.end())
}

fn refused(status: u16, error: &str) -> Response {
    Response::json(status, json::write::Object::default().with("error", error).end())
}
