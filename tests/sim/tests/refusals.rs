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
    ("take-over-misled", 0, "misled", &["is told Some(1", ", and it is at "]),
    ("take-over-old-epoch", 0, "epoch", &["gets epoch 0, and "]),
    ("take-over-fenced", 0, "lie", &["a take-over after None is fenced"]),
    ("closed-otherwise", 15, "lie", &["is closed as executed, and was None"]),
    ("id-acknowledged", 0, "lie", &["nobody has acknowledged it"]),
    ("id-poisoned", 0, "blamed", &["is poisoned after None crashes"]),
    ("id-never", 10, "never", &["b10000 ran, of which it was said that it never will"]),
    ("place-never", 0, "never", &["seq=2 ran, of which it was said that it never will"]),
    ("deposit-server-error", 0, "outcome", &["500 was recorded"]),
    ("together-poisoned", 2, "lie", &["Deposit 9, ", " ran"]),
    ("together-not-run", 44, "lie", &["Cancel 12, ", " ran"]),
    ("together-yes", 6, "lie", &["was told poisoned, yes, and has run: false"]),
    ("together-no", 246, "lie", &["was told acknowledged, no, and has run: true"]),
    ("together-expired", 6, "late", &["was in time, and was told attempt-expired"]),
    ("together-never", 15, "never", &["7 ran, of which it was said that it never will"]),
    ("together-stranger-told", 2, "stranger", &["Other 9, ", "was told replayed"]),
    ("group-old-clock", 6, "late", &["ran past its deadline"]),
    ("together-read-ahead", 6, "early", &["was told of what was not durable"]),
    ("no-tombstone", 0, "left", &["left too early"]),
    ("expired-early", 1, "left", &["is expired from the beginning"]),
    ("fence-goes-back", 0, "fence", &["the fence moved back"]),
    ("record-ahead", 0, "clock", &["the clock of the key went back"]),
    ("record-of-another", 0, "stranger", &["went from alice to nobody"]),
    ("acknowledges-itself", 0, "left", &["is acknowledged from the beginning"]),
    ("effect-of-another", 0, "effects", &["came of POST "]),
    ("session-gone", 0, "left", &["the session s0 has left"]),
    ("session-of-another", 0, "epoch", &["s0 is at 1, and "]),
    ("session-further", 0, "number", &["the last number of s0 is 1, not 0"]),
    ("session-effect-of-another", 0, "principal", &["0 ran as nobody"]),
    ("commit-loses-effect", 2, "effects", &["by what was answered, and [] is there"]),
    ("commit-loses-record", 2, "twice", &["5 ran again"]),
    ("ended-leaves-effect", 2, "effects", &["of an object that ended "]),
    ("effect-lost", 2, "lost", &["was durable, and "]),
    ("credit-of-nothing", 1, "made", &["which has sent no such thing"]),
    ("credit-lost", 1, "mended", &["was credited 0 times, parked: None, of what was dropped"]),
    ("money-made", 1, "money", &["and there should be "]),
    ("parked-in-other-words", 1, "once", &["was credited 0 times, parked: Some((\"perhaps\""]),
    ("parked-too-soon", 1, "patience", &["is parked, yes: answered 503"]),
    ("credit-given-up", 1, "mended", &["was given up, and nobody has named it"]),
    ("call-given-up", 1, "mended", &["were given up that nobody has named"]),
    ("call-of-nothing", 1, "calls", &["calls, and of these is known"]),
    ("effect-waits", 1, "unsettled", &["at 0 something waits"]),
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
