//! *Acknowledging* in the protocol: a test for each sentence.

use semel_support::call::control;
use semel_support::*;

fn change(id: &str) -> Call {
    post("/count").id(id)
}

const GRACE_MS: i64 = 60_000;

fn world_with(ids: &[&str]) -> World {
    let mut world = World::new();
    for id in ids {
        assert_eq!(world.send(&change(id).first_sent_s(world.wall_s())).only("semel-status"), "executed");
    }
    world
}

/// The `Semel-Status` that an attempt of this id gets now.
fn asked(world: &mut World, id: &str) -> String {
    world.send(&change(id).first_sent_s(START_S)).only("semel-status").to_owned()
}

#[test]
fn an_acknowledgement_is_applied_whatever_the_answer_to_the_request_that_carries_it() {
    let carriers: [(Call, &str); 14] = [
        (change("new"), "executed"),
        (change("known"), "replayed"),
        (change("known").body("other"), "fingerprint-mismatch"),
        (post("/count"), "key-missing"),
        (change("new").deadline_ms(1), "attempt-expired"),
        (post("/status/500").id("new"), "rolled-back"),
        (get("/count"), "read"),
        (look_up("nobody"), "not-seen"),
        (cancel("own", "x"), "executed"),
        (post(&control("cancel")).id("own").body("{}"), "body-invalid"),
        (take_over_with("own", "{}"), "body-invalid"),
        (acknowledge("{}"), "body-invalid"),
        (post("/not-found").id("new"), "not-found"),
        (numbered(1, 1), "forbidden"),
    ];
    for (carrier, status) in carriers {
        let mut world = world_with(&["a"]);
        world.send(&change("known"));
        world.send(&take_over("of another's session").by("mallory")).is_taken_over(1, 0);
        let got = world.send(&carrier.ack("a"));
        assert_eq!(got.only("semel-status"), status);
        assert!(got.header("semel-key").is_some());
        assert_eq!(asked(&mut world, "a"), "acknowledged", "after {status}");
    }
}

#[test]
fn an_id_that_is_acknowledged_twice_keeps_no_other_id_from_being_acknowledged() {
    for named in [
        vec!["a", "a"],
        vec!["a", "a", "b"],
        vec!["b", "a", "a"],
        vec!["new", "a"],
        vec!["a", "b", "c", "a"],
        vec!["a", "a", "b", "c"],
    ] {
        let mut world = world_with(&["a", "b", "c"]);
        let carrier = named.iter().fold(change("new"), |carrier, id| carrier.ack(id));
        assert_eq!(world.send(&carrier).only("semel-status"), "executed");
        for id in ["a", "b", "c"] {
            let status = if named.contains(&id) { "acknowledged" } else { "replayed" };
            assert_eq!(asked(&mut world, id), status, "{id} of {named:?}");
        }
    }
}

#[test]
fn acknowledgements_can_be_sent_in_a_request_of_their_own() {
    let mut world = world_with(&["a", "b", "c"]);
    let body = "{\"ids\":[\"a\",{\"id\":\"b\",\"until\":1800000005000},\"never seen\"]}";
    let got = world.send(&post(&control("acks")).body(body).ack("c"));
    assert_eq!((got.status(), got.only("semel-status"), got.only("idempotent-replayed")), (204, "executed", "false"));
    for id in ["a", "b", "c"] {
        assert_eq!(asked(&mut world, id), "acknowledged");
    }
}

#[test]
fn an_acknowledgement_affects_only_records_of_its_principal() {
    let mut world = world_with(&["a"]);
    world.send(&get("/count").ack("a").by("mallory"));
    world.send(&post(&control("acks")).body("{\"ids\":[\"a\"]}").by("mallory"));
    assert_eq!(asked(&mut world, "a"), "replayed");
}

#[test]
fn an_acknowledgement_never_affects_the_id_of_the_request_that_carries_it() {
    let mut world = World::new();
    assert_eq!(world.send(&change("a").ack("a")).only("semel-status"), "executed");
    assert_eq!(world.send(&change("a").ack("a")).only("semel-status"), "replayed");
    assert_eq!(world.send(&look_up("a").ack("a")).only("semel-status"), "replayed");
    assert_eq!(world.send(&change("a")).only("semel-status"), "replayed");
}

#[test]
fn a_request_that_is_refused_as_invalid_or_too_large_does_not_acknowledge_its_own_id() {
    let refused = [
        (change("a").deadline_ms(i64::MAX), "key-invalid"),
        (change("a").header("semel-first-sent", "soon"), "key-invalid"),
        (change("a").header("semel-session", "\"s\""), "key-invalid"),
        (change("a").too_large(), "too-large"),
    ];
    for (call, status) in refused {
        let mut world = world_with(&["a"]);
        assert_eq!(world.send(&call.ack("a")).only("semel-status"), status);
        assert_eq!(asked(&mut world, "a"), "replayed", "after {status}");
    }
}

#[test]
fn an_acknowledgement_passes_over_unseen_suspect_and_cancelled_ids() {
    let mut world = World::new();
    world.send(&get("/count").ack("a"));
    assert_eq!(world.send(&change("a")).only("semel-status"), "executed", "an id that was not seen yet");
    world.crashed(&change("crashes"));
    world.send(&get("/count").ack("crashes"));
    assert_eq!(world.send(&change("crashes")).only("semel-status"), "executed", "an id without an outcome");
    world.send(&cancel("own", "x"));
    world.send(&get("/count").ack("x"));
    assert_eq!(world.send(&change("x")).only("semel-status"), "cancelled", "a cancelled id leaves by the fence alone");
}

#[test]
fn an_acknowledgement_deletes_the_outcome_and_the_fingerprint_at_once() {
    let mut world = world_with(&["a"]);
    world.send(&get("/count").ack("a"));
    let kept = "SELECT count(*) FROM semel_records WHERE coalesce(fingerprint, status, headers, body) IS NOT NULL";
    assert_eq!(world.database.number(kept), 0);
    assert_eq!(world.rows(), 1);
}

#[test]
fn a_tombstone_is_a_fingerprint_mismatch_to_another_principal() {
    let mut world = world_with(&["a"]);
    world.send(&get("/count").ack("a"));
    assert_eq!(world.send(&change("a").by("mallory")).only("semel-status"), "fingerprint-mismatch");
}

/// Executes `a` once for each of these deadlines, acknowledges it, and returns after how many ms its tombstone has left.
fn lives_ms(attempts: &[Option<i64>], until_ms: Option<i64>, late: &[Option<i64>], retention_s: i64) -> i64 {
    stays_ms(&change("a").first_sent_s(START_S), attempts, until_ms, late, retention_s)
}

fn stays_ms(
    call: &Call,
    attempts: &[Option<i64>],
    until_ms: Option<i64>,
    late: &[Option<i64>],
    retention_s: i64,
) -> i64 {
    let mut world = World::with(|config| config.retention_s = retention_s);
    let send = |world: &mut World, deadline_ms: &Option<i64>| {
        let request = call.clone();
        world.send(&match deadline_ms {
            Some(deadline_ms) => request.deadline_ms(*deadline_ms),
            None => request,
        });
    };
    attempts.iter().for_each(|deadline_ms| send(&mut world, deadline_ms));
    world.send(&match until_ms {
        Some(until_ms) => get("/count").ack_until("a", until_ms),
        None => get("/count").ack("a"),
    });
    late.iter().for_each(|deadline_ms| send(&mut world, deadline_ms));
    assert_eq!(world.effects(), 1);
    loop {
        world.wall_ms += 5_000;
        // A new object sweeps with its first request.
        world.restart();
        world.send(&get("/count"));
        if world.rows() == 0 {
            return world.wall_ms - START_MS;
        }
        assert!(world.wall_ms < START_MS + 10_000_000, "it never left");
    }
}

#[test]
fn a_tombstone_lives_until_60_s_after_the_later_of_until_and_the_latest_deadline() {
    let at = |s: i64| Some(START_MS + s * 1000);
    let day = 86_400;
    assert_eq!(lives_ms(&[at(10)], at(30), &[], day), 30_000 + GRACE_MS, "until is later");
    assert_eq!(lives_ms(&[at(40)], at(30), &[], day), 40_000 + GRACE_MS, "the deadline is later");
    assert_eq!(lives_ms(&[at(10), at(50)], at(30), &[], day), 50_000 + GRACE_MS, "a replay's deadline is later");
    assert_eq!(lives_ms(&[at(50), at(10)], at(30), &[], day), 50_000 + GRACE_MS, "the first deadline is later");
    assert_eq!(lives_ms(&[at(10)], at(30), &[at(70)], day), 70_000 + GRACE_MS, "a late attempt's deadline is later");
    assert_eq!(lives_ms(&[at(10)], at(30), &[at(70), at(20)], day), 70_000 + GRACE_MS, "the last one's is earlier");
    assert_eq!(lives_ms(&[at(11)], at(5), &[], day), 20_000 + GRACE_MS, "deadlines are kept rounded up to 10 s");
}

#[test]
fn a_late_attempt_moves_the_end_of_a_tombstone_to_60_s_after_its_deadline_or_a_retention_from_now() {
    let retention_s = 600;
    let mut world = World::with(|config| config.retention_s = retention_s);
    let call = change("a").first_sent_s(START_S);
    world.send(&call.clone().deadline_ms(START_MS)).is_executed(200);
    world.send(&get("/count").ack_until("a", START_MS));
    let lapses = |world: &World| world.row("a", "lapses_ms");
    assert_eq!(lapses(&world), Some((START_MS + GRACE_MS).into()));
    world.send(&call.clone().deadline_ms(START_MS + 70_000)).is_problem(410, "acknowledged", "yes", "never");
    assert_eq!(lapses(&world), Some((START_MS + 70_000 + GRACE_MS).into()));
    world.pass_s(1);
    world.send(&call).is_problem(410, "acknowledged", "yes", "never");
    assert_eq!(lapses(&world), Some((world.wall_ms + retention_s * 1000).into()));
}

#[test]
fn an_id_that_is_acknowledged_twice_in_a_request_has_the_until_that_it_had_first() {
    for more in [0, 3] {
        let mut world = World::new();
        let others: Vec<String> = (0..more).map(|n| format!("other-{n}")).collect();
        for id in others.iter().map(String::as_str).chain(["a"]) {
            world.send(&change(id).first_sent_s(START_S).deadline_ms(START_MS)).is_executed(200);
        }
        let twice = get("/count").ack_until("a", START_MS + 30_000).ack_until("a", START_MS + 50_000).ack("a");
        world.send(&others.iter().fold(twice, |call, id| call.ack_until(id, START_MS)));
        for (s, status) in [(89, "acknowledged"), (2, "attempt-expired")] {
            world.pass_s(s);
            world.restart();
            // A new object sweeps with its first request.
            world.send(&get("/count"));
            let attempt = change("a").deadline_ms(START_MS);
            // The deadline is past, so nothing runs: the answer only shows whether the tombstone is there.
            assert_eq!(world.send(&attempt).only("semel-status"), status, "after {s} s, with {more}");
        }
    }
}

#[test]
fn a_tombstone_lives_for_the_retention_without_until_or_if_an_attempt_had_no_deadline() {
    let at = |s: i64| Some(START_MS + s * 1000);
    // The fence has to pass the second of the first-sent, which takes one more second; the steps are of 5 s.
    let retention_s = 600;
    let retention = 605_000;
    assert_eq!(lives_ms(&[at(10)], None, &[], retention_s), retention, "no until");
    assert_eq!(lives_ms(&[None], at(30), &[], retention_s), retention, "no deadline");
    assert_eq!(lives_ms(&[at(10), None], at(30), &[], retention_s), retention, "a replay had no deadline");
    assert_eq!(lives_ms(&[at(10)], at(30), &[None], retention_s), retention, "a late attempt had no deadline");
}

#[test]
fn without_first_sent_a_tombstone_lives_for_the_retention_to_the_second() {
    let at = |s: i64| Some(START_MS + s * 1000);
    let lives = |attempts: &[Option<i64>], until_ms, late: &[Option<i64>]| {
        stays_ms(&change("a"), attempts, until_ms, late, 600)
    };
    assert_eq!(lives(&[at(10)], None, &[]), 600_000, "no until");
    assert_eq!(lives(&[None], at(30), &[]), 600_000, "no deadline");
    assert_eq!(lives(&[at(10)], at(30), &[None]), 600_000, "a late attempt had no deadline");
    assert_eq!(lives(&[at(10)], at(30), &[]), 30_000 + GRACE_MS, "deadlines bound it all the same");
}

/// An id whose tombstone has left counts as new, and a client may acknowledge its first use once more, late.
#[test]
fn an_until_before_the_first_sent_of_a_record_does_not_acknowledge_it() {
    let mut world = World::new();
    let attempt = |world: &World, sent_ms: i64| {
        change("a").first_sent_s(sent_ms.div_euclid(1000)).deadline_ms(world.wall_ms + 10_000)
    };
    world.send(&attempt(&world, START_MS)).is_executed(200);
    let old = change("acknowledges").ack_until("a", START_MS + 10_000);
    world.send(&old);
    world.pass_s(120);
    let sent_ms = world.wall_ms;
    world.send(&attempt(&world, sent_ms)).is_executed(200);
    world.send(&old);
    world.pass_s(120);
    assert_eq!(world.send(&attempt(&world, sent_ms)).only("semel-status"), "replayed");
    world.send(&change("acknowledges too").ack_until("a", world.wall_ms + 10_000));
    assert_eq!(world.send(&attempt(&world, sent_ms)).only("semel-status"), "acknowledged");
}

/// The first-sent is by the client's clock, which may be 120 s ahead, and the deadline by the server's. The first of these deadlines is that of an
/// attempt which arrives at its last instant.
#[test]
fn an_ack_with_an_until_before_a_first_sent_that_is_ahead_of_the_clock_acknowledges() {
    for ahead_ms in [0, 30_000] {
        let mut world = World::new();
        let until_ms = world.wall_ms + ahead_ms;
        let attempt = change("a").first_sent_s(START_S + 100).deadline_ms(until_ms);
        world.send(&attempt).is_executed(200);
        world.send(&change("acknowledges").ack_until("a", until_ms)).is_executed(200);
        assert_eq!(world.send(&attempt).only("semel-status"), "acknowledged", "{ahead_ms}");
    }
}

#[test]
fn an_ack_with_an_until_in_the_second_of_the_first_sent_acknowledges_though_the_request_ran_later() {
    let mut world = World::new();
    world.pass_s(5);
    let attempt = change("a").first_sent_s(START_S);
    world.send(&attempt).is_executed(200);
    world.send(&change("acknowledges").ack_until("a", START_MS + 500)).is_executed(200);
    assert_eq!(world.send(&attempt).only("semel-status"), "acknowledged");
}

#[test]
fn an_until_far_ahead_keeps_no_tombstone_for_ever() {
    let far = Some(999_999_999_999_999);
    assert_eq!(stays_ms(&change("a"), &[Some(START_MS)], far, &[], 600), 1_200_000 + 120_000 + GRACE_MS);
    // To the millisecond, by the row.
    let mut world = World::with(|config| config.retention_s = 600);
    world.send(&change("a").deadline_ms(START_MS)).is_executed(200);
    world.send(&get("/count").ack_until("a", 999_999_999_999_999));
    assert_eq!(world.row("a", "lapses_ms"), Some((START_MS + 1_200_000 + 120_000 + GRACE_MS).into()));
}

#[test]
fn a_short_retention_does_not_end_a_tombstone_before_a_deadline_that_was_seen() {
    let at = |s: i64| Some(START_MS + s * 1000);
    assert_eq!(lives_ms(&[at(100)], None, &[], 10), 100_000 + GRACE_MS);
    assert_eq!(lives_ms(&[None], at(100), &[], 10), 100_000 + GRACE_MS);
    // To the millisecond, by the row.
    for is_seen in [true, false] {
        let mut world = World::with(|config| config.retention_s = 10);
        let (attempt, ack) = (change("a"), get("/count"));
        let last_ms = START_MS + 100_000;
        world.send(&if is_seen { attempt.deadline_ms(last_ms) } else { attempt }).is_executed(200);
        world.send(&if is_seen { ack.ack("a") } else { ack.ack_until("a", last_ms) });
        assert_eq!(world.row("a", "lapses_ms"), Some((last_ms + GRACE_MS).into()), "{is_seen}");
    }
}

#[test]
fn a_tombstone_stays_until_the_fence_can_refuse_its_id() {
    // The first-sent is 100 s ahead of the clock, which is allowed, and the retention is 11 s.
    let mut world = World::with(|config| config.retention_s = 11);
    let request = change("a").first_sent_s(world.wall_s() + 100);
    world.send(&request);
    world.send(&get("/count").ack("a"));
    for _ in 0..130 {
        world.pass_s(1);
        world.restart();
        assert_ne!(
            world.send(&request).only("semel-status"),
            "executed",
            "after {} s",
            (world.wall_ms - START_MS) / 1000
        );
    }
    assert_eq!(world.send(&request).only("semel-status"), "outside-window");
    assert_eq!(world.effects(), 1);
}

#[test]
fn a_run_of_replays_writes_only_when_its_latest_deadline_grows_past_the_next_10_s() {
    let mut world = World::new();
    let attempt = |world: &World, ms: i64| change("a").deadline_ms(world.wall_ms + ms);
    world.send(&attempt(&world, 10_000));
    world.send(&attempt(&world, 20_000));
    // A write makes the object forget what it knew. Of the two attempts after it, the second looks at the tables again.
    world.send(&attempt(&world, 20_000));
    world.send(&attempt(&world, 20_000));
    let writes = |world: &mut World, ms: i64| {
        let before = world.database.statements();
        assert_eq!(world.send(&attempt(world, ms)).only("semel-status"), "replayed");
        world.database.statements() - before
    };
    let quiet = writes(&mut world, 20_000);
    assert_eq!(quiet, 1, "only the record is read");
    assert_eq!(writes(&mut world, 15_000), quiet);
    assert!(writes(&mut world, 20_001) > quiet);
    assert_eq!(writes(&mut world, 29_000), quiet);
}
