//! Every mutant, and the first seed that finds it out. To renew a line: `npm run sim -- --seeds 1000 --mutant NAME`.

use semel_sim::{Mutant, Plan, be_quiet, run};

/// Name, seed, and of what kind the violation is.
const FOUND: &[(&str, u64, &str)] = &[
    ("principal", 1, "stranger"),
    ("fingerprint", 0, "outcome"),
    ("replay", 0, "twice"),
    ("fence", 0, "fence"),
    ("deadline", 1, "deadline"),
    ("cancelled", 123, "never"),
    ("tombstone", 4, "twice"),
    ("poisoned", 55, "poisoned"),
    ("crash-counted", 43, "poisoned"),
    ("start-counted", 120, "unsettled"),
    ("until", 15, "left"),
    ("seen-deadlines", 139, "left"),
    ("acknowledged-by-owner", 3, "acknowledged"),
    ("own-acknowledgement", 0, "acknowledged"),
    ("unacknowledged-stay", 0, "twice"),
    ("expired-tombstone", 0, "left"),
    ("tombstone-stays", 0, "left"),
    ("clock-forward", 38, "clock"),
    ("fence-forward", 98, "fence"),
    ("fence-durable", 0, "left"),
    ("checked-outcome", 26, "outcome"),
    ("read-undone", 0, "effects"),
    ("cancellation-judged", 5, "fence"),
    ("cancellation-recorded", 123, "never"),
    ("capacity", 6, "capacity"),
    ("raise-checked", 2, "twice"),
    ("until-raised", 15, "left"),
    ("until-told", 15, "left"),
    ("acknowledgement-answered", 4, "unacknowledged"),
    ("status-needed", 15, "unacknowledged"),
    ("no-server-error", 1, "lie"),
    ("unknown-when-paused", 114, "lie"),
    ("principal-told", 29, "principal"),
    ("no-tombstone", 0, "left"),
    ("tombstone-without-until", 15, "left"),
    ("send-before-persisting", 2, "answer"),
    ("effect-apart", 0, "effects"),
    ("forget-before-delivery", 17, "lost"),
    ("new-id-per-attempt", 1, "twice"),
];

#[test]
fn every_mutant_is_found_out_by_its_seed_and_for_what_it_does() {
    be_quiet();
    let found: Vec<_> = FOUND.iter().map(|(name, seed, _)| kind_of(name, *seed)).collect();
    // From here on a panic is this test's, and is printed.
    drop(std::panic::take_hook());
    for ((name, seed, kind), found) in FOUND.iter().zip(found) {
        assert_eq!(found, Some(*kind), "{name} by seed {seed}");
    }
}

fn kind_of(name: &str, seed: u64) -> Option<&'static str> {
    let mutant = Mutant::named(name).expect("a mutant");
    run(&Plan::of(seed), Some(mutant)).err().map(|failure| failure.kind)
}

#[test]
fn no_mutant_is_left_out_and_none_needs_more_than_a_thousand_seeds() {
    let names: Vec<&str> = FOUND.iter().map(|(name, ..)| *name).collect();
    let all: Vec<&str> = Mutant::all().map(Mutant::name).collect();
    assert_eq!(names, all);
    assert!(FOUND.iter().all(|(_, seed, _)| *seed < 1_000));
}
