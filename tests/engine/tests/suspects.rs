//! Requests that end the process, or may have ended it.

use semel_core::message::{Headers, Method};
use semel_core::server::Answer;
use semel_core::server::attempt::suspicion::{Own, Started, Suspects, is_new, is_suspect};
use semel_support::{Call, SESSION, START_MS, START_S, Trouble, World, cancel, get, numbered, post, take_over};

fn change(id: &str) -> Call {
    post("/count").id(id)
}

fn failing(world: &World, trouble: Trouble) {
    world.handler.trouble.set(trouble);
}

/// A start that ends the process: its count is durable, and nothing else came of it.
fn ends(world: &mut World, call: &Call) {
    world.start(call);
    world.restart();
}

#[test]
fn an_id_that_ended_the_process_three_times_never_runs_again() {
    let mut world = World::new();
    for _ in 0..3 {
        ends(&mut world, &change("a"));
    }
    world.start(&change("a"));
    world.send(&change("a")).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.calls(), 0);
}

#[test]
fn an_id_that_ended_the_process_twice_may_still_run() {
    let mut world = World::new();
    for _ in 0..2 {
        ends(&mut world, &change("a"));
    }
    world.start(&change("a"));
    world.send(&change("a")).is_executed(200);
    assert_eq!((world.effects(), world.rows()), (1, 1));
}

#[test]
fn starts_that_ended_the_process_count_even_if_the_next_attempt_is_not_suspected() {
    let mut world = World::new();
    for _ in 0..3 {
        ends(&mut world, &change("a"));
    }
    // No start is counted before it.
    world.send(&change("a")).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.calls(), 0);

    for _ in 0..2 {
        ends(&mut world, &change("b"));
    }
    failing(&world, Trouble::Panics);
    world.send(&change("b")).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.calls(), 1);
}

#[test]
fn ends_of_the_process_and_panics_are_counted_together() {
    let mut world = World::new();
    ends(&mut world, &change("a"));
    failing(&world, Trouble::Panics);
    world.start(&change("a"));
    world.send(&change("a")).is_problem(500, "rolled-back", "no", "same-id");
    world.start(&change("a"));
    world.send(&change("a")).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.effects(), 0);
}

#[test]
fn a_counted_start_that_is_refused_or_fails_is_no_crash() {
    let late = change("a").deadline_ms(START_MS - 1);
    let unknown = post("/not-found").id("a");
    for (call, trouble, code) in [
        (change("a"), Trouble::Fails, "rolled-back"),
        (change("a"), Trouble::BadSql, "rolled-back"),
        (late, Trouble::None, "attempt-expired"),
        (unknown, Trouble::None, "not-found"),
    ] {
        let mut world = World::new();
        failing(&world, trouble);
        for _ in 0..5 {
            // It is started in time, and refused when it is about to run.
            world.start(&change("a"));
            assert_eq!(world.send(&call).only("semel-status"), code);
            world.restart();
        }
        assert_eq!(world.rows(), 0);
        failing(&world, Trouble::None);
        world.send(&change("a")).is_executed(200);
    }
}

#[test]
fn a_crash_is_counted_even_if_the_deadline_of_its_attempt_has_passed() {
    let mut world = World::new().in_session();
    let deadline_ms = world.wall_ms + 1_000;
    world.pass_ms(2_000);
    for call in [change("a"), numbered_of(SESSION, 1)] {
        let late = call.deadline_ms(deadline_ms);
        for _ in 0..2 {
            world.crashed(&late).is_problem(500, "rolled-back", "no", "same-id");
        }
        world.crashed(&late).is_problem(410, "poisoned", "no", "never");
    }
}

#[test]
fn a_refused_attempt_of_another_principal_does_not_take_back_a_counted_start() {
    let mut world = World::new();
    for _ in 0..3 {
        world.start(&change("a"));
        world.send(&change("a").by("mallory")).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
        assert_eq!(world.rows(), 1);
        world.restart();
    }
    world.send(&change("a")).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.calls(), 0);
}

#[test]
fn an_id_started_without_first_sent_stays_a_retention_longer_than_a_later_first_sent_says() {
    let retention_s = 1_000;
    let world = || World::with(|config| config.retention_s = retention_s);
    let dated = change("a").first_sent_s(START_S);
    let cancels = cancel("own", "a").body(format!("{{\"id\":\"a\",\"firstSent\":{START_S}}}"));
    let (mut executed, mut cancelled) = (world(), world());
    for world in [&mut executed, &mut cancelled] {
        world.start(&change("a"));
    }
    executed.send(&dated).is_executed(200);
    cancelled.send(&cancels).is_executed(200);
    for (world, code, executed) in [(&mut executed, "outcome-expired", "yes"), (&mut cancelled, "cancelled", "no")] {
        world.pass_s(retention_s + 2);
        world.wake().expect("storage works");
        world.send(&change("a")).is_problem(410, code, executed, "never");
    }
    assert_eq!((executed.effects(), cancelled.calls()), (1, 0));
}

#[test]
fn a_start_that_can_not_be_counted_is_unavailable_and_earlier_counts_stay() {
    let mut world = World::new().in_session();
    for call in [change("a"), numbered_of(SESSION, 1)] {
        for _ in 0..2 {
            ends(&mut world, &call);
        }
        world.database.fail_at("COMMIT", 1);
        world.start(&call).is_problem(503, "unavailable", "unknown", "same-id");
        world.restart();
        assert_eq!(world.start(&call).status(), 204);
        world.restart();
        world.send(&call).is_problem(410, "poisoned", "no", "never");
    }
    assert_eq!(world.calls(), 0);
}

#[test]
fn a_start_whose_commit_failed_in_a_living_object_is_no_crash() {
    for looks_first in [false, true] {
        let mut world = World::new();
        world.send(&change("other")).is_executed(200);
        for _ in 0..5 {
            world.start(&change("a"));
            world.database.fail_at("COMMIT", 1);
            world.send(&change("a")).is_problem(503, "unavailable", "unknown", "same-id");
            while looks_first && world.open().expect("storage") {}
        }
        world.send(&change("a")).is_executed(200);
    }
}

#[test]
fn a_start_whose_commit_failed_is_no_crash_even_if_another_request_starts_next() {
    let mut world = World::new().in_session();
    for next in [change("b0"), change("b1"), numbered_of(SESSION, 1), change("b3"), change("b4")] {
        world.start(&change("a"));
        world.database.fail_at("COMMIT", 1);
        world.send(&change("a")).is_problem(503, "unavailable", "unknown", "same-id");
        world.start(&next);
        world.send(&next).is_executed(200);
    }
    world.send(&change("a")).is_executed(200);
}

#[test]
fn a_start_whose_commit_failed_is_no_crash_even_after_a_take_over_of_its_session() {
    let mut world = World::new().in_session();
    for epoch in 1..=3 {
        let call = numbered(epoch, 1);
        world.start(&call);
        world.database.fail_at("COMMIT", 1);
        world.send(&call).is_problem(503, "unavailable", "unknown", "same-id");
        world.send(&take_over(&format!("t{epoch}"))).is_taken_over(epoch + 1, 0);
    }
    failing(&world, Trouble::Panics);
    world.send(&numbered(4, 1)).is_problem(500, "rolled-back", "no", "same-id");
}

#[test]
fn a_crash_before_a_start_whose_commit_failed_stays_counted_when_another_starts() {
    let mut world = World::new();
    for n in 0..2 {
        ends(&mut world, &change("a"));
        world.start(&change("a"));
        world.database.fail_at("COMMIT", 1);
        world.send(&change("a")).is_problem(503, "unavailable", "unknown", "same-id");
        world.start(&change(&format!("b{n}")));
        world.send(&change(&format!("b{n}"))).is_executed(200);
    }
    ends(&mut world, &change("a"));
    world.start(&change("a"));
    world.send(&change("a")).is_problem(410, "poisoned", "no", "never");
}

#[test]
fn a_late_attempt_that_is_refused_does_not_take_back_the_start_of_a_dead_object() {
    let mut world = World::new();
    for _ in 0..3 {
        ends(&mut world, &change("a"));
        // A copy of it that comes too late is treated as a suspect too.
        let late = change("a").deadline_ms(START_MS - 1);
        world.start(&late);
        world.send(&late).is_problem(408, "attempt-expired", "no", "same-id");
    }
    world.start(&change("a"));
    world.send(&change("a")).is_problem(410, "poisoned", "no", "never");
}

#[test]
fn a_late_attempt_of_a_place_does_not_take_back_the_start_of_a_dead_object() {
    let mut world = World::new().in_session();
    for _ in 0..3 {
        ends(&mut world, &numbered_of(SESSION, 1));
        let late = numbered_of(SESSION, 1).deadline_ms(START_MS - 1);
        world.start(&late);
        world.send(&late).is_problem(408, "attempt-expired", "no", "same-id");
    }
    world.start(&numbered_of(SESSION, 1));
    world.send(&numbered_of(SESSION, 1)).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.effects(), 0);
}

#[test]
fn crashes_before_a_rolled_back_start_stay_counted() {
    let mut world = World::new();
    world.crashed(&change("a"));
    world.crashed(&change("a"));
    failing(&world, Trouble::Fails);
    world.start(&change("a"));
    world.send(&change("a")).is_problem(500, "rolled-back", "no", "same-id");
    world.crashed(&change("a")).is_problem(410, "poisoned", "no", "never");
}

#[test]
fn rolled_back_attempts_after_a_crash_are_not_counted_as_crashes() {
    let mut world = World::new();
    world.crashed(&change("a"));
    failing(&world, Trouble::Fails);
    for _ in 0..4 {
        world.start(&change("a"));
        world.send(&change("a")).is_problem(500, "rolled-back", "no", "same-id");
        world.restart();
    }
    failing(&world, Trouble::None);
    world.start(&change("a"));
    world.send(&change("a")).is_executed(200);
}

#[test]
fn a_start_changes_nothing_for_an_id_that_has_an_outcome() {
    let mut world = World::new();
    let first = world.send(&change("a"));
    world.start(&change("a"));
    world.send(&change("a")).replays(&first);
}

#[test]
fn has_outcome_is_true_of_settled_requests_only_and_false_if_the_storage_was_not_read() {
    let mut world = World::new().in_session();
    let numbered = |seq| numbered_of(SESSION, seq);
    let has = |world: &World, call: &Call| world.has_outcome(&call.headers());
    world.send(&change("executed")).is_executed(200);
    world.send(&numbered(1)).is_executed(200);
    world.send(&cancel("own", "cancelled")).is_executed(200);
    for _ in 0..3 {
        world.crashed(&change("poisoned"));
    }
    world.crashed(&change("crashed"));
    world.start(&change("started"));
    let ended = [change("executed"), change("cancelled"), change("poisoned"), numbered(1)];
    let others =
        [change("crashed"), change("started"), change("new"), numbered(2), numbered_of("another", 1), get("/count")];
    let (rows, calls) = (world.rows(), world.calls());
    assert!(ended.iter().all(|call| has(&world, call)) && !others.iter().any(|call| has(&world, call)));
    for call in &ended {
        world.send(call);
    }
    assert_eq!((world.rows(), world.calls()), (rows, calls), "none of them runs");

    world.database.fail_at("SELECT", 1);
    assert!(!has(&world, &change("executed")), "nobody knows");
    world.database.calm();
    world.restart();
    assert!(!has(&world, &change("executed")), "nobody has looked at the storage yet");
}

#[test]
fn another_principal_gets_fingerprint_mismatch_for_a_suspect() {
    let mut world = World::new();
    world.crashed(&change("a"));
    let mismatch = (422, "fingerprint-mismatch", "no", "after-fix");
    for call in [change("a").by("mallory"), cancel("own", "a").by("mallory")] {
        world.send(&call).is_problem(mismatch.0, mismatch.1, mismatch.2, mismatch.3);
    }
    world.send(&change("a")).is_executed(200);
}

#[test]
fn a_suspect_that_fills_its_key_may_run_and_a_full_key_takes_no_other_suspect() {
    let mut world = World::with(|config| config.records_max = 1);
    world.start(&change("a"));
    world.send(&change("a")).is_executed(200);
    world.start(&change("b"));
    world.send(&change("b")).is_problem(503, "capacity", "no", "same-id");
    assert_eq!(world.rows(), 1);
}

#[test]
fn a_tombstone_stays_for_a_crashed_attempt_without_first_sent_and_deadline() {
    let mut world = World::with(|config| config.retention_s = 1000);
    // The crashed attempt had neither deadline nor first-sent, and a copy of it may be on its way.
    world.crashed(&change("a"));
    world.send(&change("a").first_sent_s(START_S).deadline_ms(START_MS)).is_executed(200);
    world.send(&get("/count").ack_until("a", START_MS));
    world.pass_s(900);
    world.restart();
    world.send(&get("/count"));
    world.send(&change("a")).is_problem(410, "acknowledged", "yes", "never");
    assert_eq!(world.effects(), 1);
}

#[test]
fn a_tombstone_stays_for_a_crashed_attempt_without_a_deadline() {
    let mut world = World::with(|config| config.retention_s = 1000);
    world.crashed(&change("a").first_sent_s(START_S));
    world.send(&change("a").first_sent_s(START_S).deadline_ms(START_MS)).is_executed(200);
    world.send(&get("/count").ack_until("a", START_MS));
    world.pass_s(900);
    world.restart();
    world.send(&get("/count"));
    // A copy of the crashed attempt arrives. Only the tombstone can refuse it.
    world.send(&change("a").first_sent_s(START_S)).is_problem(410, "acknowledged", "yes", "never");
    assert_eq!(world.effects(), 1);
}

#[test]
fn only_a_change_that_may_be_older_than_its_young_object_or_a_place_is_a_suspect() {
    let at = |first_sent_s: Option<i64>, age_ms: i64| {
        let mut headers = Headers::from_iter([("idempotency-key", "a")]);
        if let Some(first_sent_s) = first_sent_s {
            headers.append("semel-first-sent", format!("@{first_sent_s}"));
        }
        is_suspect(&Method::Post, "/count", &headers, START_MS, START_MS + age_ms)
    };
    assert!(at(Some(START_S - 6), 0));
    assert!(at(Some(START_S - 6), 59_999));
    assert!(!at(Some(START_S - 6), 60_000), "the object is no longer young");
    assert!(!at(Some(START_S - 5), 0), "a first attempt that was on its way as the object started");
    assert!(at(None, 4_999));
    assert!(!at(None, 5_000));
    let headers = Headers::from_iter([("idempotency-key", "a")]);
    assert!(!is_suspect(&Method::Get, "/count", &headers, START_MS, START_MS));
    assert!(!is_suspect(&Method::Post, "/semel/v1/keys/k/cancel", &headers, START_MS, START_MS));
    assert!(!is_suspect(&Method::Post, "/count", &Headers::new(), START_MS, START_MS));
    let place = Headers::from_iter([("semel-session", "\"s\";epoch=1;seq=1")]);
    let of_place =
        |headers: &Headers, age_ms: i64| is_suspect(&Method::Post, "/count", headers, START_MS, START_MS + age_ms);
    assert!(of_place(&place, 0) && of_place(&place, 3_600_000), "whenever it comes");
    let sent = |seconds: i64| {
        Headers::from_iter([
            ("semel-session", "\"s\";epoch=1;seq=1".to_owned()),
            ("semel-first-sent", format!("@{seconds}")),
        ])
    };
    assert!(of_place(&sent(START_S - 6), 3_600_000) && !of_place(&sent(START_S - 5), 0));
}

#[test]
fn a_request_whose_first_sent_is_far_ahead_of_the_machines_clock_is_a_suspect() {
    // The header that names the request, and its times by the key's clock.
    let of = |(name, value): (&str, &str), sent_s: Option<i64>, deadline_ms: i64| {
        let mut headers = Headers::from_iter([(name, value)]);
        headers.append("semel-deadline", deadline_ms.to_string());
        if let Some(sent_s) = sent_s {
            headers.append("semel-first-sent", format!("@{sent_s}"));
        }
        headers
    };
    for named in [("idempotency-key", "a"), ("semel-session", "\"s\";epoch=1;seq=1")] {
        for ahead_s in [6, 60, 600, 90_000] {
            // It came, ended the object, and comes again to the next one.
            for later_s in 0..6 {
                let restarted_ms = START_MS + later_s * 1000;
                let headers = of(named, Some(START_S + ahead_s), restarted_ms + ahead_s * 1000 + 10_000);
                let is_known = is_suspect(&Method::Post, "/count", &headers, restarted_ms, restarted_ms);
                assert_eq!(is_known, later_s < ahead_s - 5, "{named:?} {ahead_s} {later_s}");
            }
        }
        let without = of(named, None, START_MS + 600_000);
        assert!(is_suspect(&Method::Post, "/count", &without, START_MS, START_MS), "{named:?}");
    }
}

#[test]
fn a_session_that_has_executed_a_place_in_this_object_is_no_suspect() {
    let place = |name: &str, seq: i64| numbered_of(name, seq).headers();
    let mut suspects = Suspects::default();
    let has = |suspects: &Suspects, headers: &Headers| {
        suspects.has(&Method::Post, "/count", headers, START_MS, START_MS + 3_600_000)
    };
    let mut world = World::new().in_session();
    let mut answered = |suspects: &mut Suspects, call: &Call| {
        let reply = world.send(call);
        let mut answer = Answer::changed();
        answer.headers = Headers::from_iter([("semel-status", reply.only("semel-status"))]);
        suspects.answered(&call.headers(), &answer);
    };
    assert!(has(&suspects, &place(SESSION, 1)));
    // A request that runs nothing of the session says nothing of what would run.
    for call in [numbered_of(SESSION, 9), change("a"), get("/count")] {
        answered(&mut suspects, &call);
        assert!(has(&suspects, &place(SESSION, 1)), "{call:?}");
    }
    answered(&mut suspects, &numbered_of(SESSION, 1));
    assert!(!has(&suspects, &place(SESSION, 2)) && has(&suspects, &place("another", 1)));
    assert!(!has(&suspects, &change("a").headers()), "the object is not young");
}

#[test]
fn a_session_that_has_gone_on_is_recognised_whatever_characters_its_name_has() {
    let mut executed = Answer::changed();
    executed.headers = Headers::from_iter([("semel-status", "executed")]);
    let mut suspects = Suspects::default();
    let place = |name: &str| numbered_of(name, 1).headers();
    let has = |suspects: &Suspects, name: &str| {
        suspects.has(&Method::Post, "/count", &place(name), START_MS, START_MS + 3_600_000)
    };
    let names = ["a", r#"a\";b"#, r#"a\""#, r"a\\", "a;b", r#"a\\\";epoch=1;seq=1;x="#];
    for (n, name) in names.iter().enumerate() {
        suspects.answered(&place(name), &executed);
        suspects.answered(&place(name), &executed);
        let known: Vec<_> = names.iter().filter(|name| !has(&suspects, name)).collect();
        assert_eq!(known, names[..=n].iter().collect::<Vec<_>>());
    }
}

fn numbered_of(name: &str, seq: i64) -> Call {
    post("/count").header("semel-session", format!("\"{name}\";epoch=1;seq={seq}"))
}

#[test]
fn a_start_is_no_crash_if_the_host_says_that_this_object_counted_it() {
    let mut world = World::new();
    for _ in 0..4 {
        world.start(&change("a"));
        // Another object of the isolate crashes the module.
        world.restart();
        world.started(&change("a"));
        failing(&world, Trouble::Fails);
        world.send(&change("a")).is_problem(500, "rolled-back", "no", "same-id");
    }
    failing(&world, Trouble::None);
    world.send(&change("a")).is_executed(200);
    // If the object has died, the host doesn't say so.
    for _ in 0..3 {
        ends(&mut world, &change("b"));
    }
    world.send(&change("b")).is_problem(410, "poisoned", "no", "never");
}

#[test]
fn a_recent_well_formed_first_sent_makes_a_request_new_and_no_suspect_and_nothing_else_does() {
    let place = r#"semel-session:"x";epoch=1;seq=1"#;
    for more in ["idempotency-key:\"a\"", place] {
        for (sent, expected) in [
            (format!("semel-first-sent:@{START_S}\n"), true),
            (format!("semel-first-sent:@{}\n", START_S - 5), true),
            (format!("semel-first-sent:@{}\n", START_S - 6), false),
            (format!("semel-first-sent:@{}\n", START_S + 5), true),
            (format!("semel-first-sent:@{}\n", START_S + 6), false),
            (format!("semel-first-sent:{START_S}\n"), false),
            ("semel-first-sent:@+1\n".to_owned(), false),
            (format!("semel-first-sent:@+{START_S}\n"), false),
            ("semel-first-sent:@9999999999999999\n".to_owned(), false),
            (format!("semel-first-sent:@{START_S}\nsemel-first-sent:@{START_S}\n"), false),
            (format!("x-semel-first-sent:@{START_S}\n"), false),
            (String::new(), false),
        ] {
            let lines = format!("{sent}{more}\n");
            assert_eq!(is_new(&lines, START_MS, START_MS), expected, "{lines}");
            let headers = Headers::from_lines(&lines);
            assert!(!expected || !is_suspect(&Method::Post, "/count", &headers, START_MS, START_MS), "{lines}");
        }
    }
}

#[test]
fn an_object_remembers_at_most_4096_sessions_that_have_gone_on() {
    let mut executed = Answer::changed();
    executed.headers = Headers::from_iter([("semel-status", "executed")]);
    let mut suspects = Suspects::default();
    let place = |n: usize| numbered_of(&format!("{n:05}"), 1).headers();
    let has = |suspects: &Suspects, n| suspects.has(&Method::Post, "/count", &place(n), START_MS, START_MS + 3_600_000);
    for n in 0..4_096 {
        suspects.answered(&place(n), &executed);
    }
    assert!(!has(&suspects, 0) && !has(&suspects, 4_095));
    suspects.answered(&place(4_096), &executed);
    assert!(has(&suspects, 0) && !has(&suspects, 4_096));
}

#[test]
fn an_object_remembers_at_most_64_of_its_own_starts() {
    let started = |seq: i64| Started::Place { session: 1, epoch: 1, seq };
    let mut own = Own::default();
    for seq in 0..64 {
        own.add(started(seq));
        own.add(started(seq));
    }
    assert!((0..64).all(|seq| own.has(&started(seq))), "one that starts twice counts once");
    own.add(started(64));
    assert!(!own.has(&started(0)) && own.has(&started(64)));
}
