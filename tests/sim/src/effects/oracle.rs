//! What must hold once all is sent: money is neither made nor lost, and each credit is there once, in the order of the commits.
//!
//! Invariants:
//! - It reads what is committed at the keys, and what an administrator was told, and nothing else.
//! - Nobody but who was named is given up, sent again or dropped.
//! - What a key that was put back has forgotten to have sent is money that was made: by who has put it back, and nobody else.

use super::administrator::Mended;
use super::bank::{FIRST, key_of};
use super::outside::Outside;
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
    /// What is parked, what is known of whether it ran, and why it is.
    parked: BTreeMap<String, (String, String)>,
    /// How many calls it has made, and which are parked, and why.
    calls: i64,
    parked_calls: BTreeMap<String, String>,
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
        let parked = "SELECT json_extract(CAST(body AS TEXT), '$.name'), executed, reason FROM semel_effects_parked WHERE target LIKE 'key %'";
        let parked = database.query(parked).into_iter();
        let calls = "SELECT id, reason FROM semel_effects_parked WHERE target NOT LIKE 'key %'";
        let calls = database.query(calls).into_iter();
        Self {
            // Of an account that nobody has used there is no table.
            balance: balances.first().and_then(|row| row[0].as_integer()).unwrap_or(FIRST),
            sent: rows("SELECT name, target, amount FROM sent ORDER BY at"),
            got: rows("SELECT name, sender, amount FROM got ORDER BY at"),
            parked: parked.map(|row| (text(&row[0]), (text(&row[1]), text(&row[2])))).collect(),
            calls: database.number("SELECT count(*) FROM calls"),
            parked_calls: calls.map(|row| (text(&row[0]), text(&row[1]))).collect(),
            waiting: database.number("SELECT count(*) FROM semel_effects"),
        }
    }
}

/// Why something is parked that an administrator has given up.
const GIVEN_UP: &str = "an administrator gave it up";

/// Checks all accounts, of which the first was put back or not, and some have forgotten sessions or not, and tells what came about.
pub fn check(
    accounts: &[Account],
    (was_put_back, has_forgotten): (bool, bool),
    mended: &Mended,
    outside: &Outside,
) -> Result<BTreeSet<String>, Violation> {
    let mut seen = BTreeSet::new();
    let mut see = |what: &str| {
        seen.insert(format!("effects: {what}"));
    };
    let mut money = accounts.len() as i64 * FIRST;
    let mut impatient = None;
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
            // What was sent again went behind all that waited.
            let is_in_order = |name: &&String| names.contains(name) && !mended.again.contains(*name);
            let in_order: Vec<_> = got.iter().map(|(name, ..)| name).filter(is_in_order).collect();
            let sent = account.sent.iter().filter(|(_, target, _)| *target == to.to_string()).map(|(name, ..)| name);
            let sent: Vec<_> = sent.filter(|name| arrived.contains_key(name)).filter(is_in_order).collect();
            if in_order != sent {
                return violation("order", format!("from {from} to {to} went {sent:?}, and came {in_order:?}"));
            }
        }
        for (name, _, amount) in &account.sent {
            let (times, parked) = (arrived.get(name).copied().unwrap_or(0), account.parked.get(name));
            if parked.is_some_and(|(_, reason)| reason == GIVEN_UP) && !mended.given_up.contains(name) {
                return violation("mended", format!("{name} from {from} was given up, and nobody has named it"));
            }
            if mended.dropped.contains(name) != (times == 0 && parked.is_none()) {
                let what = format!("{name} from {from} was credited {times} times, parked: {parked:?}");
                return violation("mended", format!("{what}, of what was dropped: {:?}", mended.dropped));
            }
            match (times, parked.map(|(executed, _)| executed.as_str())) {
                (0, None) => money -= amount,
                (1, None) => see("is credited"),
                // It was acknowledged before its key was put back, so the other one has its outcome no more.
                (0 | 1, Some("unknown")) if from == 0 && was_put_back => {
                    see("is parked, and nobody knows any more whether it ran");
                    money -= amount * (1 - times as i64);
                }
                (0 | 1, Some("unknown")) if has_forgotten => {
                    see("is parked, and may have run in a session that was forgotten");
                    money -= amount * (1 - times as i64);
                }
                (0, Some("no" | "yes")) => {
                    impatient = impatient.or(parked.filter(|why| !is_for_good(why)).map(|why| (name, why)));
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
    for (from, account) in accounts.iter().enumerate() {
        // What a key that was put back has called for is known to nobody.
        if from > 0 || !was_put_back {
            check_calls(from, account, mended, &outside.done_of(&from.to_string()))?;
            if account.calls > 0 {
                see("calls outside");
            }
        }
    }
    let balances: i64 = accounts.iter().map(|account| account.balance).sum();
    if balances != money {
        return violation("money", format!("there is {balances}, and there should be {money}"));
    }
    if let Some((name, (executed, reason))) = impatient {
        return violation("patience", format!("{name} is parked, {executed}: {reason}"));
    }
    Ok(seen)
}

/// Whether a credit is parked for what its receiver says for good, or an administrator: it refuses some amounts, a key that is closed has no such path, and a
/// place that its sender has closed, and has not had time to write so, is cancelled. Whatever else it says may pass.
fn is_for_good((executed, reason): &(String, String)) -> bool {
    let said: &[&str] = if executed == "yes" { &["answered 409"] } else { &["404 not-found", "410 cancelled"] };
    reason == GIVEN_UP || said.iter().any(|said| reason.starts_with(said))
}

/// Each call has an id of its own, and whatever has become of it is known: it was had outside, is parked, or was dropped.
fn check_calls(from: usize, account: &Account, mended: &Mended, done: &BTreeSet<&str>) -> Result<(), Violation> {
    let Account { calls, parked_calls, .. } = account;
    let is_named = |(id, reason): (&String, &String)| reason != GIVEN_UP || mended.given_up.contains(id);
    if !parked_calls.iter().all(is_named) {
        return violation("mended", format!("calls of {from} were given up that nobody has named: {parked_calls:?}"));
    }
    // Of what an administrator has dropped only that is a call of this key's which has no name.
    let dropped: Vec<&str> =
        mended.dropped_calls.iter().filter(|(by, _)| *by == from).map(|(_, id)| id.as_str()).collect();
    if let Some(id) = dropped.iter().find(|id| parked_calls.contains_key(**id)) {
        return violation("mended", format!("{id} of {from} was dropped, and is there"));
    }
    let known: BTreeSet<&str> =
        done.iter().copied().chain(parked_calls.keys().map(String::as_str)).chain(dropped).collect();
    if known.len() as i64 != *calls {
        return violation("calls", format!("{from} has made {calls} calls, and of these is known: {known:?}"));
    }
    Ok(())
}
