//! What must hold once all effects are sent: money is neither made nor lost, and each credit exists once, in the order
//! of the commits.
//!
//! Invariants:
//! - The oracle reads only what is committed at the keys, and what an administrator was told.
//! - Only the effects that an administrator named are given up, sent again or dropped.
//! - If a restored key has forgotten that it sent a credit, money was made. Only the restore may do that.

use super::administrator::Mended;
use super::bank::{FIRST, key_of};
use super::outside::Outside;
use crate::oracle::{Violation, violation};
use semel_core::server::Value;
use semel_support::Database;
use std::collections::{BTreeMap, BTreeSet};

/// What an account contains.
#[derive(Debug)]
pub struct Account {
    balance: i64,
    /// The credits that it has sent, in order: name, target and amount.
    sent: Vec<(String, String, i64)>,
    /// The credits that it got, in order: name, sender and amount.
    got: Vec<(String, String, i64)>,
    /// The credits that are parked, what is known of whether each ran, and why it is parked.
    parked: BTreeMap<String, (String, String)>,
    /// How many calls it has made, and which are parked, with the reason.
    calls: i64,
    parked_calls: BTreeMap<String, String>,
    /// How many effects wait.
    pub waiting: i64,
    /// The credits that wait behind another.
    behind: BTreeSet<String>,
    /// The credits that it had sent before it was deleted, and of these the ones that had never left.
    gone: BTreeSet<String>,
    never_left: BTreeSet<String>,
    was_deleted: bool,
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
            // An account that nobody has used has no table.
            balance: balances.first().and_then(|row| row[0].as_integer()).unwrap_or(FIRST),
            sent: rows("SELECT name, target, amount FROM sent ORDER BY at"),
            got: rows("SELECT name, sender, amount FROM got ORDER BY at"),
            parked: parked.map(|row| (text(&row[0]), (text(&row[1]), text(&row[2])))).collect(),
            calls: database.number("SELECT count(*) FROM calls"),
            parked_calls: calls.map(|row| (text(&row[0]), text(&row[1]))).collect(),
            waiting: database.number("SELECT count(*) FROM semel_effects"),
            behind: database.query(BEHIND).iter().map(|row| text(&row[0])).collect(),
            gone: BTreeSet::new(),
            never_left: BTreeSet::new(),
            was_deleted: false,
        }
    }

    /// All that it was, if it was deleted before. What it had parked and not sent yet has gone with it.
    pub fn after(self, former: Vec<Self>) -> Self {
        former.into_iter().rev().fold(self, |now, was| Self {
            balance: now.balance + was.balance - FIRST,
            gone: was.sent.iter().map(|(name, ..)| name.clone()).chain(now.gone).collect(),
            never_left: was.behind.into_iter().chain(now.never_left).collect(),
            sent: [was.sent, now.sent].concat(),
            got: [was.got, now.got].concat(),
            was_deleted: true,
            ..now
        })
    }
}

/// The credits that wait behind another: they have never left.
const BEHIND: &str = "SELECT json_extract(CAST(body AS TEXT), '$.name') FROM semel_effects AS one \
                      WHERE url LIKE '/accounts/%' AND seq > (SELECT min(seq) FROM semel_effects WHERE lane = one.lane)";

/// The reason of an effect that an administrator has given up.
const GIVEN_UP: &str = "an administrator gave it up";

/// Checks all accounts, of which the first was restored or not, and some have forgotten sessions or not. Returns what
/// happened.
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
            // Effects that were sent again went behind all that waited.
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
            if times > 0 && account.never_left.contains(name) {
                return violation(
                    "deleted",
                    format!("{name} from {from} came, which had not left when {from} was deleted"),
                );
            }
            let is_gone = account.gone.contains(name) && !mended.dropped.contains(name);
            if !is_gone && mended.dropped.contains(name) != (times == 0 && parked.is_none()) {
                let what = format!("{name} from {from} was credited {times} times, parked: {parked:?}");
                return violation("mended", format!("{what}, of what was dropped: {:?}", mended.dropped));
            }
            match (times, parked.map(|(executed, _)| executed.as_str())) {
                (0, None) if is_gone => {
                    see("is deleted with its key");
                    money -= amount;
                }
                (0, None) => money -= amount,
                (1, None) => see("is credited"),
                // It was acknowledged before its key was restored, so the other key no longer has its outcome.
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
        // Nobody knows for what a restored key has called.
        if (from > 0 || !was_put_back) && !account.was_deleted {
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

/// Whether a credit is parked for a definitive reason. An administrator gave it up, or its receiver refused it for
/// good: it refuses some amounts, a closed key has no such path, and a place that its sender has closed without having
/// time to write so is cancelled. Any other answer may pass.
fn is_for_good((executed, reason): &(String, String)) -> bool {
    let said: &[&str] = if executed == "yes" { &["answered 409"] } else { &["404 not-found", "410 cancelled"] };
    reason == GIVEN_UP || said.iter().any(|said| reason.starts_with(said))
}

/// Checks that each call has its own id, and that it is known what became of each: it arrived outside, is parked, or
/// was dropped.
fn check_calls(from: usize, account: &Account, mended: &Mended, done: &BTreeSet<&str>) -> Result<(), Violation> {
    let Account { calls, parked_calls, .. } = account;
    let is_named = |(id, reason): (&String, &String)| reason != GIVEN_UP || mended.given_up.contains(id);
    if !parked_calls.iter().all(is_named) {
        return violation("mended", format!("calls of {from} were given up that nobody has named: {parked_calls:?}"));
    }
    // Of the dropped effects, only the calls of this key count here, which have no name.
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
