//! Shrinking: the plan that it finds fails for the same reason, is smaller, and is the same each time.

use semel_sim::shrink::shrink;
use semel_sim::{Failure, Mutant, Plan, run, trace};

/// Mutants that are found in several ways, each with a seed that finds it.
const FOUND: [(&str, u64); 4] = [("replay", 0), ("deadline", 0), ("fence", 6), ("effect-apart", 0)];

fn failure_of(name: &str, seed: u64) -> (Plan, Option<Mutant>, Failure) {
    let (plan, mutant) = (Plan::of(seed), Mutant::named(name));
    assert!(mutant.is_some(), "{name}");
    let failure = run(&plan, mutant).expect_err("a seed that finds it out");
    (plan, mutant, failure)
}

#[test]
fn a_shrunk_plan_fails_with_the_same_kind_and_its_trace_is_not_longer() {
    let mut shorter = 0;
    for (name, seed) in FOUND {
        let (plan, mutant, failure) = failure_of(name, seed);
        let (smallest, found) = shrink(&plan, mutant, failure.clone());
        assert_eq!(found.kind, failure.kind, "{name}");
        assert_ne!(smallest, plan, "{name}: nothing smaller was found");
        let again = run(&smallest, mutant).expect_err("it fails when it is run again");
        assert_eq!((again.kind, &again.what), (found.kind, &found.what), "{name}");
        let (before, after) = (trace(&plan, mutant).len(), trace(&smallest, mutant).len());
        assert!(after <= before, "{name}: {after} lines, {before} before");
        shorter += usize::from(after < before);
    }
    assert!(shorter > 0, "nothing was left out of any of them");
}

#[test]
fn shrinking_makes_the_sessions_of_a_plan_smaller_too() {
    let all = |plan: &Plan| {
        let sessions = &plan.sessions;
        sessions.calls + sessions.batches + sessions.probes + sessions.contentions + sessions.holders
    };
    // Leaving something out changes all later random decisions, so not every smaller plan fails again.
    let smaller = [("place-gone", 117), ("fenced", 0), ("ack-of-current", 0)].into_iter().filter(|&(name, seed)| {
        let (plan, mutant, failure) = failure_of(name, seed);
        all(&shrink(&plan, mutant, failure).0) < all(&plan)
    });
    assert_ne!(smaller.count(), 0, "nothing was left out of any of them");
}

#[test]
fn shrinking_finds_the_same_plan_each_time() {
    for (name, seed) in FOUND {
        let (plan, mutant, failure) = failure_of(name, seed);
        let (first, found) = shrink(&plan, mutant, failure.clone());
        let (second, again) = shrink(&plan, mutant, failure);
        assert_eq!((&first, &found.what), (&second, &again.what), "{name}");
        assert_eq!(trace(&first, mutant), trace(&second, mutant), "{name}");
    }
}

#[test]
fn a_plan_that_can_not_be_shrunk_stays_as_it_is() {
    let (plan, mutant, failure) = failure_of(FOUND[0].0, FOUND[0].1);
    // No run fails with this kind, so no smaller plan is taken.
    let other = Failure { kind: "of no kind", ..failure };
    let (smallest, found) = shrink(&plan, mutant, other);
    assert_eq!((smallest, found.kind), (plan, "of no kind"));
}
