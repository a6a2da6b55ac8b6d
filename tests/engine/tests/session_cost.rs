//! The cost of a session: the rows that it writes, and the bytes that it takes up.

use semel_support::idle::world;
use semel_support::{Call, numbered, post};

#[test]
fn an_acknowledged_request_of_a_session_writes_one_row_in_its_life() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    for seq in 2..10 {
        let before = (world.database.rows_written(), world.database.statements());
        world.send(&post("/count").place_acking(1, seq, seq - 1)).is_executed(200);
        // One more is the handler's.
        assert_eq!(world.database.rows_written() - before.0, 2);
        // These include BEGIN, COMMIT and two of the handler.
        assert_eq!(world.database.statements() - before.1, 7);
    }
}

#[test]
fn a_replay_and_a_refusal_write_nothing() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    let rows = world.database.rows_written();
    for call in
        [numbered(1, 1), numbered(1, 9), numbered(9, 1), numbered(1, 1).body("other"), numbered(1, 2).deadline_ms(0)]
    {
        world.send(&call);
    }
    assert_eq!(world.database.rows_written(), rows);
    // What acknowledges for the first time writes that, and nothing writes it again.
    let gap = post("/count").place_acking(1, 9, 1);
    world.send(&gap).is_problem(409, "sequence-gap", "no", "same-id");
    let rows = world.database.rows_written();
    let mut statements = |call: &Call| {
        let before = world.database.statements();
        world.send(call);
        world.database.statements() - before
    };
    assert_eq!(statements(&gap), statements(&numbered(1, 9)), "nothing is even tried");
    assert_eq!(world.database.rows_written(), rows);
}

/// What a session takes up, without what the handler keeps.
fn bytes_after(requests: i64) -> (Vec<Vec<String>>, i64) {
    let mut world = world();
    for seq in 1..=requests {
        world.send(&post("/status/200/done").place_acking(1, seq, seq - 1)).is_executed(200);
        if seq % 100 == 0 {
            world.database.tamper("DELETE FROM effects");
        }
    }
    let rows = world.database.query("SELECT length(name), length(epochs), closed_seq, crashes FROM semel_sessions");
    let rows = rows.iter().map(|row| row.iter().map(|value| format!("{value:?}")).collect()).collect();
    (rows, world.database.number("SELECT (SELECT page_count FROM pragma_page_count()) - (SELECT freelist_count FROM pragma_freelist_count())"))
}

/// `SEMEL_REQUESTS=100000` takes some minutes.
#[test]
fn ten_thousand_requests_in_one_session_leave_the_same_bytes_as_a_hundred() {
    let count = std::env::var("SEMEL_REQUESTS").ok().and_then(|count| count.parse().ok()).unwrap_or(10_000);
    assert_eq!(bytes_after(100), bytes_after(count));
}
