//! Which requests are suspects: those that may have ended the process before.

use semel_core::message::{Headers, Method};
use semel_core::server::Answer;
use semel_core::server::attempt::suspicion::{Own, Started, Suspects, is_new, is_suspect};
use semel_support::retained::change;
use semel_support::{Call, SESSION, START_MS, START_S, World, get, numbered_of};

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

#[test]
fn an_object_that_has_answered_nothing_yet_suspects_ids_and_places_alike() {
    let suspects = Suspects::default();
    let has =
        |call: &Call, age_ms: i64| suspects.has(&Method::Post, "/count", &call.headers(), START_MS, START_MS + age_ms);
    for call in [change("a"), numbered_of(SESSION, 1)] {
        assert!(has(&call, 0));
        assert!(!has(&call.first_sent_s(START_S), 0));
    }
    assert!(!has(&change("a"), 60_000));
}
