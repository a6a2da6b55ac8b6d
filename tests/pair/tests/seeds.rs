//! A thousand runs of the pair, and the wrong twins that must be found out.

use semel_pair::{Plan, Wrong, run};
use std::collections::BTreeSet;

/// The runs of `npm test`. SEMEL_SEED runs one seed alone.
const SEEDS: u64 = 1_000;

/// What must come about in some of the runs, or they try too little.
const SOMETIMES: &[&str] = &[
    "ack: ridden",
    "acks: executed",
    "cancel: executed",
    "cancel: replayed",
    "delivered: recovered",
    "request: acknowledged",
    "request: attempt-expired",
    "request: cancelled",
    "request: executed",
    "request: key-invalid",
    "request: replayed",
    "request: unavailable",
    "row: adopted",
    "row: kept",
    "row: taken from another tab",
    "server: crashed",
    "tab: frozen",
];

fn all_hold(seeds: impl Iterator<Item = u64>) {
    let mut seen = BTreeSet::new();
    let mut count = 0;
    for seed in seeds {
        match run(Plan::of(seed)) {
            Ok(more) => seen.extend(more),
            Err(error) => panic!("{error}\nagain: SEMEL_SEED={seed} cargo test -p semel-pair"),
        }
        count += 1;
    }
    let missing: Vec<_> = SOMETIMES.iter().filter(|what| !seen.contains(**what)).collect();
    assert!(count == 1 || missing.is_empty(), "never seen: {missing:?}, but {seen:?}");
}

fn chosen(of: u64, parts: u64) -> Box<dyn Iterator<Item = u64>> {
    match std::env::var("SEMEL_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => Box::new(std::iter::once(seed)),
        None => Box::new((0..SEEDS).filter(move |seed| seed % parts == of)),
    }
}

#[test]
fn every_request_happens_once_and_every_caller_gets_its_first_outcome_even_seeds() {
    all_hold(chosen(0, 2));
}

#[test]
fn every_request_happens_once_and_every_caller_gets_its_first_outcome_odd_seeds() {
    all_hold(chosen(1, 2));
}

/// The twin is found out by some seed, and by what it does wrong.
fn is_found_out(wrong: Wrong, seeds: u64, by: &str) {
    let is_found = |seed| run(Plan::wrong(seed, wrong)).is_err_and(|error| error.contains(by));
    let found = (0..seeds).find(|&seed| is_found(seed));
    println!("{wrong:?} is found out by seed {found:?}");
    assert!(found.is_some(), "{wrong:?} was not found out in {seeds} seeds");
}

#[test]
fn without_a_tombstone_it_happens_twice() {
    is_found_out(Wrong::NoTombstone, SEEDS, "ran 2 times");
}

#[test]
fn a_tombstone_without_until_lets_it_happen_twice() {
    is_found_out(Wrong::TombstoneWithoutUntil, SEEDS, "ran 2 times");
}

#[test]
fn what_is_sent_before_it_is_persisted_is_lost() {
    is_found_out(Wrong::SendBeforePersisting, SEEDS, "never stored");
}

#[test]
fn an_effect_apart_from_its_record_happens_twice() {
    is_found_out(Wrong::EffectApart, SEEDS, "ran 2 times");
}

#[test]
fn what_is_forgotten_before_it_is_delivered_reaches_nobody() {
    is_found_out(Wrong::ForgetBeforeDelivery, SEEDS, "nobody got the answer");
}

#[test]
fn a_new_id_for_each_attempt_makes_it_happen_twice() {
    is_found_out(Wrong::NewIdPerAttempt, SEEDS, "ran 2 times");
}
