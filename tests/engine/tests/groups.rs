//! Requests that waited for the same commit: they are answered together, each as if it had come alone, or not at all.

use semel_core::server::storage::retention::SWEEP_ROWS;
use semel_support::batches::{asker, count, run, statuses};
use semel_support::*;
use serde_json::json;

/// Everything that is kept.
const KEPT: &[&str] = &[
    RECORDS,
    "SELECT text FROM semel_texts ORDER BY text",
    "SELECT * FROM semel_places ORDER BY session, seq",
    "SELECT * FROM semel_sessions ORDER BY number",
    "SELECT * FROM semel_tombstones ORDER BY chunk",
    "SELECT fence_s, forgotten_s, handler_version FROM semel_meta",
    "SELECT * FROM effects ORDER BY number",
];

fn kept(world: &World) -> Vec<String> {
    KEPT.iter().flat_map(|query| world.database.query(query)).map(|row| format!("{row:?}")).collect()
}

fn change(id: &str) -> Call {
    post("/count").id(id).first_sent_s(START_S)
}

/// A key with a session and some records.
fn used() -> World {
    let mut world = World::new().in_session();
    for id in ["old", "older", "oldest"] {
        world.send(&change(id)).is_executed(200);
    }
    world.send(&numbered(1, 1)).is_executed(200);
    world
}

/// All kinds of requests that a group may have.
fn mixed() -> Vec<Call> {
    vec![
        change("a"),
        change("b").ack_until("old", START_MS),
        change("a"),
        change("a").body("other"),
        change("c").ack_until("a", START_MS).ack_until("b", START_MS),
        change("a"),
        change("old"),
        change("d").by("bob"),
        change("e").by("bob").ack_until("c", START_MS),
        post("/count"),
        post("/echo").id("f").body("of bob's").by("bob"),
        change("too large").too_large(),
        look_up("f").by("bob"),
        numbered(1, 2),
        post("/count").place_acking(1, 3, 2),
        numbered(1, 3),
        numbered(1, 9),
        cancel("cancels", "never"),
        acknowledge(&format!("[{{\"id\":\"older\",\"until\":{START_MS}}}]")),
        change("never"),
        cancel_place("closes", 1, 4),
        numbered(1, 4),
        numbered(1, 5),
        take_over_after("takes over again", 1),
        numbered(1, 6),
        post("/count").place_acking(2, 6, 5),
        change("g").deadline_ms(START_MS + 5),
        change("h"),
    ]
}

/// Sends a group as the host does.
fn together(world: &mut World, calls: &[Call]) -> Vec<Reply> {
    world.group(calls).unwrap_or_else(|| calls.iter().map(|call| world.send(call)).collect())
}

/// Sends a group together, and the same one by one to another object of the same key. There must be no difference.
#[track_caller]
fn is_as_one_by_one(world: &mut World, calls: &[Call]) -> Vec<Reply> {
    let mut other = world.copy();
    // After a restart it has in memory only what it has read, like the copy.
    world.restart();
    let each: Vec<_> = calls.iter().map(|call| other.send(call)).collect();
    let all = world.group(calls).expect("nothing that can't be together");
    assert_eq!(all, each);
    assert_eq!(kept(world), kept(&other));
    assert_eq!(world.count(), other.count());
    let counted = |world: &World| ["executed", "replayed", "capacity"].map(|status| world.counted(status));
    assert_eq!(counted(world), counted(&other));
    // There is no difference in the tables either.
    world.restart();
    assert_eq!(world.count(), other.count());
    all
}

#[test]
fn an_acknowledgement_in_a_group_sees_the_deadline_of_an_earlier_attempt_in_the_group() {
    let mut world = World::new();
    world.send(&change("a").deadline_ms(START_MS + 1_000)).is_executed(200);
    let calls = [change("a").deadline_ms(START_MS + 100_000), change("b").ack_until("a", START_MS + 1_000)];
    let replies = world.group(&calls).expect("all in one");
    assert_eq!(statuses(&replies), ["replayed", "executed"]);
    world.pass_ms(150_000);
    world.send(&change("a").deadline_ms(START_MS + 200_000)).is_problem(410, "acknowledged", "yes", "never");
    assert_eq!(world.effects(), 2);
}

#[test]
fn each_request_of_a_group_is_answered_and_stored_as_if_it_had_come_alone() {
    let mut world = used();
    let all = is_as_one_by_one(&mut world, &mixed());
    assert_eq!(all[0].only("semel-status"), "executed");
    all[2].replays(&all[0]);
    assert_eq!(all[5].only("semel-status"), "acknowledged", "what has run in the same group is acknowledged in it");
    assert_eq!(world.effects_of("a"), 1);
    // Again, with everything known.
    is_as_one_by_one(&mut world, &mixed());
}

#[test]
fn groups_of_two_to_five_requests_answer_and_store_the_same_as_one_by_one() {
    for many in 2..6 {
        let (mut world, mut other) = (used(), used());
        for calls in mixed().chunks(many) {
            let each: Vec<_> = calls.iter().map(|call| other.send(call)).collect();
            assert_eq!(together(&mut world, calls), each, "{many} at a time");
        }
        assert_eq!(kept(&world), kept(&other), "{many} at a time");
        assert_eq!(world.count(), other.count());
    }
}

#[test]
fn similar_outcomes_of_one_commit_are_each_replayed_unchanged() {
    let with_id = |call: Call, n: i64| call.id(&format!("{n}"));
    let at_place = |call: Call, n: i64| call.place(1, n + 2);
    let named: [fn(Call, i64) -> Call; 2] = [with_id, at_place];
    for (between_ms, named) in named.into_iter().flat_map(|named| [(0, named), (1_000, named)]) {
        let paths = ["/status/200", "/status/404", "/status/200", "/status/409", "/count"];
        let calls: Vec<_> = paths.into_iter().zip(0..).map(|(path, n)| named(post(path), n)).collect();
        let mut world = used();
        let replies = world.group_over(&calls, between_ms).expect("one commit");
        world.restart();
        for (call, first) in calls.iter().zip(&replies) {
            let again = world.send(call);
            again.replays(first);
            assert_eq!(again.expires_s(), first.expires_s());
        }
    }
}

#[test]
fn a_group_creates_the_tables_of_a_key_that_nobody_has_used() {
    let calls = [change("a"), change("a"), change("b").ack_until("a", START_MS)];
    is_as_one_by_one(&mut World::new(), &calls);
}

#[test]
fn a_group_meets_the_capacity_of_a_key_exactly_as_one_by_one() {
    let mut world = World::with(|config| config.records_max = 3);
    world.send(&change("first"));
    let calls = [change("a"), change("b"), change("c"), change("d").ack_until("first", START_MS), change("e")];
    let mut other = world.copy();
    let each: Vec<_> = calls.iter().map(|call| other.send(call)).collect();
    let all = together(&mut world, &calls);
    assert_eq!(all, each);
    assert!(statuses(&all).contains(&"capacity"), "{:?}", statuses(&all));
    assert_eq!((kept(&world), world.count()), (kept(&other), other.count()));
}

#[test]
fn a_group_sweeps_one_page_however_many_requests_are_in_it() {
    let mut world = World::with(|config| config.retention_s = 1_000);
    for n in 0..3 * SWEEP_ROWS {
        world.send(&change(&format!("old {n}"))).is_executed(200);
    }
    world.pass_s(1_001);
    world.group(&["a", "b", "c"].map(|id| post("/count").id(id))).expect("one commit");
    assert_eq!(world.rows(), 2 * SWEEP_ROWS + 3);
}

#[test]
fn large_outcomes_of_a_group_are_answered_and_stored_as_one_by_one() {
    let mut world = used();
    let large = |id: &str| post("/large/120000").id(id);
    is_as_one_by_one(&mut world, &[large("a"), large("b"), large("c"), change("d"), large("a"), large("e")]);
}

#[test]
fn a_group_reads_each_long_outcome_that_it_replays_by_a_statement_of_its_own() {
    let statements = |bytes: usize| {
        let calls = ["a", "b", "c"].map(|id| post("/echo").id(id).body("x".repeat(bytes)));
        let mut world = World::new();
        for call in &calls {
            world.send(call).is_executed(200);
        }
        world.restart();
        world.send(&look_up("a")).is_replayed(200);
        let before = world.database.statements();
        let replies = world.group(&calls).expect("one commit");
        assert!(replies.iter().all(|reply| reply.body().len() == bytes && reply.only("semel-status") == "replayed"));
        world.database.statements() - before
    };
    assert_eq!(statements(20_000), statements(10_000) + 3);
}

#[test]
fn a_group_whose_answers_are_too_large_together_is_undone_and_left_to_one_by_one() {
    let mut world = used();
    let before = kept(&world);
    let calls: Vec<_> = (0..90).map(|n| post("/large/250000").id(&format!("{n}"))).collect();
    assert_eq!(world.group(&calls), None);
    assert_eq!(kept(&world), before);
}

#[test]
fn a_group_in_which_one_request_fails_is_undone_and_each_then_runs_alone() {
    for trouble in ["/not-found", "/status/500", "/bad-header-value", "/panics"] {
        let mut world = used();
        let fails = post(trouble).id("fails");
        let calls = [change("a"), change("b").ack_until("old", START_MS), fails, change("c").ack_until("a", START_MS)];
        let (before, count) = (kept(&world), world.count());
        assert_eq!(world.group(&calls), None, "{trouble}");
        assert_eq!(kept(&world), before, "{trouble}");
        assert_eq!(world.count(), count, "what was packed is taken back");
        world.send(&change("old")).is_replayed(200);
        let mut other = world.copy();
        let each: Vec<_> = calls.iter().map(|call| other.send(call)).collect();
        assert_eq!(together(&mut world, &calls), each, "{trouble}");
        assert_eq!((kept(&world), world.count()), (kept(&other), other.count()), "{trouble}");
    }
}

/// A key with a packed tombstone that lapses during a group that is rolled back.
fn lapsing() -> (World, [Call; 3]) {
    let mut world = used();
    world.send(&change("a").deadline_ms(START_MS)).is_executed(200);
    world.send(&change("b").ack_until("a", START_MS)).is_executed(200);
    assert_eq!(world.count().map(|count| count.tombstones), Ok(1), "it is packed");
    // The tombstone lapses a minute after the latest deadline, which is before the second request comes.
    world.pass_ms(59_999);
    (world, [change("c"), post("/not-found").id("d"), change("e")])
}

#[test]
fn after_an_undone_group_a_tombstone_that_lapsed_meanwhile_is_counted_as_stored() {
    let (mut world, calls) = lapsing();
    assert_eq!(world.group_over(&calls, 1), None);
    world.pass_ms(1);
    let counted = world.count();
    world.restart();
    assert_eq!(world.count(), counted, "what is in memory is what is stored");
}

#[test]
fn a_tombstone_that_lapsed_during_an_undone_group_is_kept_until_its_time() {
    let (mut world, calls) = lapsing();
    assert_eq!(world.group_over(&calls, 1), None);
    assert_eq!(world.count().map(|count| count.tombstones), Ok(1));
    world.send(&look_up("a")).is_problem(410, "acknowledged", "yes", "never");
    world.pass_ms(1);
    world.send(&look_up("a")).is_problem(404, "not-seen", "unknown", "same-id");
}

#[test]
fn a_tombstone_that_lapsed_during_an_undone_group_is_reported_to_the_registry() {
    let (mut world, calls) = lapsing();
    let report = world.report().expect("storage works").expect("something to tell");
    world.reported(&report, 0).expect("storage works");
    assert_eq!(world.report(), Ok(None));
    assert_eq!(world.group_over(&calls, 1), None);
    world.pass_ms(1);
    let told = world.report().expect("storage works").map(|report| report.tombstones);
    assert_eq!(told, Some(report.tombstones - 1));
}

#[test]
fn text_numbers_stay_right_if_a_key_is_deleted_in_the_middle_of_a_group() {
    let calls =
        [change("a"), change("b"), admin::delete_key("deletes"), change("c"), change("d"), change("e").by("bob")];
    is_as_one_by_one(&mut used(), &calls);
}

#[test]
fn text_numbers_stay_right_after_a_failed_commit() {
    let (mut world, mut other) = (used(), used());
    // A read is rolled back by itself, so these share no desk.
    let elements = json!([count("a"), { "method": "GET", "path": "/count" }]);
    world.database.fail_at("COMMIT", 1);
    for world in [&mut world, &mut other] {
        world.batch_by(&asker("bob"), &[], &elements).expect("answers");
    }
    assert_eq!(kept(&world), kept(&other));
}

#[test]
fn texts_too_long_for_a_number_do_not_keep_later_texts_from_getting_one() {
    let mut world = used();
    for n in 0..130 {
        let long = format!("{n}{}", "x".repeat(256));
        world.send(&post("/headers").id(&format!("{n}")).header("x-answer-x-long", long)).is_executed(201);
    }
    world.send(&change("a").by("bob")).is_executed(200);
    assert_eq!(world.database.number("SELECT count(*) FROM semel_texts WHERE text = 'bob'"), 1);
}

#[test]
fn at_most_128_texts_of_a_key_get_a_number() {
    let mut world = used();
    for n in 0..140 {
        if n == 100 {
            world.restart();
        }
        let headers = post("/headers").id(&format!("{n}")).header("x-answer-x-n", n.to_string());
        world.send(&headers).is_executed(201);
    }
    assert_eq!(world.database.number("SELECT count(*) FROM semel_texts"), 128);
}

#[test]
fn a_group_with_a_read_is_left_to_one_by_one_before_any_statement() {
    let mut world = used();
    let statements = world.database.statements();
    assert_eq!(world.group(&[change("a"), get("/count")]), None);
    assert_eq!(world.database.statements(), statements);
}

#[test]
fn a_group_is_undone_if_any_statement_fails_and_each_then_runs_alone_once() {
    let (mut whole, calls) = (used(), mixed());
    let before = kept(&whole);
    whole.group(&calls).expect("all of them");
    let after = kept(&whole);
    for n in 0.. {
        let mut world = used();
        world.database.fail(n);
        let answered = world.group(&calls);
        if world.database.awaits_fault() {
            assert!(n > 20, "{n}");
            return;
        }
        assert_eq!(answered, None, "statement {n}");
        assert_eq!(kept(&world), before, "statement {n}");
        for call in &calls {
            world.send(call);
        }
        assert_eq!(kept(&world), after, "statement {n}");
    }
}

#[test]
fn a_crash_before_any_statement_of_a_group_leaves_nothing_of_it() {
    let (mut whole, calls) = (used(), mixed());
    let before = kept(&whole);
    whole.group(&calls).expect("all of them");
    let after = kept(&whole);
    for n in 0.. {
        let mut world = used();
        world.database.crash_before(n);
        world.group(&calls);
        if world.database.awaits_fault() {
            assert_eq!(kept(&world), after);
            return;
        }
        world.restart();
        assert_eq!(kept(&world), before, "statement {n}");
        together(&mut world, &calls);
        assert_eq!(kept(&world), after, "statement {n}");
    }
}

#[test]
fn a_batch_answers_and_stores_the_same_as_its_requests_one_by_one() {
    let elements = json!([
        count("a"),
        { "method": "POST", "path": "/count", "session": { "name": SESSION, "epoch": 1, "seq": 2 } },
        { "method": "POST", "path": "/count", "session": { "name": SESSION, "epoch": 1, "seq": 3, "ack": 2 } },
        { "id": "closes", "method": "POST", "path": call::control("cancel"),
          "body": format!("{{\"session\":{{\"name\":\"{SESSION}\",\"epoch\":1,\"seq\":4}}}}") },
        { "method": "POST", "path": "/count", "session": { "name": SESSION, "epoch": 1, "seq": 4 } },
        { "method": "POST", "path": "/count", "session": { "name": SESSION, "epoch": 1, "seq": 5, "ack": 4 } },
        count("b"),
    ]);
    let (mut world, mut other) = (used(), used());
    let all = run(&mut world, &elements);
    let each = elements.as_array().expect("a list").iter().enumerate();
    let each = each.map(|(n, element)| other.alone_by(&asker("alice"), element, (n, false)).expect("an answer"));
    assert_eq!(all, each.collect::<Vec<_>>());
    assert_eq!(kept(&world), kept(&other));
    assert_eq!((world.places(), world.count()), (other.places(), other.count()));
}
