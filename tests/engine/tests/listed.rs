//! Which keys the registry is to list, where little or nothing is left of what they held.

use semel_core::server::storage::record::Change;
use semel_support::call::control;
use semel_support::{START_MS, START_S, Trouble, World, acknowledge, post};

#[test]
fn a_key_whose_only_row_leaves_before_its_registration_is_answered_is_registered() {
    let mut world = World::new();
    world.start(&post("/count").id("a"));
    world.wake().unwrap();
    let report = world.report().unwrap().unwrap();
    assert!(report.is_listed);
    world.handler.trouble.set(Trouble::Fails);
    world.send(&post("/count").id("a")).is_problem(500, "rolled-back", "no", "same-id");
    assert_eq!(world.rows(), 0);
    // The registry has listed the key, so the key must know that it is listed, and keep its name.
    world.reported(&report, 0).unwrap();
    assert_eq!(world.database.number("SELECT is_registered AND key IS NOT NULL FROM semel_meta"), 1);
}

#[test]
fn an_answer_of_the_registry_makes_no_tables_where_there_are_none() {
    let mut world = World::new();
    world.send(&post("/count").id("a"));
    let report = world.report().unwrap().unwrap();
    // Its database was lost meanwhile.
    let mut emptied = World::new();
    assert_eq!(emptied.reported(&report, START_S), Ok(()));
    assert_eq!(emptied.database.tables(), Vec::<String>::new());
}

#[test]
fn a_key_that_has_only_a_session_left_is_listed() {
    let mut world = World::new();
    let until_ms = START_MS + 10_000;
    let take_over = post(&control("sessions")).id("own").first_sent_s(START_S).deadline_ms(until_ms);
    world.send(&take_over.body(r#"{"name":"s"}"#)).is_executed(200);
    world.send(&acknowledge(&format!(r#"[{{"id":"own","until":{until_ms}}}]"#)));
    world.pass_s(100);
    world.wake().unwrap();
    assert_eq!((world.rows(), world.count()), (0, Ok(Change::default())));
    assert!(world.report().unwrap().is_some_and(|report| report.is_listed));
}
