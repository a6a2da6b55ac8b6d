//! *Retention*, a sentence a test.

use semel_core::server::storage::retention::SWEEP_ROWS;
use semel_support::batches::{count, run};
use semel_support::*;
use serde_json::json;

fn change(id: &str) -> Call {
    post("/count").id(id)
}

const RETENTION_S: i64 = 1000;

fn world() -> World {
    World::with(|config| config.retention_s = RETENTION_S)
}

/// Has a fresh object sweep: it does so with its first request.
fn sweep(world: &mut World) {
    world.restart();
    world.send(&get("/count"));
}

#[test]
fn retention_moves_the_fence() {
    let mut world = world();
    let first_sent_s = world.wall_s();
    let request = |id: &str| change(id).first_sent_s(first_sent_s);
    world.pass_s(RETENTION_S);
    assert_eq!(world.send(&request("a")).only("semel-status"), "executed");
    world.pass_s(1);
    assert_eq!(world.send(&request("b")).only("semel-status"), "outside-window");
}

#[test]
fn the_fence_never_moves_back() {
    let mut world = world();
    let first_sent_s = world.wall_s();
    world.pass_s(RETENTION_S + 1);
    assert_eq!(world.send(&change("a").first_sent_s(first_sent_s)).only("semel-status"), "outside-window");
    // Neither when the wall clock goes back, nor with a restart, nor with a longer retention.
    world.wall_ms = START_MS;
    assert_eq!(world.send(&change("a").first_sent_s(first_sent_s)).only("semel-status"), "outside-window");
    world.restart_with(|config| config.retention_s = RETENTION_S * 10);
    assert_eq!(world.send(&change("a").first_sent_s(first_sent_s)).only("semel-status"), "outside-window");
    assert_eq!(world.effects(), 0);
}

#[test]
fn a_cancellation_that_the_fence_refuses_holds_the_fence_as_well() {
    let mut world = world();
    let body = format!("{{\"id\":\"a\",\"firstSent\":{START_S}}}");
    world.pass_s(RETENTION_S + 1);
    world.send(&cancel("own", "a").body(body)).is_problem(412, "outside-window", "unknown", "never");
    world.wall_ms = START_MS;
    world.restart();
    world.send(&change("a").first_sent_s(START_S)).is_problem(412, "outside-window", "unknown", "never");
    assert_eq!(world.effects(), 0);
}

#[test]
fn a_cancellation_without_first_sent_never_says_no_of_what_may_have_run() {
    let mut world = world();
    let request = change("a").first_sent_s(world.wall_s());
    world.send(&request).is_executed(200);
    world.pass_s(RETENTION_S + 1);
    sweep(&mut world);
    assert_eq!(world.rows(), 0);
    world.send(&cancel("own", "a")).is_executed(200);
    world.send(&request).is_problem(412, "outside-window", "unknown", "never");
    world.send(&look_up("a")).is_problem(410, "cancelled", "unknown", "never");
    world.send(&change("a")).is_problem(410, "cancelled", "no", "never");
}

#[test]
fn nor_where_its_tombstone_left_by_its_deadlines() {
    let mut world = world();
    let (first_sent_s, until_ms) = (world.wall_s(), world.wall_ms + 10_000);
    let request = change("a").first_sent_s(first_sent_s).deadline_ms(until_ms);
    world.send(&request).is_executed(200);
    world.send(&acknowledge(&json!([{ "id": "a", "until": until_ms }]).to_string()));
    world.pass_s(100);
    sweep(&mut world);
    world.send(&cancel("own", "a")).is_executed(200);
    world.send(&request).is_problem(408, "attempt-expired", "no", "same-id");
    // Its client sends none past what it said.
    let later = change("a").first_sent_s(first_sent_s).deadline_ms(world.wall_ms + 10_000);
    world.send(&later).is_problem(410, "cancelled", "no", "never");
    assert_eq!(world.effects(), 1);
}

#[test]
fn the_clock_of_a_key_never_goes_back_behind_what_was_committed() {
    let mut world = world();
    world.pass_s(50);
    world.send(&change("a"));
    let committed_ms = world.wall_ms;
    world.wall_ms = START_MS;
    assert_eq!(world.send(&get("/count")).only("semel-now"), committed_ms.to_string());
    world.restart();
    assert_eq!(world.send(&get("/count")).only("semel-now"), committed_ms.to_string());
    assert_eq!(world.send(&change("b").deadline_ms(committed_ms - 1)).only("semel-status"), "attempt-expired");
}

#[test]
fn the_clock_is_not_lost_with_the_rows_that_leave() {
    let mut world = world();
    world.send(&change("a").first_sent_s(world.wall_s()));
    world.pass_s(RETENTION_S + 1);
    sweep(&mut world);
    assert_eq!(world.rows(), 0);
    let swept_ms = world.wall_ms;
    world.wall_ms = START_MS;
    world.restart();
    assert_eq!(world.send(&get("/count")).only("semel-now"), swept_ms.to_string());
    assert_eq!(world.send(&change("a").first_sent_s(START_S)).only("semel-status"), "outside-window");
    assert_eq!(world.effects(), 1);
}

#[test]
fn an_unacknowledged_record_leaves_only_once_the_fence_has_passed_its_first_sent() {
    let mut world = world();
    let request = change("a").first_sent_s(world.wall_s() + 100);
    world.send(&request);
    world.pass_s(100 + RETENTION_S);
    sweep(&mut world);
    assert_eq!(world.send(&request).only("semel-status"), "replayed");
    world.pass_s(1);
    sweep(&mut world);
    assert_eq!(world.rows(), 0);
    assert_eq!(world.send(&request).only("semel-status"), "outside-window");
    assert_eq!(world.effects(), 1);
}

#[test]
fn an_outcome_is_kept_for_a_whole_retention_from_its_execution() {
    let mut world = world();
    let request = change("a").first_sent_s(world.wall_s());
    world.pass_s(RETENTION_S - 1);
    let expires = world.send(&request).only("semel-expires").to_owned();
    assert_eq!(expires, format!("@{}", world.wall_s() + RETENTION_S));
    world.pass_s(RETENTION_S);
    sweep(&mut world);
    let again = world.send(&request);
    assert_eq!((again.only("semel-status"), again.only("semel-expires")), ("replayed", expires.as_str()));
    world.pass_s(1);
    sweep(&mut world);
    assert_eq!(world.send(&request).only("semel-status"), "outside-window");
}

/// What is due of others is walked by with it.
#[test]
fn it_is_kept_so_though_another_leaves_earlier() {
    let mut world = world();
    let (early, late) = (change("a").first_sent_s(world.wall_s()), change("b").first_sent_s(world.wall_s()));
    world.send(&early).is_executed(200);
    world.pass_s(RETENTION_S - 1);
    world.send(&late).is_executed(200);
    world.pass_s(RETENTION_S);
    sweep(&mut world);
    assert_eq!(world.rows(), 1);
    world.send(&late).is_replayed(200);
    world.send(&early).is_problem(412, "outside-window", "unknown", "never");
}

#[test]
fn a_tombstone_that_the_fence_has_to_stand_for_wakes_nobody_before_it_can() {
    let mut world = world();
    world.send(&change("a").first_sent_s(START_S + 100)).is_executed(200);
    world.send(&acknowledge("[\"a\"]"));
    world.wake().expect("storage");
    let due_ms = (START_S + 100 + RETENTION_S + 1) * 1000;
    assert_eq!(world.wakes_at_without_registry(), Some(due_ms));
    world.wall_ms = due_ms;
    world.wake().expect("storage");
    assert_eq!(world.rows(), 0);
}

#[test]
fn a_cancelled_id_leaves_only_once_the_fence_has_passed_its_first_sent() {
    let mut world = world();
    let first_sent_s = world.wall_s();
    let body = format!("{{\"id\":\"a\",\"firstSent\":{first_sent_s}}}");
    world.send(&cancel("own", "a").body(body).first_sent_s(first_sent_s));
    world.pass_s(RETENTION_S);
    sweep(&mut world);
    assert_eq!(world.send(&change("a").first_sent_s(first_sent_s)).only("semel-status"), "cancelled");
    world.pass_s(1);
    sweep(&mut world);
    assert_eq!(world.rows(), 0);
    assert_eq!(world.send(&change("a").first_sent_s(first_sent_s)).only("semel-status"), "outside-window");
}

#[test]
fn a_cancelled_id_that_begins_to_lapse_makes_the_fence_durable() {
    let mut world = world();
    world.send(&cancel("own", "a").deadline_ms(START_MS)).is_executed(200);
    world.send(&acknowledge(&format!("[{{\"id\":\"own\",\"until\":{START_MS}}}]")));
    world.pass_s(100);
    sweep(&mut world);
    assert_eq!(world.row("own", "state"), None);
    // Only the state of this row changes now: no number of rows does.
    world.pass_s(RETENTION_S);
    sweep(&mut world);
    assert_eq!(world.fence_s(), START_S + 100);
}

#[test]
fn without_first_sent_a_leaving_record_stays_as_a_tombstone_for_one_more_retention() {
    for (kind, refusal) in
        [("executed", "outcome-expired"), ("cancelled", "cancelled"), ("poisoned", "outcome-expired")]
    {
        let mut world = world();
        match kind {
            "executed" => assert_eq!(world.send(&change("a")).only("semel-status"), "executed"),
            "cancelled" => {
                assert_eq!(world.send(&cancel("own", "a").first_sent_s(START_S)).only("semel-status"), "executed")
            }
            _ => (0..3).for_each(|_| drop(world.crashed(&change("a")))),
        }
        let effects = world.effects();
        world.pass_s(RETENTION_S + 1);
        sweep(&mut world);
        let got = world.send(&change("a"));
        let executed = if kind == "executed" { "yes" } else { "no" };
        let body = got.json();
        assert_eq!((got.only("semel-status"), body["executed"].as_str()), (refusal, Some(executed)));
        world.pass_s(RETENTION_S - 1);
        sweep(&mut world);
        assert_eq!(world.send(&change("a")).only("semel-status"), refusal);
        assert_eq!(world.effects(), effects);
        world.pass_s(1);
        sweep(&mut world);
        assert_eq!(world.send(&change("a")).only("semel-status"), "executed", "after two retentions it counts as new");
    }
}

#[test]
fn one_attempt_without_first_sent_is_enough_for_the_tombstone() {
    let mut world = world();
    world.send(&change("a").first_sent_s(world.wall_s()));
    assert_eq!(world.send(&change("a")).only("semel-status"), "replayed");
    world.pass_s(RETENTION_S + 1);
    sweep(&mut world);
    assert_eq!(world.send(&change("a")).only("semel-status"), "outcome-expired");
    assert_eq!(world.effects(), 1);
}

#[test]
fn the_latest_first_sent_counts() {
    let mut world = world();
    world.send(&change("a").first_sent_s(world.wall_s()));
    let later = change("a").first_sent_s(world.wall_s() + 100);
    assert_eq!(world.send(&later).only("semel-status"), "replayed");
    world.pass_s(RETENTION_S + 1);
    sweep(&mut world);
    assert_eq!(world.send(&later).only("semel-status"), "replayed");
    assert_eq!(world.effects(), 1);
}

#[test]
fn a_cancelled_id_is_protected_from_all_that_its_cancellations_spoke_of() {
    for later_s in [Some(START_S + 900), None] {
        let mut world = world();
        world.send(&cancel("one", "a").body(format!("{{\"id\":\"a\",\"firstSent\":{START_S}}}"))).is_executed(200);
        world.pass_s(900);
        let first_sent = later_s.map_or(String::new(), |later_s| format!(",\"firstSent\":{later_s}"));
        let again = cancel("two", "a").body(format!("{{\"id\":\"a\"{first_sent}}}"));
        assert_eq!(world.send(&again).field("state"), "cancelled");
        world.pass_s(110);
        sweep(&mut world);
        let attempt = later_s.map_or(change("a"), |later_s| change("a").first_sent_s(later_s));
        world.send(&attempt).is_problem(410, "cancelled", "no", "never");
        assert_eq!(world.effects(), 0);
    }
}

#[test]
fn what_was_cancelled_without_first_sent_or_crashed_so_stays_for_one_more_retention_whatever_is_said_later() {
    for crashes in [false, true] {
        let mut world = world();
        if crashes {
            world.crashed(&change("a"));
        } else {
            world.send(&cancel("one", "a")).is_executed(200);
        }
        let again = cancel("two", "a").body(format!("{{\"id\":\"a\",\"firstSent\":{START_S}}}"));
        assert_eq!(world.send(&again).field("state"), "cancelled");
        // Nobody asks in between: that an attempt said nothing of it would be told by that one.
        for _ in 0..2 {
            world.pass_s(RETENTION_S - 1);
            sweep(&mut world);
        }
        assert_eq!(world.send(&change("a")).only("semel-status"), "cancelled", "{crashes}");
        assert_eq!(world.effects(), 0);
    }
}

#[test]
fn what_ran_is_kept_for_what_a_cancellation_spoke_of() {
    let mut world = world();
    world.send(&change("a").first_sent_s(START_S)).is_executed(200);
    world.pass_s(900);
    let later_s = world.wall_s();
    let late = cancel("own", "a").body(format!("{{\"id\":\"a\",\"firstSent\":{later_s}}}"));
    assert_eq!(world.send(&late).field("state"), "executed");
    world.pass_s(110);
    sweep(&mut world);
    assert_eq!(world.send(&change("a").first_sent_s(later_s)).only("semel-status"), "replayed");
    assert_eq!(world.effects(), 1);
}

#[test]
fn an_id_that_is_cancelled_once_more_is_so_for_as_long_and_for_all() {
    let mut world = world();
    world.send(&semel_support::admin::cancel_for("one", "{\"id\":\"a\"}")).is_executed(200);
    world.pass_s(RETENTION_S + 1);
    sweep(&mut world);
    world.pass_s(RETENTION_S - 10);
    let late_s = world.wall_s();
    world.send(&cancel("two", "a").body(format!("{{\"id\":\"a\",\"firstSent\":{late_s}}}"))).is_executed(200);
    world.pass_s(20);
    sweep(&mut world);
    for who in ["", "bob"] {
        let late = change("a").first_sent_s(late_s).by(who);
        world.send(&late).is_problem(410, "cancelled", "no", "never");
    }
}

#[test]
fn a_sweep_looks_at_a_bounded_page_with_each_request_and_reaches_all() {
    let mut world = world();
    let count = 2 * SWEEP_ROWS + 44;
    for n in 0..count {
        world.send(&change(&format!("id-{n:04}")).first_sent_s(world.wall_s()));
    }
    world.pass_s(RETENTION_S + 1);
    world.restart();
    let mut left = Vec::new();
    for _ in 0..4 {
        world.send(&get("/count"));
        left.push(world.rows());
    }
    assert_eq!(left, [SWEEP_ROWS + 44, 44, 0, 0]);
}

#[test]
fn a_sweep_goes_on_behind_a_page_of_which_nothing_leaves() {
    let mut world = world();
    world.send(&change("0").first_sent_s(world.wall_s()));
    world.pass_s(500);
    let stay = SWEEP_ROWS + 1;
    for n in 0..stay {
        world.send(&change(&format!("a-{n:04}")).first_sent_s(world.wall_s()));
    }
    world.pass_s(RETENTION_S - 499);
    world.restart();
    world.send(&get("/count"));
    assert_eq!(world.rows(), stay + 1);
    world.send(&get("/count"));
    assert_eq!(world.rows(), stay);
}

#[test]
fn a_sweep_starts_over_no_sooner_than_ten_seconds_after_its_end() {
    let mut world = world();
    world.send(&change("a").first_sent_s(world.wall_s()));
    world.send(&change("b").first_sent_s(world.wall_s() + 1));
    world.pass_s(RETENTION_S + 1);
    sweep(&mut world);
    assert_eq!(world.rows(), 1);
    world.pass_s(9);
    world.send(&get("/count"));
    assert_eq!(world.rows(), 1);
    world.pass_s(1);
    world.send(&get("/count"));
    assert_eq!(world.rows(), 0);
}

#[test]
fn what_comes_while_a_walk_has_come_by_leaves_in_its_time() {
    let mut world = world();
    for n in 0..=SWEEP_ROWS {
        world.send(&change(&format!("id-{n:04}")).first_sent_s(START_S));
    }
    world.pass_s(RETENTION_S + 1);
    assert_eq!(world.sweep_page(), Ok(true), "the walk goes on below");
    world.send(&change("z").first_sent_s(world.wall_s())).is_executed(200);
    while world.sweep_page().expect("storage") {}
    assert_eq!(world.rows(), 1);
    assert_eq!(world.wakes_at_without_registry(), Some((world.wall_s() + RETENTION_S + 1) * 1000));
}

/// How many statements a read takes besides its own.
fn statements_of_a_read(world: &mut World) -> u64 {
    let before = world.database.statements();
    world.send(&get("/count"));
    world.database.statements() - before
}

#[test]
fn what_is_not_due_is_walked_by_once_and_costs_no_request_anything() {
    let mut world = world();
    let pages = 300 / SWEEP_ROWS + 1;
    for n in 0..300 {
        world.send(&change(&format!("id-{n:04}")).first_sent_s(world.wall_s() + n % 100));
    }
    let quiet = statements_of_a_read(&mut world);
    world.pass_s(60);
    assert_eq!(statements_of_a_read(&mut world), quiet, "what came is not due for a retention");
    world.restart();
    statements_of_a_read(&mut world);
    assert_eq!(statements_of_a_read(&mut world), quiet, "a fresh object knows it by the totals");
    world.pass_s(RETENTION_S - 60);
    assert_eq!(statements_of_a_read(&mut world), quiet);
    world.pass_s(1);
    for _ in 0..pages {
        assert!(statements_of_a_read(&mut world) > quiet, "it walks");
    }
    assert_eq!(world.rows(), 297, "of each hundred one was due");
    world.pass_s(98);
    for _ in 0..pages {
        assert!(statements_of_a_read(&mut world) > quiet);
    }
    assert_eq!(world.rows(), 3, "the last is first sent later by a second");
    assert_eq!(statements_of_a_read(&mut world), quiet);
    world.pass_s(10);
    statements_of_a_read(&mut world);
    assert_eq!(world.rows(), 0);
}

#[test]
fn a_fresh_object_sweeps_what_was_forgotten_before_it_ended() {
    let mut world = world();
    world.send(&change("a").first_sent_s(world.wall_s()));
    world.pass_s(60);
    world.forget(START_S + 30).expect("it forgets");
    sweep(&mut world);
    assert_eq!(world.rows(), 0);
}

#[test]
fn a_full_key_opens_as_soon_as_something_may_leave() {
    let mut world = World::with(|config| {
        config.retention_s = RETENTION_S;
        config.records_max = 2
    });
    world.send(&change("a").first_sent_s(world.wall_s()));
    world.pass_s(RETENTION_S);
    world.send(&change("b").first_sent_s(world.wall_s()));
    world.pass_s(1);
    // The last sweep was a second ago; the refusal sweeps all the same.
    assert_eq!(world.send(&change("c").first_sent_s(world.wall_s())).only("semel-status"), "capacity");
    assert_eq!(world.send(&change("c").first_sent_s(world.wall_s())).only("semel-status"), "executed");
}

#[test]
fn what_an_administrator_forgot_is_said_to_be_forgotten_and_does_not_run() {
    let mut world = World::new();
    let early = |id: &str| change(id).first_sent_s(START_S - 60);
    world.send(&early("ran"));
    world.pass_s(60);
    world.forget(world.wall_s() - 10).expect("it forgets");
    for id in ["ran", "lost on its way"] {
        world.restart();
        sweep(&mut world);
        world.send(&early(id)).is_problem(410, "forgotten", "unknown", "never");
    }
    assert_eq!((world.rows(), world.effects()), (0, 1));
    assert_eq!(world.send(&change("new").first_sent_s(world.wall_s())).only("semel-status"), "executed");
    // What is before the fence for its age alone, is so still.
    world.pass_s(200_000);
    world.send(&early("older")).is_problem(410, "forgotten", "unknown", "never");
    world.send(&change("old").first_sent_s(START_S + 55)).is_problem(412, "outside-window", "unknown", "never");
}

#[test]
fn what_was_executed_after_what_is_forgotten_keeps_its_outcome_and_nothing_moves_back() {
    let mut world = World::new();
    let later = change("later").first_sent_s(START_S + 30);
    world.pass_s(60);
    let first = world.send(&later);
    world.forget(START_S + 30).expect("it forgets");
    world.forget(START_S).expect("it forgets");
    sweep(&mut world);
    world.send(&later).replays(&first);
    assert_eq!(world.fence_s(), START_S + 30);
}

#[test]
fn forgetting_leaves_an_untouched_key_untouched_and_a_failure_nothing_behind() {
    let mut world = World::new();
    world.forget(START_S).expect("it forgets");
    assert_eq!(world.database.number("SELECT count(*) FROM sqlite_master"), 0);
    world.send(&change("a").first_sent_s(START_S));
    for statement in 0..2 {
        world.database.crash_before(statement);
        world.forget(START_S + 1).expect_err("the storage failed");
        world.restart();
        assert_eq!(world.fence_s(), 0);
    }
    world.forget(START_S + 1).expect("it forgets");
    assert_eq!(world.fence_s(), START_S + 1);
}

#[test]
fn a_sweep_ends_although_each_turn_brings_a_page_of_ids_past_all_before_them() {
    let mut world = world();
    // One row is due soon, and with it a walk begins when nothing else is.
    world.send(&change("z").deadline_ms(START_MS));
    world.send(&acknowledge(&json!([{ "id": "z", "until": START_MS }]).to_string()));
    // As those are that begin with the time.
    for turn in 0..30 {
        let element = |n| {
            let mut element = count(&format!("{turn:02}-{n:02}"));
            element["firstSent"] = json!(world.wall_s());
            element
        };
        let elements = (0..SWEEP_ROWS).map(element).collect();
        run(&mut world, &elements);
        world.pass_s(RETENTION_S / 10);
    }
    assert_eq!(world.database.number("SELECT count(*) FROM semel_records WHERE id < '01'"), 0, "the first have left");
}

/// Who takes a forget has another clock than the machine of a key, which may be behind.
#[test]
fn what_comes_after_a_forget_that_is_ahead_of_the_keys_clock_keeps_its_outcome() {
    let mut world = World::new();
    world.send(&change("before").first_sent_s(START_S)).is_executed(200);
    world.pass_s(10);
    let before_s = world.wall_s() + 5;
    world.forget(before_s).expect("it forgets");
    let after = change("a");
    let first = world.send(&after);
    first.is_executed(200);
    world.send(&change("refused").first_sent_s(before_s - 1)).is_problem(410, "forgotten", "unknown", "never");
    for _ in 0..3 {
        sweep(&mut world);
        world.send(&after).replays(&first);
        world.pass_s(4);
        // It may be told again, also once its clock is there.
        world.forget(before_s).expect("it forgets");
    }
    world.send(&change("before").first_sent_s(START_S)).is_problem(410, "forgotten", "unknown", "never");
    let last = change("last");
    world.send(&last).is_executed(200);
    world.pass_s(5);
    world.forget(world.wall_s() - 1).expect("it forgets");
    for call in [after, last] {
        sweep(&mut world);
        world.send(&call).is_problem(410, "outcome-expired", "yes", "never");
    }
}

#[test]
fn an_object_that_starts_sweeps_what_its_key_was_told_to_forget_ahead_of_its_clock() {
    let mut world = World::new();
    world.send(&change("a").first_sent_s(START_S)).is_executed(200);
    world.forget(START_S + 5).expect("it forgets");
    world.restart();
    world.wake().expect("storage works");
    assert_eq!(world.rows(), 0);
}

/// The same, of what its key has executed before it was told, in the second in which its clock still is.
#[test]
fn what_ran_before_a_forget_that_is_ahead_of_the_keys_clock_is_forgotten_if_that_says_when_it_was_first_sent() {
    let mut world = World::new();
    world.pass_ms(200);
    let before = change("before").first_sent_s(START_S);
    world.send(&before).is_executed(200);
    world.pass_ms(300);
    world.forget(START_S + 1).expect("it forgets");
    let after = change("after").first_sent_s(START_S + 1);
    let first = world.send(&after);
    first.is_executed(200);
    let mut other = world.copy();
    world.wake().expect("storage works");
    // One that starts anew knows that there is something to do.
    sweep(&mut other);
    for mut world in [world, other] {
        world.send(&before).is_problem(410, "forgotten", "unknown", "never");
        world.send(&after).replays(&first);
    }
}
