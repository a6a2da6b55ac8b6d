//! Every mutant, and the first seed that finds it out. To renew a line: `npm run sim -- --seeds 1000 --mutant NAME`.

use semel_sim::{Mutant, Plan, be_quiet, run};

/// Name, seed, and of what kind the violation is.
const FOUND: &[(&str, u64, &str)] = &[
    ("principal", 1, "stranger"),
    ("fingerprint", 1, "outcome"),
    ("replay", 0, "twice"),
    ("fence", 6, "fence"),
    ("deadline", 0, "deadline"),
    ("cancelled", 9, "never"),
    ("tombstone", 1, "lie"),
    ("poisoned", 43, "lie"),
    ("crash-counted", 43, "poisoned"),
    ("start-counted", 102, "unsettled"),
    ("until", 1, "left"),
    ("seen-deadlines", 198, "left"),
    ("acknowledged-by-owner", 8, "acknowledged"),
    ("own-acknowledgement", 1, "acknowledged"),
    ("unacknowledged-stay", 0, "twice"),
    ("expired-tombstone", 15, "left"),
    ("tombstone-stays", 0, "left"),
    ("clock-forward", 23, "clock"),
    ("fence-forward", 294, "fence"),
    ("fence-durable", 6, "fence"),
    ("checked-outcome", 57, "outcome"),
    ("read-undone", 0, "effects"),
    ("cancellation-judged", 35, "fence"),
    ("cancellation-recorded", 9, "never"),
    ("capacity", 6, "capacity"),
    ("raise-checked", 3, "left"),
    ("until-raised", 4, "left"),
    ("until-told", 4, "left"),
    ("acknowledgement-answered", 0, "unacknowledged"),
    ("status-needed", 1, "unacknowledged"),
    ("no-server-error", 1, "unacknowledged"),
    ("unknown-when-paused", 46, "lie"),
    ("principal-told", 46, "answer"),
    ("no-tombstone", 0, "left"),
    ("tombstone-without-until", 4, "left"),
    ("send-before-persisting", 3, "answer"),
    ("effect-apart", 0, "effects"),
    ("forget-before-delivery", 8, "lost"),
    ("new-id-per-attempt", 0, "twice"),
    ("expired-early", 3, "left"),
    ("shortest-retention", 17, "fence"),
    ("full-early", 17, "capacity"),
    ("stale-reads", 0, "history"),
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
