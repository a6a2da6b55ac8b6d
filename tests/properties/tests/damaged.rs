//! Rows that somebody damaged, one column at a time.

use semel_core::id::{Principal, RequestId};
use semel_core::problem::Executed;
use semel_core::server::storage::record::{LatestDeadline, Record, State, TombstoneKind};
use semel_core::server::{Value, storage::rows};
use semel_properties::engine::KeyUnderTest;
use semel_support::call::{get, post};

const NOT_A_NUMBER_OF_THE_TRAIT: i64 = 1 << 53;

fn key_with(state: State) -> KeyUnderTest {
    let mut key = KeyUnderTest::new();
    key.ask(&post("/count").id("first")).is_executed(200);
    let record = Record {
        principal: Principal::new("alice").expect("a principal"),
        first_sent_s: None,
        at_ms: 1,
        deadline: LatestDeadline::None,
        state,
        carried: Default::default(),
    };
    rows::put(&key.sql, &RequestId::new("damaged").expect("an id"), &record).expect("written");
    key
}

/// Damages a column, and asks for the id after a restart.
fn asked_after(mut key: KeyUnderTest, column: &str, value: Value) {
    key.sql.damage(&format!("UPDATE semel_records SET {column} = ?1 WHERE id = 'damaged'"), &value);
    key.restart();
    let reply = key.ask(&post("/count").id("damaged"));
    reply.is_problem(503, "unavailable", "unknown", "same-id");
    assert_eq!(key.effects_of("damaged"), 0);
}

fn tombstone(executed: Executed) -> State {
    State::Tombstone { kind: TombstoneKind::Acknowledged, executed, lapses_ms: i64::from(u32::MAX) * 1000 }
}

/// An answer of `no` with `never` allows the client to make a new request.
#[test]
fn a_tombstone_whose_executed_is_damaged_or_unknown_is_never_answered_as_not_executed() {
    for value in [Value::Null, Value::Integer(7)] {
        asked_after(key_with(tombstone(Executed::Yes)), "executed", value);
    }
    let mut key = key_with(tombstone(Executed::Unknown));
    key.ask(&post("/count").id("damaged")).is_problem(410, "acknowledged", "unknown", "never");
}

#[test]
fn a_record_whose_outcome_is_damaged_is_not_replayed_and_does_not_run_again() {
    for (column, value) in [("status", Value::Integer(99)), ("headers", "x-a 1\n".into()), ("body", Value::Null)] {
        let mut key = KeyUnderTest::new();
        key.ask(&post("/count").id("first")).is_executed(200);
        key.sql.damage(&format!("UPDATE semel_records SET {column} = ?1"), &value);
        key.restart();
        key.ask(&post("/count").id("first")).is_problem(503, "unavailable", "unknown", "same-id");
        assert_eq!(key.effects_of("first"), 1);
    }
}

/// Such integers would overflow when deadlines and retentions are added to them.
#[test]
fn a_row_with_an_integer_out_of_range_is_unavailable_and_does_not_run() {
    for column in ["at_ms", "deadline_ms", "first_sent_s", "lapses_ms"] {
        for value in [NOT_A_NUMBER_OF_THE_TRAIT, i64::MAX, i64::MIN] {
            asked_after(key_with(tombstone(Executed::Yes)), column, Value::Integer(value));
        }
    }
    let suspect = || key_with(State::Suspect { crashes: 1, is_started: false });
    for (column, value) in [("crashes", i64::MAX), ("crashes", -1), ("is_started", 2)] {
        asked_after(suspect(), column, Value::Integer(value));
    }
}

#[test]
fn a_key_whose_meta_row_is_damaged_is_unavailable_and_runs_nothing() {
    for column in ["engine_version", "handler_version", "fence_s", "clock_ms"] {
        let mut key = KeyUnderTest::new();
        key.ask(&post("/count").id("first")).is_executed(200);
        key.sql.damage(&format!("UPDATE semel_meta SET {column} = ?1"), &Value::Integer(NOT_A_NUMBER_OF_THE_TRAIT));
        key.restart();
        for call in [post("/count").id("first"), post("/count").id("second"), get("/count")] {
            key.ask(&call).is_problem(503, "unavailable", "unknown", "same-id");
        }
        assert_eq!((key.effects_of("first"), key.effects_of("second")), (1, 0));
    }
}
