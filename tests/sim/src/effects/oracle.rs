//! What must hold once all is sent: money is neither made nor lost, and each credit is there once, in the order of the commits.
//!
//! Invariants:
//! - It reads what is committed at the keys, and nothing else.
//! - What a key that was put back has forgotten to have sent is money that was made: by who has put it back, and nobody else.

use super::bank::{FIRST, key_of};
use crate::oracle::{Violation, violation};
use semel_core::server::Value;
use semel_support::Database;
use std::collections::{BTreeMap, BTreeSet};

/// What an account has to say.
#[derive(Debug)]
pub struct Account {
    balance: i64,
    /// What it has sent: the name and the target, in order.
    sent: Vec<(String, String, i64)>,
    /// What it got: the name and the sender, in order.
    got: Vec<(String, String, i64)>,
    /// What is parked, and what is known of whether it ran.
    parked: BTreeMap<String, String>,
    /// How much waits.
    pub waiting: i64,
}

impl Account {
    pub fn of(database: &Database) -> Self {
        let text = |value: &Value| value.clone().into_text().unwrap_or_default();
        let rows = |statement: &str| -> Vec<(String, String, i64)> {
            let rows = database.query(statement);
            rows.iter().map(|row| (text(&row[0]), text(&row[1]), row[2].as_integer().unwrap_or(0))).collect()
        };
        let balances = database.query("SELECT balance FROM account");
        let parked = rows("SELECT json_extract(CAST(body AS TEXT), '$.name'), executed, 0 FROM semel_effects_parked");
        Self {
            // Of an account that nobody has used there is no table.
            balance: balances.first().and_then(|row| row[0].as_integer()).unwrap_or(FIRST),
            sent: rows("SELECT name, target, amount FROM sent ORDER BY at"),
            got: rows("SELECT name, sender, amount FROM got ORDER BY at"),
            parked: parked.into_iter().map(|(name, executed, _)| (name, executed)).collect(),
            waiting: database.number("SELECT count(*) FROM semel_effects"),
        }
    }
}

/// Checks all accounts, of which the first was put back or not, and tells what came about.
pub fn check(accounts: &[Account], was_put_back: bool) -> Result<BTreeSet<String>, Violation> {
    let mut seen = BTreeSet::new();
    let mut see = |what: &str| {
        seen.insert(format!("effects: {what}"));
    };
    let mut money = accounts.len() as i64 * FIRST;
    for (from, account) in accounts.iter().enumerate() {
        let sender = format!("\"{}\"", key_of(&from.to_string()));
        let names: BTreeSet<&String> = account.sent.iter().map(|(name, ..)| name).collect();
        let mut arrived: BTreeMap<&String, usize> = BTreeMap::new();
        for (to, other) in accounts.iter().enumerate() {
            let got: Vec<_> = other.got.iter().filter(|(_, by, _)| *by == sender).collect();
            for (name, _, amount) in &got {
                *arrived.entry(name).or_default() += 1;
                if !names.contains(name) {
                    if from > 0 || !was_put_back {
                        return violation("made", format!("{to} has {name} from {from}, which has sent no such thing"));
                    }
                    see("what was sent before its key was put back is there");
                    money += amount;
                }
            }
            let in_order: Vec<_> = got.iter().map(|(name, ..)| name).filter(|name| names.contains(name)).collect();
            let sent = account.sent.iter().filter(|(_, target, _)| *target == to.to_string()).map(|(name, ..)| name);
            let sent: Vec<_> = sent.filter(|name| arrived.contains_key(name)).collect();
            if in_order != sent {
                return violation("order", format!("from {from} to {to} went {sent:?}, and came {in_order:?}"));
            }
        }
        for (name, _, amount) in &account.sent {
            let (times, parked) = (arrived.get(name).copied().unwrap_or(0), account.parked.get(name));
            match (times, parked.map(String::as_str)) {
                (1, None) => see("is credited"),
                // It was acknowledged before its key was put back, so the other one has its outcome no more.
                (0 | 1, Some("unknown")) if from == 0 && was_put_back => {
                    see("is parked, and nobody knows any more whether it ran");
                    money -= amount * (1 - times as i64);
                }
                (0, Some("no" | "yes")) => {
                    see("is parked");
                    money -= amount;
                }
                _ => {
                    return violation(
                        "once",
                        format!("{name} from {from} was credited {times} times, parked: {parked:?}"),
                    );
                }
            }
        }
    }
    let balances: i64 = accounts.iter().map(|account| account.balance).sum();
    if balances != money {
        return violation("money", format!("there is {balances}, and there should be {money}"));
    }
    Ok(seen)
}
