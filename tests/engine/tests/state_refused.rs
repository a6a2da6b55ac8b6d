//! A state in memory that the table may refuse, or that another type reads: requests together end as one by one.

use semel_core::message::{Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::storage::sql::SqlError;
use semel_core::server::{Config, Context, Failure, Handler, KeyRule, Sql, State, Value};
use semel_support::batches::{at, run, statuses};
use semel_support::{Call, Reply, World, post};
use serde_json::json;

/// A balance that the table doesn't let anybody overdraw.
#[derive(Clone)]
struct Balance(i64);

impl State for Balance {
    fn load(sql: &dyn Sql) -> Result<Self, SqlError> {
        number(sql, "SELECT value FROM account WHERE name = 'balance'").map(Self)
    }

    fn store(&self, sql: &dyn Sql) -> Result<(), SqlError> {
        sql.run("INSERT OR REPLACE INTO account VALUES ('balance', ?1)", &[self.0.into()]).map(|_| ())
    }
}

/// Another type of state, of the same rows.
#[derive(Clone)]
struct Total(i64);

impl State for Total {
    fn load(sql: &dyn Sql) -> Result<Self, SqlError> {
        number(sql, "SELECT sum(value) FROM account").map(Self)
    }

    fn store(&self, sql: &dyn Sql) -> Result<(), SqlError> {
        sql.run("UPDATE account SET value = ?1", &[self.0.into()]).map(|_| ())
    }
}

fn number(sql: &dyn Sql, statement: &str) -> Result<i64, SqlError> {
    let rows = sql.exec(statement, &[])?;
    Ok(rows.first().and_then(|row| row.first()).and_then(Value::as_integer).unwrap_or(0))
}

struct Account;

impl Handler for Account {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, _method: &Method, _path: &Path) -> KeyRule {
        KeyRule::Any
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        let table = "CREATE TABLE account (name TEXT PRIMARY KEY, value INTEGER NOT NULL CHECK (value >= 0)) STRICT";
        sql.exec(table, &[]).map(|_| ())
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        let by = |more: i64| {
            let Balance(value) = context.state()?;
            context.put(Balance(value + more))?;
            Ok::<_, SqlError>(value + more)
        };
        let value = match request.path.segments().as_slice() {
            ["deposit"] => by(20)?,
            ["withdraw"] => by(-15)?,
            ["deposit", "total"] => {
                by(20)?;
                context.state().map(|Total(total)| total)?
            }
            ["doubled"] => {
                let Total(total) = context.state()?;
                context.put(Total(2 * total))?;
                2 * total
            }
            _ => context.state().map(|Total(total)| total)?,
        };
        Ok(Response::json(200, value.to_string()))
    }
}

/// A key with a balance of 20.
fn world() -> World<Account> {
    let mut world = World::of(Account, Config { open: true, ..Config::default() });
    asked("/deposit", "first", &mut world);
    world
}

fn asked(path: &str, id: &str, world: &mut World<Account>) -> Reply {
    world.send(&post(path).id(id))
}

fn balance(world: &World<Account>) -> i64 {
    world.database.number("SELECT value FROM account")
}

#[test]
fn a_state_that_the_table_refuses_rolls_back_its_request_whatever_comes_after_it() {
    let withdrawals = ["a", "b"].map(|id| post("/withdraw").id(id));
    let calls: Vec<Call> = withdrawals.into_iter().chain([post("/deposit").id("c")]).collect();
    let mut world = world();
    assert!(world.group(&calls).is_none(), "each is to run by itself");
    assert_eq!(balance(&world), 20);
    let batch = run(&mut world, &json!([at("a", "/withdraw"), at("b", "/withdraw"), at("c", "/deposit")]));
    assert_eq!(statuses(&batch), ["executed", "rolled-back", "executed"]);
    assert_eq!(balance(&world), 25);
}

#[test]
fn state_types_of_the_same_rows_see_what_the_others_have_put() {
    let paths = ["/deposit", "/total", "/doubled", "/deposit", "/total", "/withdraw", "/doubled", "/total"];
    let calls: Vec<Call> = paths.iter().enumerate().map(|(n, path)| post(path).id(&n.to_string())).collect();
    let mut alone = world();
    let each: Vec<_> = calls.iter().map(|call| alone.send(call).json()).collect();
    let mut together = world();
    let all = together.group(&calls).expect("one commit");
    assert_eq!(all.iter().map(Reply::json).collect::<Vec<_>>(), each);
    assert_eq!(each.last(), Some(&json!(170)));
    assert_eq!((balance(&together), balance(&alone)), (170, 170));
    // The same within one request.
    assert_eq!(asked("/deposit/total", "both", &mut alone).json(), json!(190));
}
