//! What refuses a lie refuses that one: the words of it say which, and each is reached.
//!
//! To renew a line: `npm run sim -- --seeds 1000 --mutant NAME`.

use semel_sim::{Mutant, Plan, be_quiet, run};

/// Name, seed, of what kind the violation is, and what it says.
const REFUSED: &[(&str, u64, &str, &[&str])] = &[
    ("sent-before-durable", 55, "unrecorded", &["and what is committed of it is"]),
    ("elsewhere-never", 11, "again", &["of which it was said that it will not"]),
    ("doubt-holds", 1, "again", &["by report, leaves once more"]),
    ("resend-ends", 11, "again", &["by resend, leaves once more"]),
    ("probe-settles", 1, "again", &["by probe, leaves once more"]),
    ("service-forgets", 12, "twice", &["was made twice"]),
    ("elsewhere-no", 9, "lie", &["of which it was said that it did not run"]),
    ("elsewhere-never", 9, "lie", &["of which it was said that it did not run"]),
    ("service-refuses", 117, "outcome", &["which has an outcome"]),
    ("answer-lost", 1, "outcome", &["what came of it was not recorded"]),
    ("elsewhere-made", 1, "answer", &["Request of ", "InDoubt then"]),
    ("elsewhere-made", 18, "answer", &["Request of ", "None then"]),
    ("elsewhere-no-outcome", 1, "answer", &["Request of ", "Executed then"]),
    ("elsewhere-look-up-made", 32, "answer", &["LookUp of ", "InDoubt then"]),
    ("elsewhere-look-up-made", 28, "answer", &["LookUp of ", "Gone then"]),
    ("elsewhere-look-up-made", 1, "answer", &["LookUp of ", "Cancelled then"]),
    ("elsewhere-look-up-made", 11, "answer", &["LookUp of ", "None then"]),
    ("elsewhere-look-up-unseen", 15, "answer", &["LookUp of ", "Executed then"]),
    ("elsewhere-look-up-not-cancelled", 1, "answer", &["LookUp of ", "Cancelled then"]),
    ("elsewhere-cancelled", 36, "answer", &["Cancel of ", "InDoubt then"]),
    ("elsewhere-resolved", 1, "answer", &["Resolve(true) of ", "None then"]),
    ("elsewhere-resolved", 31, "answer", &["Resolve(true) of ", "Executed then"]),
    ("elsewhere-resolved", 11, "answer", &["Resolve(false) of "]),
    ("elsewhere-record-deleted", 415, "answer", &["DeleteRecord of "]),
    ("elsewhere-key-deleted", 840, "answer", &["DeleteKey of "]),
    ("elsewhere-given-up", 10, "answer", &["it is given up", "Report"]),
    ("elsewhere-given-up", 9, "answer", &["it is given up", "Resend"]),
    ("elsewhere-given-up", 1, "answer", &["it is given up", "Probe"]),
    ("elsewhere-look-up-given-up", 62, "answer", &["it is given up", "LookUp of ", "InDoubt then"]),
    ("elsewhere-cancel-given-up", 1, "answer", &["it is given up", "Cancel of ", "Executed then"]),
    ("elsewhere-cancel-given-up", 605, "answer", &["it is given up", "Cancel of ", "Cancelled then"]),
    ("elsewhere-look-up-hopes", 32, "answer", &["it was given up: LookUp of "]),
    (
        "look-up-counts",
        1,
        "again",
        &["went from Some(Row { state: InDoubt", "to Some(Row { state: InDoubt", "by LookUp"],
    ),
    (
        "look-up-writes",
        1,
        "outcome",
        &["went from Some(Row { state: Executed", "to Some(Row { state: Executed", "by LookUp"],
    ),
    ("elsewhere-stranger-told", 1, "stranger", &["somebody else was told"]),
    ("elsewhere-read", 1, "read", &["a read was told"]),
    ("elsewhere-other-outcome", 1, "outcome", &["attempt ", "was told"]),
    ("elsewhere-yes", 1, "lie", &["attempt ", "was told"]),
    ("elsewhere-never", 12, "lie", &["attempt ", "was told"]),
    ("elsewhere-no", 12, "lie", &["attempt ", "was told unavailable"]),
    ("elsewhere-cancel-other-outcome", 1, "outcome", &["who cancelled"]),
    ("elsewhere-cancel-replayed", 965, "lie", &["was cancelled, and ran"]),
    ("resolved-otherwise", 9, "outcome", &["has the outcome"]),
    ("turn-kept", 1, "unsettled", &["it does not come to rest"]),
    ("elsewhere-acknowledged-made", 439, "answer", &["Request of ", "Gone then"]),
    ("elsewhere-cancelled-made", 43, "answer", &["Request of ", "Cancelled then"]),
    ("elsewhere-unseen-cancelled", 11, "answer", &["LookUp of ", "None then"]),
    ("elsewhere-unseen-acknowledged", 11, "answer", &["LookUp of ", "None then"]),
    ("elsewhere-cancel-ran", 605, "answer", &["Cancel of "]),
    ("elsewhere-cancel-unstored", 28, "answer", &["Cancel of "]),
    ("deposit-other-outcome", 0, "outcome", &[" gets 201 ", "\"count\":11", ", and had "]),
    ("deposit-other-status", 0, "outcome", &[" gets 200 ", ", and had "]),
    ("together-other-outcome", 2, "outcome", &[" was told ", ", and is number 1"]),
    ("together-other-status", 2, "outcome", &[" was told ", ", and is number 1"]),
    ("place-other-outcome", 0, "outcome", &[" at s0 1/1 gets ", "\"count\":11"]),
    ("place-other-status", 0, "outcome", &[" at s0 1/1 gets "]),
    ("id-other-outcome", 0, "outcome", &["b10100 with 10100 gets "]),
    ("take-over-other-last", 0, "outcome", &["the take-over take-over-3 gets "]),
    ("released-with-no", 2, "lie", &["who waits no longer for"]),
    ("released-early", 2, "patience", &["was waited for no longer at"]),
    ("released-never", 2, "patience", &["does so for too long"]),
];

#[test]
fn every_lie_is_refused_by_what_is_there_for_it() {
    be_quiet();
    let told: Vec<_> = REFUSED.iter().map(|(name, seed, ..)| told_of(name, *seed)).collect();
    // From here on a panic is this test's, and is printed.
    drop(std::panic::take_hook());
    for ((name, seed, kind, words), (found, what)) in REFUSED.iter().zip(told) {
        assert_eq!(found, *kind, "{name}, seed {seed}: {what}");
        assert!(words.iter().all(|word| what.contains(word)), "{name}, seed {seed}: {what}");
    }
}

fn told_of(name: &str, seed: u64) -> (&'static str, String) {
    let mutant = Mutant::named(name).expect("a mutant");
    run(&Plan::of(seed), Some(mutant)).err().map_or(("nothing", String::new()), |failure| (failure.kind, failure.what))
}
