//! Every mutant, and a seed that finds out what it does. To renew a line: `npm run sim -- --seeds 1000 --mutant NAME`.

use semel_sim::{Mutant, Plan, be_quiet, run};

/// Name, seed, and of what kind the violation is.
const FOUND: &[(&str, u64, &str)] = &[
    ("principal", 1, "stranger"),
    ("fingerprint", 1, "outcome"),
    ("replay", 0, "twice"),
    ("fence", 3, "fence"),
    ("deadline", 0, "deadline"),
    ("cancelled", 24, "lie"),
    ("tombstone", 7, "twice"),
    ("unsent-withdrawn", 23, "answer"),
    ("ordered", 26, "order"),
    ("poisoned", 52, "poisoned"),
    ("crash-counted", 26, "poisoned"),
    ("start-counted", 184, "unsettled"),
    ("start-ended", 2, "blamed"),
    ("own-start", 10, "uncounted"),
    ("until", 6, "left"),
    ("seen-deadlines", 143, "left"),
    ("acknowledged-by-owner", 9, "acknowledged"),
    ("own-acknowledgement", 8, "acknowledged"),
    ("unacknowledged-stay", 0, "left"),
    ("expired-tombstone", 3, "left"),
    ("tombstone-stays", 0, "left"),
    ("carried-on", 5, "left"),
    ("packed-known", 726, "twice"),
    ("clock-forward", 40, "clock"),
    ("fence-forward", 12, "fence"),
    ("fence-durable", 2, "fence"),
    ("checked-outcome", 8, "outcome"),
    ("read-undone", 0, "effects"),
    ("cancellation-judged", 6, "lie"),
    ("cancellation-recorded", 38, "never"),
    ("capacity", 6, "capacity"),
    ("forgotten-durable", 2, "fence"),
    ("deleted-record-stays-refused", 12, "deleted"),
    ("packed-outlive-key", 54, "left"),
    ("administrator-only", 6, "administrator"),
    ("session-owned", 0, "stranger"),
    ("epoch-known", 1, "epoch"),
    ("epoch-forward", 0, "epoch"),
    ("place-replay", 0, "freed"),
    ("place-fingerprint", 2, "outcome"),
    ("place-cancelled", 150, "freed"),
    ("place-poisoned", 2, "freed"),
    ("place-gone", 100, "lie"),
    ("place-of-epoch", 4, "lie"),
    ("own-numbers", 10, "number"),
    ("fenced", 0, "fenced"),
    ("fenced-unknown", 0, "lie"),
    ("no-gap", 0, "gap"),
    ("window", 64, "window"),
    ("ack-of-current", 0, "freed"),
    ("last-place-stays", 2, "lie"),
    ("stub-keeps-last", 2, "lie"),
    ("take-over-expected", 0, "usurped"),
    ("count-of-place", 0, "blamed"),
    ("sessions-bounded", 19, "bounded"),
    ("dispatch-recorded", 9, "unrecorded"),
    ("doubt-holds", 1, "again"),
    ("doubt-stays", 18, "left"),
    ("resend-ends", 11, "again"),
    ("probe-settles", 1, "again"),
    ("own-dispatch", 389, "recorded"),
    ("under-way-known", 927, "answer"),
    ("taken-epoch", 1, "once"),
    ("lane-taken-over", 66, "unsettled"),
    ("put-back-renumbered", 101, "once"),
    ("closed-before-parked", 51, "once"),
    ("closing-of-place", 173, "once"),
    ("first-of-known-session", 411, "order"),
    ("answer-of-last", 88, "mended"),
    ("batch-in-order", 0, "effects"),
    ("batch-in-one-commit", 19, "outcome"),
    ("batch-memory", 936, "unsettled"),
    ("desk-undone", 6, "effects"),
    ("desk-seen", 0, "twice"),
    ("desk-written", 0, "twice"),
    ("batch-acknowledges", 187, "unacknowledged"),
    ("batch-key", 1, "key"),
    ("batch-headers", 10, "reserved"),
    ("frame-of-token", 40, "token"),
    ("place-kept", 2, "twice"),
    ("under-way-once", 52, "answer"),
    ("only-fenced-renumbered", 81, "twice"),
    ("older-first", 35, "answer"),
    ("left-in-order", 57, "order"),
    ("left-taken", 64, "unsettled"),
    ("ack-held", 0, "lie"),
    ("row-taken-back", 4, "lie"),
    ("raise-checked", 9, "left"),
    ("until-raised", 159, "left"),
    ("until-told", 38, "left"),
    ("acknowledgement-answered", 4, "unacknowledged"),
    ("status-needed", 21, "unacknowledged"),
    ("no-server-error", 61, "answer"),
    ("unknown-when-paused", 39, "lie"),
    ("principal-told", 14, "principal"),
    ("certain-key", 285, "answer"),
    ("no-tombstone", 0, "left"),
    ("tombstone-without-until", 20, "left"),
    ("send-before-persisting", 0, "answer"),
    ("effect-apart", 0, "effects"),
    ("forget-before-delivery", 198, "lost"),
    ("new-id-per-attempt", 0, "twice"),
    ("expired-early", 1, "left"),
    ("shortest-retention", 10, "fence"),
    ("full-early", 31, "capacity"),
    ("stale-reads", 18, "history"),
    ("other-payload-joined", 0, "payload"),
    ("join-forgotten", 0, "lost"),
    ("suspect-together", 145, "unsettled"),
    ("crash-of-frame", 0, "blamed"),
    ("nested-kept", 10, "order"),
    ("mended-by-place", 16, "mended"),
    ("sent-before-durable", 55, "unrecorded"),
    ("group-isolation", 174, "effects"),
    ("group-kept", 6, "effects"),
    ("group-order", 6, "order"),
    ("group-early-answer", 2, "early"),
];

#[test]
fn every_mutant_is_found_out_by_its_seed_and_for_what_it_does() {
    be_quiet();
    let found: Vec<_> = FOUND.iter().map(|(name, seed, _)| kind_of(name, *seed)).collect();
    // From here on a panic is this test's, and is printed.
    drop(std::panic::take_hook());
    let other: Vec<_> = FOUND.iter().zip(found).filter(|((.., kind), found)| *found != Some(*kind)).collect();
    assert!(other.is_empty(), "not found out, or for something else: {other:?}");
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
